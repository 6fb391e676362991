//! INSERT, UPDATE, DELETE and CREATE TABLE AS as transactions. Their reads stand at one lsn, and the commit is refused if a row
//! that was read has changed since; the caller then runs the statement again.

mod arbiter;
mod assignments;
mod conflict;
mod delete;
mod insert;
mod joined_tables;
mod returning;
mod update;

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Int64Type, Schema};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::sql::sqlparser::ast::{
    CreateTable, Expr, Ident, ObjectName, ObjectType, Query, SelectItem, SetExpr, Statement, TableFactor,
    TableWithJoins, With,
};
use dialect::error::quoted;
use dialect::execution::cancellation::Cancellation;
use dialect::rewrites::coercion::CELL_PREFIX;
use dialect::values::convert;
use dialect::values::params::Params;
use engine::{Mode, Op, View};
use sql::names::{ParsedTableName, similar_names};
use sql::not_yet;
use sql::parse;
use sql::sql_type;
use table::Snapshot;
use types::{Column, Error, Kind, NewIndex, ROW_ID_NAME, Result, RowId, TIME_NAME, TableDef, name};

use crate::ddl;
use crate::execute::{block_in_place_if, collect};
use crate::planner::{ExtraTable, Planner, resolve_table};
use crate::provider::row_ids;

pub(crate) use returning::ReturnedRows;

use arbiter::Arbiter;

/// The changes of a statement, and the number of rows it counts.
#[derive(Default)]
pub(crate) struct Change {
    pub ops: Vec<Op>,
    pub count: u64,
    /// Reservation of the memory that the rows in `ops` take; to be kept as long as they are.
    pub memory: Option<MemoryReservation>,
    /// The rows of RETURNING, which are then the answer.
    pub returned: Option<ReturnedRows>,
    /// True if the count is that of the rows which the commit inserts.
    pub counts_inserted: bool,
    /// The arbiters whose keys were looked up. If another writer has taken one of these keys, the statement runs again.
    pub arbiters: Vec<Arbiter>,
}

/// Returns true if a statement that looked up these arbiters may succeed if it runs again.
pub(crate) fn may_retry(looked_up: &[Arbiter], error: &Error) -> bool {
    let is_meant = || looked_up.iter().any(|arbiter| arbiter.caused(error));
    error.kind() == Kind::Conflict || error.kind() == Kind::Exists && is_meant()
}

/// Returns true if IF NOT EXISTS finds an index: one of that name or, without a name, one of the same kind over the same columns.
fn index_exists(def: &TableDef, wanted: &NewIndex) -> Result<bool> {
    if !wanted.name.is_empty() {
        return Ok(def.index_named(&wanted.name).is_some());
    }
    let new = def.index_of(wanted)?;
    Ok(def.indexes.iter().any(|known| {
        (&known.kind, &known.columns, known.unique.is_some())
            == (&new.kind, &new.columns, new.unique.is_some())
    }))
}

/// Computes the changes of a writing statement, over one view.
pub(crate) struct Writer<'a> {
    pub planner: &'a Planner,
    pub view: &'a View,
    pub params: &'a Params,
    pub cancel: &'a Arc<Cancellation>,
    /// True if planning may take long ([`block_in_place_if`]).
    pub long: bool,
    /// The WITH before the statement, which its queries may read.
    pub with: Option<&'a With>,
}

/// Returns the writing statement after a WITH, if the query is one.
pub(crate) fn statement_after_with(query: &Query) -> Option<(Option<&With>, &Statement)> {
    match query.body.as_ref() {
        SetExpr::Insert(statement) | SetExpr::Update(statement) | SetExpr::Delete(statement) => {
            Some((query.with.as_ref(), statement))
        }
        _ => None,
    }
}

