//! Resolves a request in one view: its tables, and in each the columns to search and to show.

use std::sync::Arc;

use dialect::error::quoted;
use engine::{RowFilter, View};
use index::text::{self, Scanner};
use roaring::RoaringTreemap;
use sql::names::similar_names;
use table::Snapshot;
use table::materializer::Position;
use types::{ColumnId, Error, Kind, Result, TableDef, name};

use super::{LIMIT_MAX, Request, WINDOW_MAX};

/// Tables of one request.
const TABLES_MAX: usize = 100;

/// One table of a request.
pub(super) struct TableSearch {
    pub snapshot: Arc<Snapshot>,
    pub position: Option<Arc<Position>>,
    /// Columns to search in; empty: all indexed ones.
    pub columns: Vec<ColumnId>,
    /// True if no index covers the columns.
    pub scanned: bool,
    /// Columns to show.
    pub fields: Vec<ColumnId>,
    /// The part of the table that the principal may see; `None`: everything.
    pub visible: Option<RowFilter>,
    /// The rows for which the request's filter holds.
    pub filtered: Option<RoaringTreemap>,
}

pub(super) fn resolve(view: &View, request: &Request) -> Result<Vec<TableSearch>> {
    if !(1..=LIMIT_MAX).contains(&request.limit) {
        return Err(Error::invalid(format!("a limit of {} rows; it is 1 to {LIMIT_MAX}", request.limit))
            .hint("go on with `offset`"));
    }
    if request.limit.saturating_add(request.offset) > WINDOW_MAX {
        return Err(Error::new(
            Kind::TooLarge,
            format!("a search returns at most the best {WINDOW_MAX} rows"),
        )
        .hint("ask for fewer, or make the query narrower"));
    }
    if request.text.trim().is_empty() {
        return Err(Error::invalid("the query is empty").hint("send at least one word as `q`"));
    }
    if request.tables.len() > TABLES_MAX {
        return Err(Error::new(Kind::TooLarge, format!("a search names at most {TABLES_MAX} tables")));
    }
    let mut parts = Vec::new();
    if request.tables.is_empty() {
        for snapshot in view.searchables() {
            // A table without an index must be named, because all of its rows are read.
            if text::fields(snapshot.def()).is_some()
                && let Some(part) = indexed_table(view, snapshot, request)?
            {
                parts.push(part);
            }
        }
        if parts.is_empty() {
            return Err(nothing_to_search(view, request));
        }
        if parts.len() > TABLES_MAX {
            return Err(Error::new(
                Kind::TooLarge,
                format!("{} tables have a text index; a search goes over {TABLES_MAX}", parts.len()),
            )
            .hint("name those that are meant"));
        }
        return Ok(parts);
    }
    for wanted in &request.tables {
        let snapshot = view.searchable(wanted)?;
        if !parts.iter().any(|part: &TableSearch| part.snapshot.def().id == snapshot.def().id) {
            parts.push(named_table(view, snapshot, request)?);
        }
    }
    Ok(parts)
}

fn nothing_to_search(view: &View, request: &Request) -> Error {
    let error = if request.columns.is_empty() {
        Error::not_found("no table has a text index")
    } else {
        Error::not_found("no table has a text index over these columns")
    };
    match view.tables().iter().map(|t| t.def()).find(|def| !name::is_reserved(&def.name)) {
        Some(def) => error.hint(format!(
            "make one with CREATE INDEX ON {} USING text (…), or name a table to have all of it read",
            name::short_table_name(&def.name)
        )),
        None => error.hint("PUT /v1/tables/{table} with `indexes` makes a table with one"),
    }
}

