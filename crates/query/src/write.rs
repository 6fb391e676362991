//! INSERT, UPDATE, DELETE and CREATE TABLE AS as transactions: what they read stands at one lsn, and what they write
//! is refused if a row that was read has changed since. Whoever runs them then starts again.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Int64Type, Schema};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, CreateTable, Delete, Expr, FromTable, Ident, Insert, ObjectName,
    ObjectNamePart, ObjectType, Query, SelectItem, SetExpr, Statement, TableFactor, TableObject,
    TableWithJoins, Update,
};
use engine::{Mode, Op, View};
use table::Snapshot;
use types::{Column, Error, Kind, NewIndex, ROW_ID_NAME, Result, RowId, TIME_NAME, TableDef, Value, name};

use crate::cancel::Cancel;
use crate::coerce::CELL_PREFIX;
use crate::ddl::{self, later};
use crate::error::quoted;
use crate::execute::{collect, heavy};
use crate::names::{Written, near};
use crate::params::Params;
use crate::planner::{Planner, table};
use crate::provider::row_ids;
use crate::{convert, literal, parse, sql_type};

/// Expressions of INSERT … VALUES that are evaluated by one query.
const CELLS_AT_ONCE: usize = 256;

/// What a statement writes, and how many rows it counts.
#[derive(Default)]
pub(crate) struct Change {
    pub ops: Vec<Op>,
    pub count: u64,
    /// What the rows in `ops` hold of the memory that statements share; to be kept as long as they.
    pub memory: Option<MemoryReservation>,
}

/// Whether IF NOT EXISTS finds an index: one of the name, or where none is given one of the kind over the same columns.
fn is_there(def: &TableDef, wanted: &NewIndex) -> Result<bool> {
    if !wanted.name.is_empty() {
        return Ok(def.index_named(&wanted.name).is_some());
    }
    let new = def.index_of(wanted)?;
    Ok(def.indexes.iter().any(|known| (&known.kind, &known.columns) == (&new.kind, &new.columns)))
}

/// Reads what a writing statement needs, over one view.
pub(crate) struct Writer<'a> {
    pub planner: &'a Planner,
    pub view: &'a View,
    pub params: &'a Params,
    pub cancel: &'a Arc<Cancel>,
    /// Whether planning may take long ([`heavy`]).
    pub long: bool,
}

