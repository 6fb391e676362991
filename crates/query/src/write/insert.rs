//! INSERT: rows of VALUES, of a query, or of defaults.

use arrow::array::RecordBatch;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Insert, OnInsert, Query, SetExpr, Statement, TableObject,
};
use dialect::values::convert;
use dialect::values::literal;
use engine::{Mode, Op};
use sql::ast::select;
use sql::names::ParsedTableName;
use sql::not_yet;
use sql::parse;
use types::{Column, Error, Kind, Result, TableDef, Value};

use super::returning::{ChangedRows, SystemColumns};
use super::{Change, Writer, batch_of, cell_item, column_position, is_default, own_name};
use crate::planner::resolve_table;

/// Expressions of INSERT … VALUES that one query evaluates.
const CELLS_AT_ONCE: usize = 256;

impl Writer<'_> {
    /// Returns the query that an INSERT … SELECT reads.
    pub(super) fn insert_reads(&self, insert: &Insert) -> Result<Statement> {
        refuse(insert)?;
        let TableObject::TableName(object) = &insert.table else {
            return Err(not_yet("INSERT into a function"));
        };
        resolve_table(self.view, &ParsedTableName::of(object)?)?;
        match &insert.source {
            Some(query) if plain_values(query).is_none() && parse::reads_only(query) => {
                Ok(Statement::Query(query.clone()))
            }
            Some(query) if plain_values(query).is_none() => Err(not_yet("a query that writes")),
            _ => Err(Error::invalid("an INSERT of values reads nothing, so there is no plan to show")
                .hint("EXPLAIN shows how INSERT … SELECT, UPDATE and DELETE find their rows")),
        }
    }

    pub(super) async fn insert(&self, insert: &Insert) -> Result<Change> {
        refuse(insert)?;
        let TableObject::TableName(object) = &insert.table else {
            return Err(not_yet("INSERT into a function"));
        };
        let snapshot = resolve_table(self.view, &ParsedTableName::of(object)?)?;
        let def = snapshot.def();
        let columns = target_columns(def, &insert.columns)?;
        let listed = !insert.columns.is_empty();
        let (batch, memory) = match &insert.source {
            None => (defaults(def)?, None),
            Some(query) => match plain_values(query) {
                Some(rows) => (self.values(&columns, &rows, listed).await?, None),
                None => {
                    let (batch, memory) = self.selected(def, &columns, query, listed).await?;
                    (batch, Some(memory))
                }
            },
        };
        let called = match &insert.table_alias {
            Some(alias) => alias.clone(),
            None => own_name(def),
        };
        let returning = insert.returning.as_deref();
        if let Some(OnInsert::OnConflict(on)) = &insert.on {
            return self.insert_on_conflict(&snapshot, &called, batch, memory, on, returning).await;
        }
        let count = batch.num_rows() as u64;
        let returned = match returning {
            None => None,
            Some(items) => {
                let rows = snapshot.conform(&batch)?.columns().to_vec();
                let changed = ChangedRows {
                    snapshot: &snapshot,
                    called: &called,
                    rows,
                    system: SystemColumns::New,
                    others: Vec::new(),
                };
                Some(self.returned(items, changed).await?)
            }
        };
        if count == 0 {
            return Ok(Change { returned, ..Change::default() });
        }
        let op = Op::Insert { table: def.name.clone(), batch, mode: Mode::Append };
        Ok(Change { ops: vec![op], count, memory, returned, ..Change::default() })
    }

    /// Converts the rows of VALUES. Literals become values at once; other expressions are evaluated by queries.
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
                        Some(value) => value.map_err(|e| with_place(e, column, r))?,
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
                some.iter().enumerate().map(|(i, (_, _, expr))| cell_item((*expr).clone(), i)).collect();
            let (batch, _) = self.run(select(projection, Vec::new(), None)?).await?;
            if batch.num_rows() != 1 {
                return Err(Error::internal(format!("VALUES gave {} rows for one", batch.num_rows())));
            }
            for (i, (r, c, _)) in some.iter().enumerate() {
                let column = columns[*c];
                let array = convert::to_column(batch.column(i), &column.data_type)
                    .map_err(|e| with_place(e, column, *r))?;
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
            return Err(not_yet("a query that writes"));
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
}

/// Returns the rows of a VALUES without any further clause.
fn plain_values(query: &Query) -> Option<Vec<&[Expr]>> {
    match query.body.as_ref() {
        SetExpr::Values(values)
            if query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none() =>
        {
            Some(values.rows.iter().map(|row| &row[..]).collect())
        }
        _ => None,
    }
}

/// Returns one row with the default of each column.
fn defaults(def: &TableDef) -> Result<RecordBatch> {
    let columns: Vec<&Column> = def.schema.columns.iter().collect();
    let value = |column: &&Column| {
        Value::to_array(&[column.default.clone().unwrap_or(Value::Null)], &column.data_type)
    };
    batch_of(&columns, columns.iter().map(value).collect::<Result<Vec<_>>>()?, 1)
}

fn refuse(insert: &Insert) -> Result<()> {
    if insert.or.is_some() || insert.ignore || insert.replace_into {
        return Err(
            not_yet("INSERT OR …").hint("write INSERT … ON CONFLICT (key) DO NOTHING or DO UPDATE SET …")
        );
    }
    if matches!(insert.on, Some(OnInsert::DuplicateKeyUpdate(_))) {
        return Err(not_yet("ON DUPLICATE KEY UPDATE")
            .hint("write ON CONFLICT (key) DO UPDATE SET column = excluded.column"));
    }
    let missing = [
        (insert.overwrite, "INSERT OVERWRITE"),
        (insert.partitioned.is_some(), "PARTITION"),
        (!insert.assignments.is_empty(), "INSERT … SET"),
        (!insert.after_columns.is_empty(), "columns after PARTITION"),
        (insert.priority.is_some(), "a priority of INSERT"),
        (insert.insert_alias.is_some(), "a name for the new row but `excluded`"),
        (insert.settings.is_some(), "SETTINGS"),
        (insert.format_clause.is_some(), "FORMAT"),
    ];
    match missing.into_iter().find(|(asked, _)| *asked) {
        Some((_, what)) => Err(not_yet(what)),
        None => Ok(()),
    }
}

/// Returns the columns that an INSERT names; all of them if it names none.
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

fn with_place(error: Error, column: &Column, row: usize) -> Error {
    let kind = error.kind();
    let error = error.with("column", &column.name);
    if kind == Kind::Schema { error.with("row", row + 1) } else { error }
}
