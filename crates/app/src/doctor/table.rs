//! The checks of one table: its state in the manifest, every byte of its segments, its live rows and keys.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use table::{Segment, Snapshot, State};
use types::{DataType, Error, RowId, SegmentId, TableDef, key, schema};

use super::{Examination, TableReport};

/// Checks that the state of a table is consistent in itself. Segment ids must be below `next_segment`.
pub fn check_state(state: &State, next_segment: SegmentId, examination: &mut Examination) {
    let name = &state.def.name;
    let mut below = RowId(1);
    for (meta, deletes) in state.segments.iter().zip(&state.deletes) {
        let place = format!("table {name}, segment {}", meta.id);
        if meta.first_row < below || meta.last_row < meta.first_row {
            examination.damage(format!(
                "{place}: rows {} to {} do not follow on row {}",
                meta.first_row,
                meta.last_row,
                below.0 - 1
            ));
        }
        below = meta.last_row.next();
        if meta.rows > meta.last_row.0 - meta.first_row.0.min(meta.last_row.0) + 1 {
            examination.damage(format!("{place}: {} rows do not fit into its range of row ids", meta.rows));
        }
        let in_range =
            |row: Option<u64>| row.is_none_or(|row| (meta.first_row.0..=meta.last_row.0).contains(&row));
        if !in_range(deletes.min()) || !in_range(deletes.max()) || deletes.len() > meta.rows {
            examination.damage(format!("{place}: its delete vector names rows that it does not hold"));
        }
        if meta.id >= next_segment {
            examination.damage(format!("{place}: its id was not given out yet (the next is {next_segment})"));
        }
        if meta.last_lsn > state.lsn || meta.last_lsn < meta.first_lsn {
            examination
                .damage(format!("{place}: its lsns {} to {} are impossible", meta.first_lsn, meta.last_lsn));
        }
    }
    if below > state.sealed_next || state.sealed_next > state.next_row {
        examination.damage(format!(
            "table {name}: sealed up to row {}, next row {}, last row of a segment {}",
            state.sealed_next,
            state.next_row,
            below.0 - 1
        ));
    }
    if !state.history.is_sorted_by_key(|run| run.lsn) {
        examination.damage(format!("table {name}: its history of deletes is out of order"));
    }
}

/// Reads every byte and every live row of a table, and returns its counts. `verify` returns the errors of a segment's files.
pub fn check(
    snapshot: &Snapshot,
    verify: &dyn Fn(&Arc<Segment>) -> Vec<Error>,
    examination: &mut Examination,
) -> TableReport {
    let def = snapshot.def();
    let mut report =
        TableReport { name: def.name.clone(), head_rows: snapshot.head_rows(), ..TableReport::default() };
    let mut stored = snapshot.head_rows();
    for segment in snapshot.segments() {
        report.segments += 1;
        report.segment_bytes += segment.meta().bytes;
        stored += segment.meta().rows;
        for error in verify(segment) {
            examination.damage(format!("table {}: {error}", def.name));
        }
    }
    for (segment, _) in snapshot.past_segments() {
        for error in verify(segment) {
            examination.damage(format!("table {}, rows that ended: {error}", def.name));
        }
    }
    let mut scan = Scan { last_row: None, rows: 0, key_problems: 0 };
    for piece in snapshot.pieces() {
        let (first, last) = piece.row_range();
        if piece.is_evicted() {
            // The lake's files are checked separately; `polynya lake verify` compares their rows.
            scan.rows += piece.rows() as u64;
            scan.last_row = Some(last.0 as i64);
            continue;
        }
        match piece.read(snapshot.all_columns()) {
            Ok(batch) => scan.check(snapshot, &batch, (first, last), examination),
            // The damage of this segment was reported above.
            Err(_) => scan.rows += piece.rows() as u64,
        }
    }
    if scan.rows != snapshot.rows() {
        examination.damage(format!(
            "table {}: {} live rows were read where {} are counted",
            def.name,
            scan.rows,
            snapshot.rows()
        ));
    }
    if scan.key_problems > 0 {
        examination.damage(format!(
            "table {}: {} rows are not what their key leads to: a key exists twice or an index is wrong",
            def.name, scan.key_problems
        ));
    }
    report.lake_rows = snapshot.evicted().0;
    report.hot_from = snapshot.hot_from().0;
    if report.lake_rows > 0 {
        examination.note(format!(
            "table {}: {} rows are only in the lake, and are not read here; `polynya lake verify` reads them",
            def.name, report.lake_rows
        ));
    }
    report.rows = snapshot.rows();
    report.deleted = stored.saturating_sub(report.rows);
    report
}

/// The state of a pass over all live rows.
struct Scan {
    last_row: Option<i64>,
    rows: u64,
    key_problems: u64,
}

impl Scan {
    fn check(
        &mut self,
        snapshot: &Snapshot,
        batch: &RecordBatch,
        range: (RowId, RowId),
        examination: &mut Examination,
    ) {
        let def = snapshot.def();
        self.rows += batch.num_rows() as u64;
        let Some(row_ids) =
            batch.column_by_name(schema::ROW_ID_NAME).and_then(|a| a.as_primitive_opt::<Int64Type>())
        else {
            examination
                .damage(format!("table {}: rows {} to {} have no row ids", def.name, range.0, range.1));
            return;
        };
        let ids = row_ids.values();
        let ascends = ids.windows(2).all(|pair| pair[0] < pair[1]);
        let follows = ids.first().is_none_or(|first| self.last_row.is_none_or(|last| last < *first));
        let inside = ids.iter().all(|id| (range.0.0..=range.1.0).contains(&(*id as u64)));
        if !ascends || !follows || !inside {
            examination
                .damage(format!("table {}: row ids {} to {} are out of order", def.name, range.0, range.1));
        }
        self.last_row = ids.last().copied().or(self.last_row);
        self.check_keys(snapshot, def, batch, ids);
    }

    /// Checks that the key index finds each row under its key, which also proves that no live key exists twice.
    fn check_keys(&mut self, snapshot: &Snapshot, def: &TableDef, batch: &RecordBatch, ids: &[i64]) {
        if !def.is_keyed() {
            return;
        }
        let types: Vec<DataType> = def.key_columns().map(|column| column.data_type.clone()).collect();
        let columns: Option<Vec<&dyn Array>> = def
            .key_columns()
            .map(|column| batch.column_by_name(&column.name).map(|array| array.as_ref()))
            .collect();
        let Some(columns) = columns.filter(|columns| columns.iter().all(|column| column.null_count() == 0))
        else {
            self.key_problems += batch.num_rows() as u64;
            return;
        };
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for row in 0..ids.len() {
            key::encode_row(&types, &columns, row, &mut bytes);
            ends.push(bytes.len());
        }
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let keys: Vec<&[u8]> = starts.zip(&ends).map(|(start, end)| &bytes[start..*end]).collect();
        let is_it =
            |key: &[u8], id: i64| matches!(snapshot.find(key), Ok(Some(found)) if found.0 == id as u64);
        self.key_problems += match snapshot.find_many(&keys) {
            Ok(found) => found
                .iter()
                .zip(ids)
                .filter(|(found, id)| found.is_none_or(|found| found.0 != **id as u64))
                .count(),
            // The lookup of one key failed. Single lookups find out which one.
            Err(_) => keys.iter().zip(ids).filter(|(key, id)| !is_it(key, **id)).count(),
        } as u64;
    }
}