/// Resolves a table that the request names.
fn named_table(view: &View, snapshot: Arc<Snapshot>, request: &Request) -> Result<TableSearch> {
    let def = snapshot.def().clone();
    let visible = view.row_filter(&snapshot);
    if visible.is_some() && request.filter.is_some() {
        return Err(Error::new(Kind::Forbidden, "only an admin may filter this table's rows")
            .with("table", name::short_table_name(&def.name))
            .hint("search without a filter"));
    }
    let wanted: Vec<ColumnId> =
        request.columns.iter().map(|wanted| column(&def, &visible, wanted)).collect::<Result<_>>()?;
    let indexed: Vec<ColumnId> = text::fields(&def)
        .map(|fields| fields.iter().map(|field| field.column).filter(|id| may_see(&visible, *id)).collect())
        .unwrap_or_default();
    let scanned = indexed.is_empty() || wanted.iter().any(|id| !indexed.contains(id));
    let columns = match (scanned, &visible) {
        (true, Some(visible)) if wanted.is_empty() => string_columns(&def, visible)?,
        (false, Some(_)) if wanted.is_empty() => indexed,
        _ => wanted,
    };
    if scanned {
        // Reports unsuitable columns before the search runs.
        Scanner::new(&def, &columns)?;
    }
    let fields = match &request.fields {
        None => shown_columns(&def, &visible, request.brief).collect(),
        Some(fields) => fields.iter().map(|field| column(&def, &visible, field)).collect::<Result<_>>()?,
    };
    let position = view.derived(text::NAME, &snapshot);
    Ok(TableSearch { snapshot, position, columns, scanned, fields, visible, filtered: None })
}

/// Resolves a table with a text index, for a request that names none; `None` if it has none of the requested columns.
fn indexed_table(view: &View, snapshot: Arc<Snapshot>, request: &Request) -> Result<Option<TableSearch>> {
    let def = snapshot.def().clone();
    let visible = view.row_filter(&snapshot);
    let Some(fields) = text::fields(&def) else { return Ok(None) };
    let wanted = |id: &ColumnId| {
        let name = def.schema.column(*id).map_or("", |column| column.name.as_str());
        request.columns.is_empty() || request.columns.iter().any(|c| c.eq_ignore_ascii_case(name))
    };
    let indexed = fields.iter().map(|field| field.column).filter(|id| may_see(&visible, *id));
    let columns: Vec<ColumnId> = indexed.filter(wanted).collect();
    if columns.is_empty() || visible.is_some() && request.filter.is_some() {
        return Ok(None);
    }
    let narrowed = visible.is_some() || !request.columns.is_empty();
    let fields = match &request.fields {
        None => shown_columns(&def, &visible, request.brief).collect(),
        // Tables differ: each shows those of the fields that it has.
        Some(fields) => fields.iter().filter_map(|field| column(&def, &visible, field).ok()).collect(),
    };
    let position = view.derived(text::NAME, &snapshot);
    let columns = if narrowed { columns } else { Vec::new() };
    Ok(Some(TableSearch { snapshot, position, columns, scanned: false, fields, visible, filtered: None }))
}

fn may_see(visible: &Option<RowFilter>, id: ColumnId) -> bool {
    visible.as_ref().is_none_or(|visible| visible.columns.contains(&id))
}

fn shown_columns<'a>(
    def: &'a TableDef,
    visible: &'a Option<RowFilter>,
    brief: bool,
) -> impl Iterator<Item = ColumnId> + 'a {
    let names_row = move |column: &&types::Column| {
        !brief || def.primary_key.contains(&column.id) || column.name.eq_ignore_ascii_case("title")
    };
    def.schema.columns.iter().filter(names_row).map(|column| column.id).filter(|id| may_see(visible, *id))
}

fn string_columns(def: &TableDef, visible: &RowFilter) -> Result<Vec<ColumnId>> {
    let is_string = |c: &&types::Column| c.data_type == types::DataType::String;
    let columns = def.schema.columns.iter().filter(is_string).map(|c| c.id);
    let columns: Vec<ColumnId> = columns.filter(|id| visible.columns.contains(id)).collect();
    if columns.is_empty() {
        Err(Error::invalid("the table has no string column to search in"))
    } else {
        Ok(columns)
    }
}

/// Finds a column by its name. A hidden column does not exist for the principal.
fn column(def: &TableDef, visible: &Option<RowFilter>, wanted: &str) -> Result<ColumnId> {
    let names =
        || def.schema.columns.iter().filter(|c| may_see(visible, c.id)).map(|column| column.name.as_str());
    if let Some(at) = name::resolve(wanted, names()) {
        let found = names().nth(at).unwrap_or_default();
        if let Some(column) = def.schema.columns.iter().find(|column| column.name == found) {
            return Ok(column.id);
        }
    }
    let error = Error::not_found(format!("there is no column `{}`", name::printable(wanted)))
        .with("table", name::short_table_name(&def.name));
    let near = similar_names(wanted, names());
    Err(if near.is_empty() { error } else { error.hint(format!("did you mean {}?", quoted(&near))) })
}
