//! From the rows of a vault to its pages: the [`table::materializer::Materializer`] that publishes a [`Site`].
//!
//! Nothing of it is on disk. After a restart it is made anew from the table, which is quicker than reading pages back would
//! be safe, and readers are told to come again until it is complete. A step always takes in everything that is missing,
//! so that no reader meets a site that lacks notes; what bounds it is the size of a vault.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use bytes::Bytes;
use imbl::OrdMap;
use table::Snapshot;
use table::materializer::{Budget, Checkpoint, Place, Position, Progress, Published};
use types::{ColumnId, Error, Kind, ROW_ID, Result, RowId, TableDef};

use crate::definition::is_as_defined;
use crate::options::Options;
use crate::parsed::Parsed;
use crate::vault::{Change, File, Known, Vault, Warning};

/// The name of its checkpoints.
pub const NAME: &str = "site";

/// Files of a vault, and their bytes, which it holds in memory.
const FILES_MAX: u64 = 200_000;
const BYTES_MAX: u64 = 2 << 30;
/// Rows are read in parts, so that files do not come all at once.
const READ_ROWS: usize = 256;

/// A vault at one position of its table. What readers get.
#[derive(Clone)]
pub struct Site {
    pub vault: Vault,
    /// Whose rows are in it: deletes come by row id.
    rows: OrdMap<u64, Arc<str>>,
    paths: OrdMap<Arc<str>, u64>,
}

/// Renders the vaults among an engine's tables. All have the same options.
pub struct Materializer {
    empty: Vault,
    parsed: Arc<Parsed>,
}

impl Materializer {
    /// `parsed`: where the feed leaves notes that it has parsed. Fails if the options do.
    pub fn new(options: Options, parsed: Arc<Parsed>) -> Result<Materializer> {
        Ok(Materializer { empty: Vault::new(options)?, parsed })
    }

    /// A site without notes: pages for those who find nothing.
    pub fn empty(&self) -> &Vault {
        &self.empty
    }

    fn known(&self, rows: &Columns<'_>, at: usize) -> Known {
        let path = rows.path.value(at);
        let content: &[u8] = match (rows.source.is_valid(at), rows.bytes.is_valid(at)) {
            (true, _) => rows.source.value(at).as_bytes(),
            (false, true) => rows.bytes.value(at),
            (false, false) => &[],
        };
        let modified = rows.modified.is_valid(at).then(|| rows.modified.value(at).div_euclid(1_000_000));
        Known {
            note: if crate::is_note(path) { self.parsed.take(path, content) } else { None },
            may_publish: rows.published.is_valid(at) && rows.published.value(at),
            file: File { path: path.to_owned(), bytes: Bytes::copy_from_slice(content), modified },
        }
    }
}

impl table::materializer::Materializer for Materializer {
    fn name(&self) -> &'static str {
        NAME
    }

    fn follows(&self, def: &TableDef) -> bool {
        is_as_defined(def)
    }

    fn open(&self, _: &Place, _: &Arc<Snapshot>, _: &Checkpoint) -> Result<Published> {
        Err(Error::not_found("pages are not kept on disk; they are made anew from the vault"))
    }

    fn step(
        &self,
        _: &Place,
        table: &Arc<Snapshot>,
        from: Option<&Arc<Position>>,
        budget: &mut Budget<'_>,
    ) -> Result<Progress> {
        check_size(table)?;
        let begun = from.and_then(|from| Some((&from.checkpoint, from.published::<Site>()?)));
        let last = RowId(table.next_row().0.saturating_sub(1));
        let (mut site, mut row, deleted) = match &begun {
            None => (
                Site { vault: self.empty.clone(), rows: OrdMap::new(), paths: OrdMap::new() },
                RowId(0),
                Vec::new(),
            ),
            Some((checkpoint, site)) => {
                let deleted = deleted(table, checkpoint, site)?;
                if checkpoint.row >= last && deleted.is_empty() {
                    return Ok(Progress::UpToDate);
                }
                (Site::clone(site), checkpoint.row, deleted)
            }
        };
        let mut changes = Vec::new();
        for row in deleted {
            let Some(path) = site.rows.remove(&row.0) else { continue };
            if site.paths.get(&path) == Some(&row.0) {
                site.paths.remove(&path);
                changes.push(Change::Remove(path.to_string()));
            }
        }
        let columns = column_ids(table.def())?;
        let projection = table.projection(&columns)?;
        while row < last {
            let batch = table.scan_from(row.next(), READ_ROWS, &projection)?;
            if batch.num_rows() == 0 {
                // Whatever lies beyond is dead already.
                break;
            }
            let rows = Columns::of(&batch)?;
            for at in 0..batch.num_rows() {
                (budget.tick)(0)?;
                let id = rows.id.value(at) as u64;
                let path: Arc<str> = rows.path.value(at).into();
                site.rows.insert(id, path.clone());
                site.paths.insert(path, id);
                changes.push(match rows.is_withheld(at) {
                    true => Change::Withhold(rows.path.value(at).to_owned()),
                    false => Change::PutKnown(self.known(&rows, at)),
                });
                row = RowId(id);
            }
        }
        let vault = site.vault.try_apply(changes, &mut || (budget.tick)(0))?;
        tell(&vault.news(&site.vault));
        site.vault = vault;
        let checkpoint = Checkpoint { row: last, lsn: table.lsn(), state: Vec::new() };
        Ok(Progress::Advanced(Position::new(checkpoint, Arc::new(site))))
    }

    fn clean(&self, _: &Place, _: &Arc<Position>) -> Result<()> {
        Ok(())
    }

    fn dropped(&self, _: &Place) -> Result<()> {
        Ok(())
    }
}