impl Writer<'_> {
    /// What a statement changes. Only for statements that do.
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
                let ops = heavy(self.long, || crate::views::created(create, self.view, self.planner))?;
                Ok(Change { ops, ..Change::default() })
            }
            Statement::Drop { object_type: ObjectType::View, if_exists, names, .. } => {
                let ops = crate::views::dropped(self.view, names, *if_exists)?;
                Ok(Change { ops, ..Change::default() })
            }
            Statement::CreateIndex(create) => {
                let (written, index) = ddl::index(create)?;
                let snapshot = table(self.view, &written)?;
                let def = snapshot.def();
                if create.if_not_exists && is_there(def, &index)? {
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
            other => {
                Err(Error::internal(format!("`{}` changes nothing", name::printable(&other.to_string()))))
            }
        }
    }

    async fn insert(&self, insert: &Insert) -> Result<Change> {
        refuse_insert(insert)?;
        let TableObject::TableName(object) = &insert.table else {
            return Err(later("INSERT into a function"));
        };
        let snapshot = table(self.view, &Written::of(object)?)?;
        let def = snapshot.def();
        let columns = target_columns(def, &insert.columns)?;
        let Some(query) = &insert.source else { return Err(later("INSERT … DEFAULT VALUES")) };
        let (batch, memory) = match query.body.as_ref() {
            SetExpr::Values(values)
                if query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none() =>
            {
                let rows: Vec<&[Expr]> = values.rows.iter().map(|row| &row[..]).collect();
                (self.values(&columns, &rows, !insert.columns.is_empty()).await?, None)
            }
            _ => {
                let (batch, memory) = self.selected(def, &columns, query, !insert.columns.is_empty()).await?;
                (batch, Some(memory))
            }
        };
        let count = batch.num_rows() as u64;
        if count == 0 {
            return Ok(Change::default());
        }
        let op = Op::Insert { table: def.name.clone(), batch, mode: Mode::Append };
        Ok(Change { ops: vec![op], count, memory })
    }

    /// The rows of VALUES. Literals become values at once; what has to be evaluated becomes a query.
    async fn values(&self, columns: &[&Column], rows: &[&[Expr]], listed: bool) -> Result<RecordBatch> {
        let width = rows.first().map_or(0, |row| row.len());
        if let Some((i, row)) = rows.iter().enumerate().find(|(_, row)| row.len() != width) {
            return Err(Error::invalid(format!("row {} has {} values, row 1 has {width}", i + 1, row.len())));
        }
        check_width(columns, width, listed)?;
        let columns = &columns[..width];
        let mut cells: Vec<Vec<Value>> = vec![Vec::with_capacity(rows.len()); width];
        let mut pending: Vec<(usize, usize, &Expr)> = Vec::new();
        for (r, row) in rows.iter().enumerate() {
            for (c, expr) in row.iter().enumerate() {
                let column = columns[c];
                let value = if is_default(expr) {
                    column.default.clone().unwrap_or(Value::Null)
                } else {
                    match literal::value(expr, &column.data_type, &self.params.values) {
                        Some(value) => value.map_err(|e| place(e, column, r))?,
                        None => {
                            pending.push((r, c, expr));
                            Value::Null
                        }
                    }
                };
                cells[c].push(value);
            }
        }
        for some in pending.chunks(CELLS_AT_ONCE) {
            let projection =
                some.iter().enumerate().map(|(i, (_, _, expr))| named((*expr).clone(), i)).collect();
            let statement = select(projection, None, None)?;
            let (batch, _) = self.run(statement).await?;
            if batch.num_rows() != 1 {
                return Err(Error::internal(format!("VALUES gave {} rows for one", batch.num_rows())));
            }
            for (i, (r, c, _)) in some.iter().enumerate() {
                let column = columns[*c];
                let array = convert::to_column(batch.column(i), &column.data_type)
                    .map_err(|e| place(e, column, *r))?;
                cells[*c][*r] = Value::from_array(&array, &column.data_type, 0);
            }
        }
        let arrays = columns
            .iter()
            .zip(&cells)
            .map(|(column, cells)| {
                Value::to_array(cells, &column.data_type).map_err(|e| e.with("column", &column.name))
            })
            .collect::<Result<Vec<_>>>()?;
        batch_of(columns, arrays, rows.len())
    }

    async fn selected(
        &self,
        def: &TableDef,
        columns: &[&Column],
        query: &Query,
        listed: bool,
    ) -> Result<(RecordBatch, MemoryReservation)> {
        if !parse::reads_only(query) {
            return Err(later("a query that writes"));
        }
        let (batch, memory) = self.run(Statement::Query(Box::new(query.clone()))).await?;
        check_width(columns, batch.num_columns(), listed).map_err(|e| e.with("table", &def.name))?;
        let columns = &columns[..batch.num_columns()];
        let arrays = columns
            .iter()
            .zip(batch.columns())
            .map(|(column, array)| {
                convert::to_column(array, &column.data_type).map_err(|e| e.with("column", &column.name))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok((batch_of(columns, arrays, batch.num_rows())?, memory))
    }

    async fn update(&self, update: &Update) -> Result<Change> {
        let missing = [
            (update.from.is_some(), "UPDATE … FROM"),
            (update.returning.is_some(), "RETURNING"),
            (update.or.is_some(), "UPDATE OR …"),
            (update.limit.is_some(), "UPDATE … LIMIT"),
        ];
        if let Some((_, what)) = missing.into_iter().find(|(asked, _)| *asked) {
            return Err(later(what));
        }
        let snapshot = self.one_table(&update.table)?;
        let def = snapshot.def();
        let mut sets: Vec<Option<&Expr>> = vec![None; def.schema.columns.len()];
        for Assignment { target, value } in &update.assignments {
            let AssignmentTarget::ColumnName(object) = target else { return Err(later("SET (a, b) = …")) };
            let position = column_position(def, assigned(def, &update.table, object)?)?;
            if sets[position].replace(value).is_some() {
                return Err(Error::invalid(format!(
                    "column `{}` is set twice",
                    def.schema.columns[position].name
                )));
            }
        }
        let column_item = |(i, column): (usize, &Column)| match sets[i] {
            Some(expr) if !is_default(expr) => named(expr.clone(), i),
            _ => named(Expr::Identifier(Ident::with_quote('"', &column.name)), i),
        };
        let mut projection = vec![SelectItem::UnnamedExpr(Expr::Identifier(Ident::new(ROW_ID_NAME)))];
        projection.extend(def.schema.columns.iter().enumerate().map(column_item));
        let (batch, memory) =
            self.run(select(projection, Some(update.table.clone()), update.selection.clone())?).await?;
        let rows = batch.num_rows();
        if rows == 0 {
            return Ok(Change::default());
        }
        let columns: Vec<&Column> = def.schema.columns.iter().collect();
        let arrays = columns
            .iter()
            .enumerate()
            .map(|(i, column)| {
                if sets[i].is_some_and(is_default) {
                    let value = column.default.clone().unwrap_or(Value::Null);
                    return Value::to_array(&vec![value; rows], &column.data_type);
                }
                convert::to_column(batch.column(i + 1), &column.data_type)
                    .map_err(|e| e.with("column", &column.name))
            })
            .collect::<Result<Vec<_>>>()?;
        let op = Op::Update {
            table: def.name.clone(),
            old: first_column(&batch),
            batch: batch_of(&columns, arrays, rows)?,
        };
        Ok(Change { ops: vec![op], count: rows as u64, memory: Some(memory) })
    }

    async fn delete(&self, delete: &Delete) -> Result<Change> {
        let missing = [
            (delete.using.is_some(), "DELETE … USING"),
            (delete.returning.is_some(), "RETURNING"),
            (!delete.tables.is_empty(), "DELETE of several tables"),
            (!delete.order_by.is_empty() || delete.limit.is_some(), "DELETE … LIMIT"),
        ];
        if let Some((_, what)) = missing.into_iter().find(|(asked, _)| *asked) {
            return Err(later(what));
        }
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let [from] = from.as_slice() else { return Err(later("DELETE of several tables")) };
        let snapshot = self.one_table(from)?;
        let projection = vec![SelectItem::UnnamedExpr(Expr::Identifier(Ident::new(ROW_ID_NAME)))];
        let (batch, memory) =
            self.run(select(projection, Some(from.clone()), delete.selection.clone())?).await?;
        let rows = first_column(&batch);
        let count = rows.len() as u64;
        if count == 0 {
            return Ok(Change::default());
        }
        let op = Op::Delete { table: snapshot.def().name.clone(), rows, must_exist: true };
        Ok(Change { ops: vec![op], count, memory: Some(memory) })
    }

    /// CREATE TABLE … AS: the table and its rows in one commit.
    async fn create_as(&self, create: &CreateTable, query: &Query) -> Result<Change> {
        let mut def = ddl::definition(create)?;
        if !def.schema.columns.is_empty() {
            return Err(later("CREATE TABLE (columns) AS").hint("name the columns in the query"));
        }
        if create.if_not_exists && self.view.find(&def.name).is_some_and(|t| t.def().name == def.name) {
            return Ok(Change::default());
        }
        if !parse::reads_only(query) {
            return Err(later("a query that writes"));
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
        Ok(Change { ops, count, memory: Some(memory) })
    }

    fn one_table(&self, from: &TableWithJoins) -> Result<Arc<Snapshot>> {
        let TableFactor::Table { name: object, args: None, .. } = &from.relation else {
            return Err(Error::invalid("a table is expected"));
        };
        if !from.joins.is_empty() {
            return Err(later("writing a join"));
        }
        table(self.view, &Written::of(object)?)
    }

    async fn run(&self, statement: Statement) -> Result<(RecordBatch, MemoryReservation)> {
        let planned = heavy(self.long, || self.planner.plan(statement, self.params, self.view, None))?;
        collect(self.planner, &planned, self.cancel, self.long).await
    }
}

fn refuse_insert(insert: &Insert) -> Result<()> {
    let missing = [
        (insert.on.is_some(), "ON CONFLICT"),
        (insert.returning.is_some(), "RETURNING"),
        (insert.or.is_some() || insert.ignore || insert.replace_into, "INSERT OR …"),
        (insert.overwrite, "INSERT OVERWRITE"),
        (insert.partitioned.is_some(), "PARTITION"),
        (!insert.assignments.is_empty(), "INSERT … SET"),
    ];
    match missing.into_iter().find(|(asked, _)| *asked) {
        Some((_, what)) => Err(later(what)),
        None => Ok(()),
    }
}

/// The columns that an INSERT names; all of them if it names none.
fn target_columns<'d>(def: &'d TableDef, listed: &[Ident]) -> Result<Vec<&'d Column>> {
    if listed.is_empty() {
        return Ok(def.schema.columns.iter().collect());
    }
    let mut columns: Vec<&Column> = Vec::with_capacity(listed.len());
    for ident in listed {
        let column = &def.schema.columns[column_position(def, ident)?];
        if columns.iter().any(|c| c.id == column.id) {
            return Err(Error::invalid(format!("column `{}` is named twice", column.name)));
        }
        columns.push(column);
    }
    Ok(columns)
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
    let near = near(&ident.value, names());
    if near.is_empty() {
        return Err(error);
    }
    Err(error.hint(format!("did you mean {}?", quoted(&near))))
}

