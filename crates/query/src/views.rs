//! Turns CREATE VIEW and DROP VIEW into operations.

mod expand;
mod reads;

use datafusion::sql::sqlparser::ast::{CreateTableOptions, CreateView, ObjectName, Statement};
use dialect::values::params::Params;
use engine::{Op, View};
use sql::as_of;
use sql::names::{self, ParsedTableName};
use sql::not_yet;
use sql::parse;
use types::{Error, Kind, Result, ViewColumn, ViewDef, name};

use crate::planner::Planner;
pub(crate) use expand::{ExpandedView, expand, qualify, query_of};
pub(crate) use reads::{check as check_reads, reads};

/// Returns the operation of a CREATE VIEW; none if the view exists and IF NOT EXISTS was given.
pub(crate) fn create_ops(create: &CreateView, view: &View, planner: &Planner) -> Result<Vec<Op>> {
    let missing = [
        (create.materialized, "CREATE MATERIALIZED VIEW"),
        (create.temporary, "CREATE TEMPORARY VIEW"),
        (create.or_alter, "CREATE OR ALTER VIEW"),
        (create.options != CreateTableOptions::None, "WITH (…) of a view"),
        (create.to.is_some() || create.params.is_some() || create.secure, "this form of CREATE VIEW"),
        (
            create.columns.iter().any(|c| c.data_type.is_some() || c.options.is_some()),
            "types of a view's columns",
        ),
    ];
    if let Some((_, what)) = missing.into_iter().find(|(asked, _)| *asked) {
        return Err(not_yet(what));
    }
    let full_name = name::full_table_name(&ParsedTableName::of(&create.name)?.text())?;
    let known = view.view(&full_name);
    if create.if_not_exists && known.is_some() {
        return Ok(Vec::new());
    }
    // A replaced view keeps the spelling of its name.
    let full_name = known.filter(|_| create.or_replace).map_or(full_name, |known| known.name.clone());
    let mut query = create.query.clone();
    let statement = |query| Statement::Query(query);
    if names::parameters(&statement(query.clone()))? > 0 {
        return Err(Error::invalid("a view has no parameters").hint("write the values into its query"));
    }
    if as_of::remove(&mut statement(query.clone())) {
        return Err(
            Error::invalid("a view has no point in time of its own").hint("say AS OF where the view is read")
        );
    }
    let tables = qualify(&mut query, view)?;
    let reads = reads(&query, &tables)?;
    let mut def = ViewDef { name: full_name, query: parse::text_of(&query), columns: Vec::new(), reads };
    // Checks that the view is neither too deep nor reads itself.
    expand(&mut statement(query.clone()), view, planner.text_bytes_max(), Some(&def))?;
    let planned = planner.plan(statement(query), &Params::new(Vec::new()), view, None)?;
    let from = planned.column_names();
    if create.columns.len() > from.len() {
        return Err(Error::invalid(format!(
            "{} columns are named, the query has {}",
            create.columns.len(),
            from.len()
        )));
    }
    let named = create.columns.iter().map(|column| Some(column.name.value.clone()));
    let named = named.chain(std::iter::repeat(None));
    let columns: Vec<ViewColumn> = from
        .into_iter()
        .zip(named)
        .map(|(from, named)| ViewColumn { name: named.unwrap_or_else(|| from.clone()), from })
        .collect();
    for (at, column) in columns.iter().enumerate() {
        if columns[..at].iter().any(|other| other.from == column.from) {
            let what = format!("two columns of the query are called `{}`", name::printable(&column.from));
            return Err(Error::invalid(what).hint("rename one of them with AS"));
        }
    }
    def.columns = columns;
    def.check()?;
    // Plans the query as it will be read, to check that the stored text means the same.
    let read = query_of(&def, planner.text_bytes_max())?;
    planner.plan(statement(Box::new(read)), &Params::new(Vec::new()), view, None)?;
    Ok(vec![Op::PutView { view: def, replace: create.or_replace }])
}

/// Returns the operations that drop the views of a DROP VIEW.
pub(crate) fn drop_ops(view: &View, names: &[ObjectName], if_exists: bool) -> Result<Vec<Op>> {
    let mut ops = Vec::new();
    for object in names {
        let written = ParsedTableName::of(object)?;
        match view.view(&written.text()).filter(|def| written.admits(&def.name)) {
            Some(def) => ops.push(Op::DropView { name: def.name.clone(), if_exists }),
            None if if_exists => {}
            None => {
                let shown = name::printable(&written.text());
                return Err(Error::not_found(format!("there is no view `{shown}`")));
            }
        }
    }
    Ok(ops)
}

/// Wraps the error of a view that cannot be read. Only principals who may see everything learn which name is the cause.
pub(crate) fn unreadable(def: &ViewDef, view: &View, error: Error) -> Error {
    let short = name::printable(name::short_table_name(&def.name));
    let kind = error.kind();
    if !matches!(kind, Kind::NotFound | Kind::Schema | Kind::Invalid) {
        return error.with("view", short);
    }
    if view.sees_all() {
        return Error::new(Kind::Schema, format!("view `{short}` cannot be read: {}", error.message()))
            .hint("CREATE OR REPLACE VIEW replaces it");
    }
    Error::new(
        Kind::Schema,
        format!("view `{short}` cannot be read: it reads what is gone, or what this key may not read"),
    )
}