impl Writer<'_> {
    /// Computes the changes of a statement that writes.
    pub async fn change(&self, statement: &Statement) -> Result<Change> {
        match statement {
            Statement::CreateTable(create) => match &create.query {
                Some(query) => self.create_as(create, query).await,
                None => {
                    let op =
                        Op::CreateTable { def: ddl::definition(create)?, if_absent: create.if_not_exists };
                    Ok(Change { ops: vec![op], ..Change::default() })
                }
            },
            Statement::AlterTable(alter) => {
                Ok(Change { ops: crate::alter::ops(alter, self.view)?, ..Change::default() })
            }
            Statement::CreateView(create) => {
                let ops = block_in_place_if(self.long, || {
                    crate::views::create_ops(create, self.view, self.planner)
                })?;
                Ok(Change { ops, ..Change::default() })
            }
            Statement::Drop { object_type: ObjectType::View, if_exists, names, .. } => {
                let ops = crate::views::drop_ops(self.view, names, *if_exists)?;
                Ok(Change { ops, ..Change::default() })
            }
            Statement::CreateIndex(create) => {
                let (written, index) = ddl::index(create)?;
                let snapshot = resolve_table(self.view, &written)?;
                let def = snapshot.def();
                if create.if_not_exists && index_exists(def, &index)? {
                    return Ok(Change::default());
                }
                let op = Op::AlterIndexes { table: def.name.clone(), drop: Vec::new(), add: vec![index] };
                Ok(Change { ops: vec![op], ..Change::default() })
            }
            Statement::Drop { object_type: ObjectType::Index, if_exists, names, table: on, .. } => {
                let ops = dropped_indexes(self.view, names, on.as_ref(), *if_exists)?;
                Ok(Change { ops, ..Change::default() })
            }
            Statement::Drop { if_exists, names, .. } => {
                Ok(Change { ops: dropped(self.view, names, *if_exists)?, ..Change::default() })
            }
            Statement::Insert(insert) => self.insert(insert).await,
            Statement::Update(update) => self.update(update).await,
            Statement::Delete(delete) => self.delete(delete).await,
            Statement::Truncate(truncate) => self.truncate(truncate).await,
            Statement::Query(query) => {
                let Some((with, statement)) = statement_after_with(query) else {
                    return Err(Error::internal("a query changes nothing"));
                };
                let ctes = with.iter().flat_map(|with| &with.cte_tables);
                if !ctes.into_iter().all(|cte| parse::reads_only(&cte.query)) {
                    return Err(not_yet("a query that writes"));
                }
                Box::pin(Writer { with, ..*self }.change(statement)).await
            }
            other => {
                Err(Error::internal(format!("`{}` changes nothing", name::printable(&other.to_string()))))
            }
        }
    }

    /// Returns the query by which a statement finds the rows that it writes, for EXPLAIN.
    pub fn read_query(&self, statement: &Statement) -> Result<Statement> {
        match statement {
            Statement::Insert(insert) => self.insert_reads(insert),
            Statement::Update(update) => self.update_reads(update),
            Statement::Delete(delete) => self.delete_reads(delete),
            Statement::CreateTable(CreateTable { query: Some(query), .. }) if parse::reads_only(query) => {
                Ok(Statement::Query(query.clone()))
            }
            Statement::Query(query) => {
                let Some((with, statement)) = statement_after_with(query) else {
                    return Err(not_yet("a query that writes"));
                };
                let mut statement = self.read_query(statement)?;
                if let (Some(with), Statement::Query(query)) = (with, &mut statement) {
                    if !with.cte_tables.iter().all(|cte| parse::reads_only(&cte.query)) {
                        return Err(not_yet("a query that writes"));
                    }
                    prepend_with(with, query)?;
                }
                Ok(statement)
            }
            other => {
                let text = other.to_string();
                let words: Vec<&str> = text.split_whitespace().take(2).collect();
                Err(Error::invalid(format!("{} has no plan to show", name::printable(&words.join(" "))))
                    .hint("EXPLAIN shows plans of SELECT, INSERT … SELECT, UPDATE and DELETE"))
            }
        }
    }

    /// Creates the table of CREATE TABLE … AS and its rows in one commit.
    async fn create_as(&self, create: &CreateTable, query: &Query) -> Result<Change> {
        let mut def = ddl::definition(create)?;
        if !def.schema.columns.is_empty() {
            return Err(not_yet("CREATE TABLE (columns) AS").hint("name the columns in the query"));
        }
        if create.if_not_exists && self.view.find(&def.name).is_some_and(|t| t.def().name == def.name) {
            return Ok(Change::default());
        }
        if !parse::reads_only(query) {
            return Err(not_yet("a query that writes"));
        }
        let (batch, memory) = self.run(Statement::Query(Box::new(query.clone()))).await?;
        for field in batch.schema().fields() {
            def.add_column(field.name(), &sql_type::from_arrow(field)?, true, None)?;
        }
        ddl::options(&create.table_options, &mut def)?;
        let columns: Vec<&Column> = def.schema.columns.iter().collect();
        let arrays = columns
            .iter()
            .zip(batch.columns())
            .map(|(column, array)| {
                convert::to_column(array, &column.data_type).map_err(|e| e.with("column", &column.name))
            })
            .collect::<Result<Vec<_>>>()?;
        let rows = batch_of(&columns, arrays, batch.num_rows())?;
        let (table, count) = (def.name.clone(), rows.num_rows() as u64);
        let mut ops = vec![Op::CreateTable { def, if_absent: false }];
        if count > 0 {
            ops.push(Op::Insert { table, batch: rows, mode: Mode::Append });
        }
        Ok(Change { ops, count, memory: Some(memory), ..Change::default() })
    }

    async fn run(&self, statement: Statement) -> Result<(RecordBatch, MemoryReservation)> {
        self.run_with_extras(statement, &[]).await
    }

    /// Runs a query to its end. It may read `extras` beside the tables.
    async fn run_with_extras(
        &self,
        mut statement: Statement,
        extras: &[ExtraTable],
    ) -> Result<(RecordBatch, MemoryReservation)> {
        if let (Some(with), Statement::Query(query)) = (self.with, &mut statement) {
            prepend_with(with, query)?;
        }
        let planned = block_in_place_if(self.long, || {
            self.planner.plan_with_extras(statement, self.params, self.view, extras)
        })?;
        collect(self.planner, &planned, self.cancel, self.long).await
    }

    /// Returns the table that a statement writes, and the qualifier of its columns.
    fn target(&self, from: &TableWithJoins) -> Result<(Arc<Snapshot>, Ident)> {
        let TableFactor::Table { name: object, args: None, alias, version, .. } = &from.relation else {
            return Err(Error::invalid("a table is expected"));
        };
        if version.is_some() {
            return Err(Error::invalid("rows are written to the present, not AS OF an earlier point")
                .hint("AS OF is for what a statement reads: `INSERT INTO t SELECT … FROM t AS OF …`"));
        }
        if !from.joins.is_empty() {
            return Err(not_yet("writing a join").hint("UPDATE … FROM and DELETE … USING read other tables"));
        }
        let snapshot = resolve_table(self.view, &ParsedTableName::of(object)?)?;
        let called = match alias {
            Some(alias) => alias.name.clone(),
            None => own_name(snapshot.def()),
        };
        Ok((snapshot, called))
    }
}