/// The column that SET names: `column`, or `table.column` where no column has the table's name. `column.field` is a
/// field of a struct, and must not be taken for a column of the field's name.
fn assigned<'o>(def: &TableDef, target: &TableWithJoins, object: &'o ObjectName) -> Result<&'o Ident> {
    let refused = || later(&format!("SET of a part of a column, `{object}`,")).hint("set the whole column");
    match object.0.as_slice() {
        [ObjectNamePart::Identifier(column)] => Ok(column),
        [ObjectNamePart::Identifier(table), ObjectNamePart::Identifier(column)] => {
            let called = match &target.relation {
                TableFactor::Table { alias: Some(alias), .. } => alias.name.value.as_str(),
                _ => def.name.split_once('.').map_or(def.name.as_str(), |(_, last)| last),
            };
            let names = |ident: &Ident, name: &str| {
                ident.value == name
                    || ident.quote_style.is_none() && ident.value.to_lowercase() == name.to_lowercase()
            };
            let is_column = def.schema.columns.iter().any(|column| names(table, &column.name));
            if is_column || !names(table, called) { Err(refused()) } else { Ok(column) }
        }
        _ => Err(refused()),
    }
}

fn check_width(columns: &[&Column], width: usize, listed: bool) -> Result<()> {
    if width > columns.len() || (listed && width < columns.len()) {
        let count = |n: usize, what: &str| match n {
            1 => format!("1 {what} is"),
            n => format!("{n} {what}s are"),
        };
        let (wanted, given) = (count(columns.len(), "column"), count(width, "value"));
        return Err(Error::invalid(format!("{wanted} to be filled, {given} given")));
    }
    Ok(())
}

