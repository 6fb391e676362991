//! UPDATE, also with rows of other tables (FROM).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::row::{RowConverter, SortField};
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, SelectItem, Statement, TableWithJoins, Update, UpdateTableFromKind,
};
use engine::Op;
use sql::ast::select;
use sql::not_yet;
use table::Snapshot;
use types::{Column, Error, ROW_ID_NAME, Result};

use super::assignments::Assignments;
use super::returning::{ChangedRows, SystemColumns};
use super::{Change, Writer, batch_of, first_column, joined_tables, qualified};

/// The query of an UPDATE, and its assignments.
struct UpdateQuery {
    query: Statement,
    snapshot: Arc<Snapshot>,
    called: Ident,
    sets: Assignments,
    joined: Vec<Ident>,
}

impl Writer<'_> {
    /// Returns the query for the rows that an UPDATE changes, with their new values.
    pub(super) fn update_reads(&self, update: &Update) -> Result<Statement> {
        self.update_query(update).map(|reading| reading.query)
    }

    fn update_query(&self, update: &Update) -> Result<UpdateQuery> {
        if update.or.is_some() {
            return Err(not_yet("UPDATE OR …"));
        }
        if update.limit.is_some() {
            return Err(limit_error("UPDATE"));
        }
        let others = from_tables(update)?;
        let (snapshot, called) = self.target(&update.table)?;
        let (set, params) = (&update.assignments, &self.params.values);
        let sets = Assignments::of(snapshot.def(), &called, set, params, |column| match others {
            [] => Expr::Identifier(Ident::with_quote('"', column)),
            _ => qualified(&called, column),
        })?;
        let mut projection = vec![SelectItem::UnnamedExpr(qualified(&called, ROW_ID_NAME))];
        projection.extend(sets.items());
        let (joined, items) = match update.returning {
            Some(_) => joined_tables::select_items(others),
            None => Default::default(),
        };
        projection.extend(items);
        let mut from = vec![update.table.clone()];
        from.extend_from_slice(others);
        let query = select(projection, from, update.selection.clone())?;
        Ok(UpdateQuery { query, snapshot, called, sets, joined })
    }

    pub(super) async fn update(&self, update: &Update) -> Result<Change> {
        let UpdateQuery { query, snapshot, called, sets, joined } = self.update_query(update)?;
        let def = snapshot.def();
        let others = from_tables(update)?;
        let (mut batch, memory) = self.run(query).await?;
        if !others.is_empty() {
            batch = one_row_per_id(batch)?;
        }
        let rows = batch.num_rows();
        let columns: Vec<&Column> = def.schema.columns.iter().collect();
        let arrays = sets.columns(def, &batch.columns()[1..], rows)?;
        let new = batch_of(&columns, arrays, rows)?;
        let returned = match &update.returning {
            None => None,
            Some(items) => {
                let rows = snapshot.conform(&new)?.columns().to_vec();
                let others = joined_tables::extract(joined, &batch);
                let changed = ChangedRows {
                    snapshot: &snapshot,
                    called: &called,
                    rows,
                    system: SystemColumns::New,
                    others,
                };
                Some(self.returned(items, changed).await?)
            }
        };
        if rows == 0 {
            return Ok(Change { returned, ..Change::default() });
        }
        let op = Op::Update { table: def.name.clone(), old: first_column(&batch), batch: new };
        Ok(Change { ops: vec![op], count: rows as u64, memory: Some(memory), returned, ..Change::default() })
    }
}

/// Returns the tables of FROM.
fn from_tables(update: &Update) -> Result<&[TableWithJoins]> {
    match &update.from {
        None => Ok(&[]),
        Some(UpdateTableFromKind::AfterSet(others)) => Ok(others),
        Some(UpdateTableFromKind::BeforeSet(_)) => {
            Err(not_yet("FROM before SET").hint("write UPDATE t SET … FROM other WHERE …"))
        }
    }
}

pub(super) fn limit_error(what: &str) -> Error {
    Error::invalid(format!("{what} has no ORDER BY and no LIMIT"))
        .hint("choose the rows by a query: WHERE _row_id IN (SELECT _row_id FROM … LIMIT 10)")
}

/// Keeps one of the rows with the same row id (the first column): the one whose other columns sort first, because a join may
/// return them in any order. Returns the rows in the order of the row ids.
pub(super) fn one_row_per_id(batch: RecordBatch) -> Result<RecordBatch> {
    let failed =
        |e: arrow::error::ArrowError| Error::internal(format!("choosing rows of a join failed: {e}"));
    let ids = first_column(&batch);
    let mut chosen: BTreeMap<_, usize> = BTreeMap::new();
    let mut repeated = false;
    for (at, id) in ids.iter().enumerate() {
        repeated |= chosen.insert(*id, at).is_some();
    }
    if repeated {
        let sorts =
            |array: &&ArrayRef| RowConverter::supports_fields(&[SortField::new(array.data_type().clone())]);
        let columns: Vec<ArrayRef> = batch.columns()[1..].iter().filter(sorts).cloned().collect();
        let fields = columns.iter().map(|array| SortField::new(array.data_type().clone())).collect();
        let converter = RowConverter::new(fields).map_err(failed)?;
        let rows = converter.convert_columns(&columns).map_err(failed)?;
        chosen.clear();
        for (at, id) in ids.iter().enumerate() {
            let best = chosen.entry(*id).or_insert(at);
            if rows.row(at) < rows.row(*best) {
                *best = at;
            }
        }
    }
    let picks = UInt32Array::from_iter_values(chosen.into_values().map(|at| at as u32));
    take_record_batch(&batch, &picks).map_err(failed)
}
