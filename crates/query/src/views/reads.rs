//! Records what a view's query reads by the ids of tables and columns, because names may later mean other ones.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{Query, SelectItem, VisitMut, VisitorMut};
use datafusion::sql::sqlparser::keywords::Keyword;
use engine::View;
use sql::names::{ParsedTableName, each_select};
use sql::parse;
use types::{Error, Kind, Result, TableDef, ViewDef, ViewRead, name};

/// Returns the columns of these tables that the query may name; all of them if it reads columns without naming them (`*`,
/// NATURAL).
pub(crate) fn reads(query: &Query, tables: &[Arc<TableDef>]) -> Result<Vec<ViewRead>> {
    let words = parse::words(&parse::text_of(query))?;
    let mut stars = FindStar(false);
    let _ = query.clone().visit(&mut stars);
    let whole = stars.0 || words.iter().any(|word| matches!(word.keyword, Keyword::NATURAL | Keyword::TABLE));
    // This may list too many columns but not too few: a word may be an alias.
    let words: HashSet<String> = words.into_iter().map(|word| word.value.to_lowercase()).collect();
    let read = |def: &Arc<TableDef>| ViewRead {
        table: def.id,
        name: def.name.clone(),
        columns: (def.schema.columns.iter())
            .filter(|column| whole || words.contains(&column.name.to_lowercase()))
            .map(|column| (column.id, column.name.clone()))
            .collect(),
    };
    Ok(tables.iter().map(read).collect())
}

/// Fails unless the names that a view reads mean in `view` what they meant when it was created.
pub(crate) fn check(def: &ViewDef, view: &View) -> Result<()> {
    for read in &def.reads {
        let (namespace, table) = read.name.split_once('.').unwrap_or((name::DEFAULT_NAMESPACE, &read.name));
        let written = ParsedTableName {
            namespace: Some((namespace.to_owned(), true)),
            table: (table.to_owned(), true),
        };
        let snapshot = crate::planner::resolve_table(view, &written)?;
        let short = name::printable(name::short_table_name(&read.name));
        if snapshot.def().id != read.table {
            let what = format!("table `{short}` is not the one that the view was created over");
            return Err(Error::new(Kind::Schema, what));
        }
        for (id, name) in &read.columns {
            let shown = name::printable(name);
            let what = match snapshot.def().schema.column(*id) {
                Some(column) if column.name == *name => continue,
                Some(column) => {
                    let called = name::printable(&column.name);
                    format!("column `{shown}` of table `{short}`, which it reads, is called `{called}`")
                }
                None => format!("column `{shown}` of table `{short}`, which it reads, is not there"),
            };
            return Err(Error::new(Kind::Schema, what));
        }
    }
    Ok(())
}

/// Finds a `*` in a SELECT.
struct FindStar(bool);

impl VisitorMut for FindStar {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        each_select(&mut query.body, &mut |select| {
            let is_star = |item: &SelectItem| {
                matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
            };
            self.0 |= select.projection.iter().any(is_star);
        });
        ControlFlow::Continue(())
    }
}
