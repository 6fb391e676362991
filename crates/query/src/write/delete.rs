//! DELETE, also with rows of other tables (USING), and TRUNCATE.

use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use datafusion::sql::sqlparser::ast::{
    CascadeOption, Delete, FromTable, Ident, SelectItem, Statement, TableWithJoins, Truncate,
    TruncateIdentityOption,
};
use engine::Op;
use sql::ast::select;
use sql::names::ParsedTableName;
use sql::not_yet;
use table::Snapshot;
use types::{Error, Kind, ROW_ID_NAME, Result, TIME_NAME};

use super::returning::{ChangedRows, SystemColumns};
use super::update::{limit_error, one_row_per_id};
use super::{Change, Writer, first_column, joined_tables, qualified, row_ids_where};
use crate::planner::resolve_table;

/// The query of a DELETE.
struct DeleteQuery {
    query: Statement,
    snapshot: Arc<Snapshot>,
    called: Ident,
    /// Number of columns that the table itself contributes.
    width: usize,
    joined: Vec<Ident>,
}

impl Writer<'_> {
    /// Returns the query for the rows that a DELETE removes.
    pub(super) fn delete_reads(&self, delete: &Delete) -> Result<Statement> {
        self.delete_query(delete).map(|reading| reading.query)
    }

    fn delete_query(&self, delete: &Delete) -> Result<DeleteQuery> {
        if !delete.tables.is_empty() {
            return Err(not_yet("DELETE of several tables"));
        }
        if !delete.order_by.is_empty() || delete.limit.is_some() {
            return Err(limit_error("DELETE"));
        }
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let [target] = from.as_slice() else {
            return Err(
                not_yet("DELETE of several tables").hint("DELETE FROM t USING other WHERE … reads others")
            );
        };
        let others: &[TableWithJoins] = delete.using.as_deref().unwrap_or_default();
        let (snapshot, called) = self.target(target)?;
        let column = |name: &str| SelectItem::UnnamedExpr(qualified(&called, name));
        let mut projection = vec![column(ROW_ID_NAME)];
        if delete.returning.is_some() {
            projection.push(column(TIME_NAME));
            projection.extend(snapshot.def().schema.columns.iter().map(|c| column(&c.name)));
        }
        let width = projection.len();
        let (joined, items) = match delete.returning {
            Some(_) => joined_tables::select_items(others),
            None => Default::default(),
        };
        projection.extend(items);
        let mut sources = vec![target.clone()];
        sources.extend_from_slice(others);
        let query = select(projection, sources, delete.selection.clone())?;
        Ok(DeleteQuery { query, snapshot, called, width, joined })
    }

    pub(super) async fn delete(&self, delete: &Delete) -> Result<Change> {
        let DeleteQuery { query, snapshot, called, width, joined } = self.delete_query(delete)?;
        let def = snapshot.def();
        let others: &[TableWithJoins] = delete.using.as_deref().unwrap_or_default();
        let (mut batch, memory) = self.run(query).await?;
        if !others.is_empty() {
            batch = if delete.returning.is_some() { one_row_per_id(batch)? } else { distinct_rows(&batch)? };
        }
        let returned = match &delete.returning {
            None => None,
            Some(items) => {
                let [ids, times, rows @ ..] = &batch.columns()[..width] else {
                    return Err(Error::internal("a DELETE read no rows"));
                };
                let others = joined_tables::extract(joined, &batch);
                let system = SystemColumns::Old { ids: ids.clone(), times: times.clone() };
                let changed =
                    ChangedRows { snapshot: &snapshot, called: &called, rows: rows.to_vec(), system, others };
                Some(self.returned(items, changed).await?)
            }
        };
        let rows = first_column(&batch);
        let count = rows.len() as u64;
        if count == 0 {
            return Ok(Change { returned, ..Change::default() });
        }
        let op = Op::Delete { table: def.name.clone(), rows, must_exist: true };
        Ok(Change { ops: vec![op], count, memory: Some(memory), returned, ..Change::default() })
    }

    /// Deletes all rows of the tables, in one commit.
    pub(super) async fn truncate(&self, truncate: &Truncate) -> Result<Change> {
        if truncate.partitions.is_some() || truncate.on_cluster.is_some() {
            return Err(not_yet("TRUNCATE of a part of a table").hint("DELETE FROM t WHERE …"));
        }
        if matches!(truncate.identity, Some(TruncateIdentityOption::Restart)) {
            return Err(not_yet("RESTART IDENTITY").hint("row ids are never given twice"));
        }
        // There are no foreign keys, so both mean the same.
        let (None | Some(CascadeOption::Cascade | CascadeOption::Restrict)) = truncate.cascade;
        let mut change = Change::default();
        for named in &truncate.table_names {
            let snapshot = match resolve_table(self.view, &ParsedTableName::of(&named.name)?) {
                Ok(snapshot) => snapshot,
                Err(error) if truncate.if_exists && error.kind() == Kind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let table = snapshot.def().name.clone();
            let is_again = |op: &Op| matches!(op, Op::Delete { table: other, .. } if *other == table);
            if change.ops.iter().any(is_again) {
                continue;
            }
            let (batch, memory) = self.run(row_ids_where(&snapshot, "true", 64)?).await?;
            let rows = first_column(&batch);
            if rows.is_empty() {
                continue;
            }
            change.count += rows.len() as u64;
            change.ops.push(Op::Delete { table, rows, must_exist: true });
            match &mut change.memory {
                Some(all) => all.try_grow(memory.size()).map_err(dialect::error::from_datafusion)?,
                none => *none = Some(memory),
            }
        }
        Ok(change)
    }
}

/// Keeps one of the equal rows with the same row id (the first column), in the order of the row ids.
fn distinct_rows(batch: &RecordBatch) -> Result<RecordBatch> {
    let ids = first_column(batch);
    let mut order: Vec<u32> = (0..ids.len() as u32).collect();
    order.sort_unstable_by_key(|at| ids[*at as usize]);
    order.dedup_by_key(|at| ids[*at as usize]);
    take_record_batch(batch, &UInt32Array::from(order))
        .map_err(|e| Error::internal(format!("choosing rows of a join failed: {e}")))
}
