//! An Iceberg table at one snapshot, piece by piece. Positions are its live rows, in an order that follows from the snapshot.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema, SchemaRef};
use indicatif::ProgressBar;
use lake::foreign::{Foreign, Rows};
use serde_json::{Value, json};
use types::{Error, Kind, Result};

use super::columns::{self, Given};
use super::find::Place;
use super::{Told, Wanted};
use crate::control::{Position, Standing};
use crate::door::Door;
use crate::ingest::{self, ARROW, Outcome, PIECE_BYTES, Piece, Pieces, Resumed, Stream, arrow_stream};

/// Rows of one piece at most.
const PIECE_ROWS_MAX: u64 = 131_072;

pub async fn run(
    door: &mut Door,
    wanted: &Wanted,
    place: Place,
    bar: &ProgressBar,
    told: &mut dyn FnMut(Told<'_>),
) -> Result<Outcome> {
    let mut table = open(&place, None).await?;
    let resumed = match door.control() {
        None => None,
        Some(control) => {
            let known_as = if table.uuid.is_empty() { &place.title } else { &table.uuid };
            let (id, standing) =
                ingest::standing(control, &format!("iceberg {known_as}"), &wanted.table).await?;
            let (resumed, snapshot) = resume(id, standing, wanted, &place, &table)?;
            if snapshot != table.snapshot {
                table = open(&place, snapshot).await?;
            }
            Some(resumed)
        }
    };
    let given: Vec<Given> = table
        .columns
        .iter()
        .map(|column| Given {
            name: column.name.clone(),
            arrow: column.data_type.to_arrow(),
            data_type: Some(column.data_type.clone()),
        })
        .collect();
    for column in &table.columns {
        check_nested(&column.name, &column.data_type)?;
    }
    let (renames, mut notes) = columns::rename(&given, &wanted.renames)?;
    let existing = columns::existing(door, &wanted.table).await?;
    notes.extend(columns::check(&given, &renames, existing.as_ref(), &wanted.table)?);
    for column in &table.columns {
        notes.extend(column.becomes.as_ref().map(|becomes| format!("column `{}`: {becomes}", column.name)));
    }
    let checked = table.clone();
    let looked = tokio::task::spawn_blocking(move || checked.check()).await;
    looked.map_err(|error| Error::internal("reading the table failed").caused_by(error))??;
    notes.iter().for_each(|note| told(Told::Note(note)));
    columns::make(door, &given, &renames, existing.as_ref(), &wanted.table).await?;

    let from = resumed.as_ref().map_or(0, |resumed| u64::try_from(resumed.position.position).unwrap_or(0));
    let fields = given
        .iter()
        .map(|column| Field::new(columns::named(&renames, &column.name), column.arrow.clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let total = table.rows();
    let pieces = Box::new(Cut { rows: table.read(from), schema, position: from, left: None });
    let stream =
        Stream { title: place.title, table: wanted.table.clone(), pieces, total: Some(total), read: None };
    ingest::stream(door, resumed, stream, bar).await
}

async fn open(place: &Place, snapshot: Option<i64>) -> Result<Arc<Foreign>> {
    let place = place.clone();
    let open = move || Foreign::open(&place.store, &place.metadata, snapshot).map(Arc::new);
    let opened = tokio::task::spawn_blocking(open).await;
    opened.map_err(|error| Error::internal("opening the table failed").caused_by(error))?
}

/// Where an earlier run stopped, and at which snapshot. One that has begun goes on at its own.
fn resume(
    id: String,
    standing: Standing,
    wanted: &Wanted,
    place: &Place,
    table: &Foreign,
) -> Result<(Resumed, Option<i64>)> {
    let Standing { position, version } = standing;
    if let Some(known) = position.filter(|_| !wanted.again) {
        let shape: Value =
            known.shape.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let snapshot = shape["snapshot"].as_str().and_then(|id| id.parse::<i64>().ok());
        let is_done = shape["rows"].as_i64().is_some_and(|rows| known.position >= rows);
        if is_done && snapshot != table.snapshot {
            return Err(Error::conflict(format!(
                "{} was imported into `{}` at its snapshot {}, and has another one by now",
                place.title,
                wanted.table,
                snapshot.unwrap_or_default()
            ))
            .hint("what changed since cannot be told apart: --again takes all of it in once more, best into a new table"));
        }
        return Ok((Resumed { id, position: known, anew: None }, snapshot));
    }
    let shape = json!({ "snapshot": table.snapshot.map(|id| id.to_string()), "rows": table.rows() });
    let position = Position {
        file: place.title.clone(),
        table: wanted.table.clone(),
        head: table.uuid.clone(),
        shape: Some(shape.to_string()),
        ..Position::default()
    };
    Ok((Resumed { id, position, anew: Some(version) }, table.snapshot))
}

/// Fields within structs cannot be renamed on the way.
fn check_nested(column: &str, data_type: &types::DataType) -> Result<()> {
    use types::DataType::{List, Struct};
    match data_type {
        List(item) => check_nested(column, &item.data_type),
        Struct(fields) => fields.iter().try_for_each(|field| match field.name.starts_with('_') {
            true => Err(Error::new(
                Kind::Schema,
                format!("field `{}` within column `{column}` has a name that belongs to Polynya", field.name),
            )
            .hint("rename the field in the Iceberg table first: ALTER TABLE … RENAME COLUMN")),
            false => check_nested(column, &field.data_type),
        }),
        _ => Ok(()),
    }
}

/// A table's rows being cut.
struct Cut {
    rows: Rows,
    /// As the table here calls the columns.
    schema: SchemaRef,
    position: u64,
    /// What did not fit into the piece before.
    left: Option<RecordBatch>,
}

impl Pieces for Cut {
    fn next(&mut self) -> Result<Option<Piece>> {
        let start = self.position;
        let mut batches: Vec<RecordBatch> = Vec::new();
        let mut bytes = 0;
        while bytes < PIECE_BYTES && self.position - start < PIECE_ROWS_MAX {
            let next = match self.left.take() {
                Some(left) => Some(left),
                None => self.rows.next_batch()?,
            };
            let Some(mut batch) = next else { break };
            // Wide rows: no request may be larger than the server takes.
            let size = batch.get_array_memory_size();
            let rows = batch.num_rows();
            let fits = (rows * PIECE_BYTES / size.max(1)).clamp(1, rows);
            if fits < rows {
                self.left = Some(batch.slice(fits, rows - fits));
                batch = batch.slice(0, fits);
            }
            bytes += size * fits / rows.max(1);
            self.position += batch.num_rows() as u64;
            batches.push(batch);
        }
        let rows = self.position - start;
        if rows == 0 {
            return Ok(None);
        }
        let renamed =
            |batch: RecordBatch| RecordBatch::try_new(self.schema.clone(), batch.columns().to_vec());
        let batches = batches.into_iter().map(renamed).collect::<std::result::Result<Vec<_>, _>>();
        let whole = batches.and_then(|batches| concat_batches(&self.schema, &batches));
        let whole = whole.map_err(|error| Error::internal("rows do not make a batch").caused_by(error))?;
        let body = arrow_stream(&whole)?;
        Ok(Some(Piece { end: self.position, line: self.position, rows, content_type: ARROW, body }))
    }
}
