//! Imports an Iceberg table at one snapshot, in pieces. A position is the offset of a row in an order that the snapshot
//! determines. There are as many offsets as rows, plus those of the rows that equality deletes remove.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema, SchemaRef};
use indicatif::ProgressBar;
use lake::foreign::{ForeignTable, RowBatch, RowReader, TableVersion};
use serde::{Deserialize, Serialize};
use types::{DataType, Error, Kind, Result, name};
use wire::json_texts;

use super::columns::{self, SourceColumn};
use super::source::IcebergLocation;
use super::{ImportEvent, ImportRequest, Renames, TargetTable};
use crate::connection::DataConnection;
use crate::control::Position;
use crate::ingest::{
    self, ARROW, IngestOutcome, PIECE_BYTES, PieceStream, Pieces, ResumePoint, SourcePiece, arrow_stream,
    same_renames,
};

/// Rows after which a piece ends, about.
const PIECE_ROWS_MAX: u64 = 131_072;

pub async fn run(
    connection: &mut DataConnection,
    request: &ImportRequest,
    target: &TargetTable,
    location: IcebergLocation,
    bar: &ProgressBar,
    report: &mut dyn FnMut(ImportEvent<'_>),
) -> Result<IngestOutcome> {
    let mut table = open(&location, None).await?;
    let mut known = None;
    let mut unknown = None;
    if let Some(control) = connection.control() {
        let called = if table.uuid.is_empty() { &location.title } else { &table.uuid };
        let (id, stored) =
            ingest::stored_position(control, format!("iceberg {called}").as_bytes(), &target.table).await?;
        match stored.position.filter(|_| !request.again) {
            Some(position) => known = Some((id, position)),
            None => unknown = Some((id, stored.version)),
        }
    }
    let state = known.as_ref().map(|(_, position)| ImportState::of(position));
    if let (Some(state), Some((_, position))) = (&state, &known) {
        table = state.resume(&location, position, target, table).await?;
    }
    let given: Vec<SourceColumn> = table.columns.iter().map(given).collect();
    let (renames, mut notes) = columns::plan_renames(&given, &request.renames)?;
    if let Some(before) = state.as_ref().and_then(|state| state.renames.as_ref()) {
        same_renames(&location.title, &target.table.name, before, &renames)?;
    }
    let total = table.end_offset();
    let from = known.as_ref().map_or(0, |(_, position)| u64::try_from(position.position).unwrap_or(0));
    // If nothing is left to read, no column is created.
    if from < total || target.existing.is_none() {
        notes.extend(columns::check(&given, &renames, target)?);
        for column in &table.columns {
            let conversion = column.conversion.as_ref();
            notes.extend(conversion.map(|conversion| format!("column `{}`: {conversion}", column.name)));
        }
        let left_out = table.left_out.iter();
        notes.extend(left_out.map(|name| format!("column `{name}` has no type, only nulls: it is left out")));
        let checked = table.clone();
        let looked = tokio::task::spawn_blocking(move || checked.check()).await;
        looked.map_err(|error| Error::internal("reading the table failed").caused_by(error))??;
        notes.iter().for_each(|note| report(ImportEvent::Note(note)));
        columns::create(connection, &given, &renames, target).await?;
    }

    let state = ImportState::new(&table, &renames);
    let resumed = match (known, unknown) {
        (Some((id, position)), _) => {
            // The position of an earlier version lacks parts of the state, which are stored from now on.
            let position = Position { shape: Some(state.to_text()), ..position };
            Some(ResumePoint { id, position, restart_version: None })
        }
        (None, Some((id, version))) => {
            let position = Position {
                file: location.title.clone(),
                table: target.table.name.clone(),
                head: table.uuid.clone(),
                shape: Some(state.to_text()),
                ..Position::default()
            };
            Some(ResumePoint { id, position, restart_version: Some(version) })
        }
        (None, None) => None,
    };
    let fields = given.iter().map(|column| {
        let name = columns::name_in_table(&renames, column.name());
        column.field.as_ref().clone().with_name(name)
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let json = columns::json_columns(&given, &renames, target);
    let pieces = Box::new(IcebergPieces { rows: table.read(from), schema, json, total, read_ahead: None });
    let title = location.title.clone();
    let stream =
        PieceStream { title, table: target.table.name.clone(), pieces, total: Some(total), read: None };
    ingest::stream(connection, resumed, stream, bar).await
}

fn given(column: &lake::foreign::Column) -> SourceColumn {
    let field = Arc::new(Field::new(&column.name, column.data_type.to_arrow(), true));
    SourceColumn { field, data_type: Some(column.data_type.clone()) }
}

/// Opens the table at the given snapshot, or at its current one.
async fn open(location: &IcebergLocation, at: Option<TableVersion>) -> Result<Arc<ForeignTable>> {
    let location = location.clone();
    let open = move || ForeignTable::open(&location.store, &location.metadata, at).map(Arc::new);
    let opened = tokio::task::spawn_blocking(open).await;
    opened.map_err(|error| Error::internal("opening the table failed").caused_by(error))?
}

/// The snapshot and schema that an import reads, and the names under which it stores the columns. It is stored with the
/// import's position, so that an interrupted import continues with the same snapshot even if the table has changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct ImportState {
    /// Id of the snapshot in digits, because it may exceed the integers that all JSON readers keep exactly.
    snapshot: Option<String>,
    /// Id of the schema. Earlier versions did not store it.
    schema: Option<i64>,
    /// Number of offsets in the snapshot.
    rows: Option<i64>,
    /// Columns that are renamed. Earlier versions did not store them.
    renames: Option<Renames>,
}

impl ImportState {
    fn new(table: &ForeignTable, renames: &Renames) -> ImportState {
        ImportState {
            snapshot: table.snapshot.map(|id| id.to_string()),
            schema: Some(table.schema),
            rows: i64::try_from(table.end_offset()).ok(),
            renames: Some(renames.clone()),
        }
    }

    fn of(position: &Position) -> ImportState {
        let text = position.shape.as_deref();
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    fn to_text(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Returns the table at the snapshot with which the import began. `now` is the table at its current snapshot. Fails with
    /// `conflict` if the import is complete and the table has changed since, or if the snapshot of an incomplete import is
    /// gone.
    async fn resume(
        &self,
        location: &IcebergLocation,
        position: &Position,
        target: &TargetTable,
        now: Arc<ForeignTable>,
    ) -> Result<Arc<ForeignTable>> {
        let snapshot = self.snapshot.as_deref().and_then(|id| id.parse::<i64>().ok());
        let (title, table) = (&location.title, name::short_table_name(&target.table.name));
        let shown = snapshot.unwrap_or_default();
        if self.rows.is_some_and(|rows| position.position >= rows) && snapshot != now.snapshot {
            return Err(Error::conflict(format!(
                "{title} was imported into `{table}` at its snapshot {shown}, and has another one by now"
            ))
            .hint("the changes since then cannot be told apart: --again imports all of it again, best into a new table"));
        }
        let Some(snapshot) = snapshot else { return Ok(now) };
        // An earlier version did not store the schema; it is usually still the current one.
        let schema = self.schema.unwrap_or(now.schema);
        if now.snapshot == Some(snapshot) && now.schema == schema {
            return Ok(now);
        }
        open(location, Some(TableVersion { snapshot, schema: Some(schema) })).await.map_err(|error| match error.kind() {
            Kind::NotFound => Error::conflict(format!(
                "{} rows of {title} at its snapshot {shown} are in `{table}`, and the rest of that snapshot is gone: {}",
                position.position,
                error.message()
            ))
            .hint(format!(
                "import into a new table, or drop `{table}` before (--again would take rows twice that are there already)"
            )),
            _ => error,
        })
    }
}

/// The rows of an Iceberg table that are being cut into pieces.
struct IcebergPieces {
    rows: RowReader,
    /// Schema of the pieces, with the column names of the receiving table.
    schema: SchemaRef,
    /// Columns in which text becomes JSON.
    json: Vec<(usize, DataType)>,
    /// Number of offsets: the position after the last row.
    total: u64,
    /// The next batch, if it was read already; the inner `None` is the end.
    read_ahead: Option<Result<Option<RowBatch>>>,
}

impl IcebergPieces {
    fn next_batch(&mut self) -> Result<Option<RowBatch>> {
        self.read_ahead.take().unwrap_or_else(|| self.rows.next_batch())
    }

    /// Returns the position after a batch: the offset of the next row, or the total at the end. So an import that has read the
    /// last row is at the end, even if deleted rows follow.
    fn position_after(&mut self, batch: &RowBatch) -> u64 {
        match self.read_ahead.get_or_insert_with(|| self.rows.next_batch()) {
            Ok(Some(next)) => next.offset(0),
            Ok(None) => self.total,
            // The error is returned when the next piece is read.
            Err(_) => batch.offset(batch.rows.num_rows()),
        }
    }
}

impl Pieces for IcebergPieces {
    fn next(&mut self) -> Result<Option<SourcePiece>> {
        let mut batches: Vec<RowBatch> = Vec::new();
        let (mut bytes, mut rows) = (0, 0);
        while bytes < PIECE_BYTES && rows < PIECE_ROWS_MAX {
            let Some(mut batch) = self.next_batch()? else {
                self.read_ahead = Some(Ok(None));
                break;
            };
            // A batch of wide rows is split, because the server limits the size of a request.
            let size = batch.rows.get_array_memory_size();
            let count = batch.rows.num_rows();
            let fits = (count * PIECE_BYTES / size.max(1)).clamp(1, count);
            if fits < count {
                let (first, rest) = batch.split(fits);
                (batch, self.read_ahead) = (first, Some(Ok(Some(rest))));
            }
            bytes += size * fits / count.max(1);
            rows += fits as u64;
            check_json(&batch, &self.schema, &self.json)?;
            batches.push(batch);
        }
        let Some(last) = batches.last() else { return Ok(None) };
        let end = self.position_after(last);
        let of_batch =
            |batch: &RowBatch| (1..=batch.rows.num_rows()).map(|row| batch.offset(row)).collect::<Vec<_>>();
        let ends = batches.iter().flat_map(of_batch).map(|end| (end, end)).collect();
        let renamed =
            |batch: RowBatch| RecordBatch::try_new(self.schema.clone(), batch.rows.columns().to_vec());
        let batches = batches.into_iter().map(renamed).collect::<std::result::Result<Vec<_>, _>>();
        let whole = batches.and_then(|batches| concat_batches(&self.schema, &batches));
        let whole = whole.map_err(|error| Error::internal("rows do not make a batch").caused_by(error))?;
        let body = arrow_stream(&whole)?;
        Ok(Some(SourcePiece { end, line: end, rows, content_type: ARROW, body, ends }))
    }
}

/// Fails with `schema` if a text is not valid JSON in one of these columns, which the table holds as JSON.
fn check_json(batch: &RowBatch, schema: &Schema, columns: &[(usize, DataType)]) -> Result<()> {
    for (at, data_type) in columns {
        let values = batch.rows.column(*at);
        let Some(bad) = json_texts::invalid_rows(schema.field(*at).name(), values, data_type).next() else {
            continue;
        };
        let (row, column) = (batch.offset(bad.row) + 1, bad.column.unwrap_or_default());
        return Err(Error::new(
            Kind::Schema,
            format!("row {row}, column `{column}`: not JSON, as the column of the table requires"),
        )
        .hint("import into a table in which the column is a string"));
    }
    Ok(())
}