/// Puts a WITH before a query, which may have one of its own.
fn prepend_with(with: &With, query: &mut Query) -> Result<()> {
    if query.with.is_some() {
        let inner = std::mem::replace(query, sql::ast::empty_query()?);
        *query.body = SetExpr::Query(Box::new(inner));
    }
    query.with = Some(with.clone());
    Ok(())
}

/// Returns the qualifier of the columns of a table without an alias.
fn own_name(def: &TableDef) -> Ident {
    Ident::with_quote('"', def.name.split_once('.').map_or(def.name.as_str(), |(_, last)| last))
}

pub(crate) fn column_position(def: &TableDef, ident: &Ident) -> Result<usize> {
    let names = || def.schema.columns.iter().map(|c| c.name.as_str());
    let found = if ident.quote_style.is_some() {
        names().position(|n| n == ident.value)
    } else {
        name::resolve(&ident.value, names())
    };
    if let Some(position) = found {
        return Ok(position);
    }
    if [ROW_ID_NAME, TIME_NAME].iter().any(|system| ident.value.eq_ignore_ascii_case(system)) {
        return Err(Error::invalid(format!("`{}` is given by Polynya", name::printable(&ident.value))));
    }
    let error = Error::invalid(format!("there is no column `{}`", name::printable(&ident.value)))
        .with("table", &def.name);
    let near = similar_names(&ident.value, names());
    if near.is_empty() {
        return Err(error);
    }
    Err(error.hint(format!("did you mean {}?", quoted(&near))))
}