fn is_default(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(ident) if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

fn place(error: Error, column: &Column, row: usize) -> Error {
    let kind = error.kind();
    let error = error.with("column", &column.name);
    if kind == Kind::Schema { error.with("row", row + 1) } else { error }
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

fn named(expr: Expr, i: usize) -> SelectItem {
    SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', format!("{CELL_PREFIX}{i}")) }
}

/// `SELECT projection [FROM from] [WHERE selection]`.
fn select(
    projection: Vec<SelectItem>,
    from: Option<TableWithJoins>,
    selection: Option<Expr>,
) -> Result<Statement> {
    // The parser knows best what an empty SELECT is made of.
    let mut statement = parse::statement("SELECT 1", 64)?;
    if let Statement::Query(query) = &mut statement
        && let SetExpr::Select(select) = query.body.as_mut()
    {
        select.projection = projection;
        select.from = from.into_iter().collect();
        select.selection = selection;
    }
    Ok(statement)
}

/// The tables that DROP names.
fn dropped(view: &View, names: &[ObjectName], if_exists: bool) -> Result<Vec<Op>> {
    let mut ops = Vec::new();
    for object in names {
        match table(view, &Written::of(object)?) {
            Ok(snapshot) => ops.push(Op::DropTable { table: snapshot.def().name.clone(), if_exists }),
            Err(error) if if_exists && error.kind() == Kind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(ops)
}

/// The indexes that DROP names. Their names belong to tables, so one may be there several times.
fn dropped_indexes(
    view: &View,
    names: &[ObjectName],
    on: Option<&ObjectName>,
    if_exists: bool,
) -> Result<Vec<Op>> {
    let mut ops = Vec::new();
    for object in names {
        let Written { namespace, table: (wanted, _) } = Written::of(object)?;
        let tables = match on {
            Some(on) => vec![table(view, &Written::of(on)?)?],
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

/// `SELECT _row_id FROM table WHERE predicate`. The predicate is read as an expression, so it can be nothing else.
pub(crate) fn row_ids_where(snapshot: &Snapshot, predicate: &str, bytes_max: usize) -> Result<Statement> {
    let selection = parse::predicate(predicate, bytes_max)?;
    let full_name = &snapshot.def().name;
    let (namespace, table) = full_name.split_once('.').unwrap_or((name::DEFAULT_NAMESPACE, full_name));
    // Names of tables hold no quotes.
    let statement =
        parse::statement(&format!("SELECT {ROW_ID_NAME} FROM \"{namespace}\".\"{table}\""), 1 << 10)?;
    let Statement::Query(mut query) = statement else { return Err(Error::internal("a SELECT is no query")) };
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.selection = Some(selection);
    }
    Ok(Statement::Query(query))
}