/// Notes of which one change says something; a vault that is taken in for the first time may have thousands.
const TOLD_MAX: usize = 30;

/// What authors should know goes into the log, a line for each note.
fn tell(news: &[Warning]) {
    for Warning { path, message } in news.iter().take(TOLD_MAX) {
        tracing::warn!("{}: {}", types::name::printable(path), message.replace(char::is_control, " "));
    }
    if news.len() > TOLD_MAX {
        tracing::warn!("and {} more notes have something of the kind", news.len() - TOLD_MAX);
    }
}

fn check_size(table: &Snapshot) -> Result<()> {
    if table.rows() <= FILES_MAX && table.bytes() <= 2 * BYTES_MAX {
        return Ok(());
    }
    let what = format!(
        "the vault has {} files of {} MiB; a site has at most {FILES_MAX} of {} MiB",
        table.rows(),
        table.bytes() >> 20,
        BYTES_MAX >> 20
    );
    Err(Error::new(Kind::TooLarge, what).with("table", &table.def().name))
}

/// Rows of the site that are not live any more.
fn deleted(table: &Snapshot, checkpoint: &Checkpoint, site: &Site) -> Result<Vec<RowId>> {
    match table.deleted_since(checkpoint) {
        Err(error) if error.kind() == Kind::NotFound => {}
        known => {
            return known.map(|rows| rows.into_iter().filter(|row| site.rows.contains_key(&row.0)).collect());
        }
    }
    let mut deleted = Vec::new();
    for row in site.rows.keys() {
        if !table.is_live(RowId(*row))? {
            deleted.push(RowId(*row));
        }
    }
    Ok(deleted)
}

fn column_ids(def: &TableDef) -> Result<Vec<ColumnId>> {
    let id = |name: &str| {
        let column = def.schema.columns.iter().find(|column| column.name == name);
        column.map(|column| column.id).ok_or_else(|| Error::internal(format!("a vault without `{name}`")))
    };
    let mut ids = vec![ROW_ID];
    for name in ["path", "source", "bytes", "published", "modified"] {
        ids.push(id(name)?);
    }
    Ok(ids)
}

struct Columns<'a> {
    id: &'a arrow::array::Int64Array,
    path: &'a StringArray,
    source: &'a StringArray,
    bytes: &'a arrow::array::BinaryArray,
    published: &'a BooleanArray,
    modified: &'a TimestampMicrosecondArray,
}

impl<'a> Columns<'a> {
    fn is_withheld(&self, at: usize) -> bool {
        self.source.is_null(at) && self.bytes.is_null(at) && crate::is_note(self.path.value(at))
    }

    fn of(batch: &'a RecordBatch) -> Result<Columns<'a>> {
        let all = || {
            Some(Columns {
                id: batch.column(0).as_primitive_opt::<Int64Type>()?,
                path: batch.column(1).as_string_opt::<i32>()?,
                source: batch.column(2).as_string_opt::<i32>()?,
                bytes: batch.column(3).as_binary_opt::<i32>()?,
                published: batch.column(4).as_boolean_opt()?,
                modified: batch.column(5).as_primitive_opt::<TimestampMicrosecondType>()?,
            })
        };
        all().ok_or_else(|| Error::internal("a vault's columns are not of their types"))
    }
}