fn is_default(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(ident) if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

fn batch_of(columns: &[&Column], arrays: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let fields: Vec<Field> =
        columns.iter().zip(&arrays).map(|(c, a)| Field::new(&c.name, a.data_type().clone(), true)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
        .map_err(|e| Error::internal(format!("converted columns do not make a batch: {e}")))
}

fn first_column(batch: &RecordBatch) -> Vec<RowId> {
    row_ids(batch.column(0).as_primitive::<Int64Type>()).collect()
}

fn cell_item(expr: Expr, i: usize) -> SelectItem {
    SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', format!("{CELL_PREFIX}{i}")) }
}

/// Returns the expression `called."column"`.
fn qualified(called: &Ident, column: &str) -> Expr {
    Expr::CompoundIdentifier(vec![called.clone(), Ident::with_quote('"', column)])
}

/// Returns the operations that drop the tables of a DROP TABLE.
fn dropped(view: &View, names: &[ObjectName], if_exists: bool) -> Result<Vec<Op>> {
    let mut ops = Vec::new();
    for object in names {
        match resolve_table(view, &ParsedTableName::of(object)?) {
            Ok(snapshot) => ops.push(Op::DropTable { table: snapshot.def().name.clone(), if_exists }),
            Err(error) if if_exists && error.kind() == Kind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(ops)
}

/// Returns the operations that drop the indexes of a DROP INDEX. Index names belong to tables, so several tables may have the
/// same.
fn dropped_indexes(
    view: &View,
    names: &[ObjectName],
    on: Option<&ObjectName>,
    if_exists: bool,
) -> Result<Vec<Op>> {
    let mut ops = Vec::new();
    for object in names {
        let ParsedTableName { namespace, table: (wanted, _) } = ParsedTableName::of(object)?;
        let tables = match on {
            Some(on) => vec![resolve_table(view, &ParsedTableName::of(on)?)?],
            None => view.tables(),
        };
        let in_namespace = |def: &TableDef| {
            namespace.as_ref().is_none_or(|(n, _)| def.name.split('.').next() == Some(n.as_str()))
        };
        let found: Vec<&Arc<Snapshot>> = tables
            .iter()
            .filter(|t| in_namespace(t.def()) && t.def().index_named(&wanted).is_some())
            .collect();
        let shown = name::printable(&wanted);
        match found.as_slice() {
            [] if if_exists => {}
            [] => {
                return Err(Error::not_found(format!("there is no index `{shown}`"))
                    .hint("`polynya tables TABLE` lists the indexes of a table"));
            }
            [one] => {
                let table = one.def().name.clone();
                ops.push(Op::AlterIndexes { table, drop: vec![wanted], add: Vec::new() });
            }
            [first, ..] => {
                let first = name::short_table_name(&first.def().name);
                return Err(Error::invalid(format!("{} tables have an index `{shown}`", found.len()))
                    .hint(format!("say which: DROP INDEX {shown} ON {first}")));
            }
        }
    }
    Ok(ops)
}

/// Builds `SELECT _row_id FROM table WHERE predicate`. The predicate is parsed as an expression, so it cannot be anything else.
pub(crate) fn row_ids_where(snapshot: &Snapshot, predicate: &str, bytes_max: usize) -> Result<Statement> {
    let selection = parse::predicate(predicate, bytes_max)?;
    let full_name = &snapshot.def().name;
    let (namespace, table) = full_name.split_once('.').unwrap_or((name::DEFAULT_NAMESPACE, full_name));
    // Table names contain no quotes.
    let statement =
        parse::statement(&format!("SELECT {ROW_ID_NAME} FROM \"{namespace}\".\"{table}\""), 1 << 10)?;
    let Statement::Query(mut query) = statement else {
        return Err(Error::internal("a SELECT is not a query"));
    };
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.selection = Some(selection);
    }
    Ok(Statement::Query(query))
}
