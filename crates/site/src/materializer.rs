//! The materializer of sites: follows the rows of a vault's table and publishes a [`Site`].
//!
//! It keeps nothing on disk. After a restart it renders the site again from the table, which is fast and avoids
//! trusting stored pages. Until the site is complete, readers are told to try again. A step always takes in all missing
//! rows, so that no reader sees a site that lacks notes; the limits on the size of a vault bound the step.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use bytes::Bytes;
use imbl::OrdMap;
use table::Snapshot;
use table::materializer::{Budget, Checkpoint, MaterializerDir, Position, Progress, Published};
use types::{ColumnId, Error, Kind, ROW_ID, Result, RowId, TableDef};

use crate::definition::has_vault_columns;
use crate::options::Options;
use crate::parsed_notes::ParsedNotes;
use crate::vault::{Change, File, KnownFile, Vault, Warning};

/// The name of the materializer's checkpoints.
pub const NAME: &str = "site";

/// The largest number of files of a vault.
const FILES_MAX: u64 = 200_000;
/// The largest total size of a vault's files in bytes. The site holds them in memory.
const BYTES_MAX: u64 = 2 << 30;
/// Number of rows read at once, so that the files are not all in memory twice.
const READ_ROWS: usize = 256;

/// The published value: a vault at one position of its table.
#[derive(Clone)]
pub struct Site {
    pub vault: Vault,
    /// Path of each row, by row id: the feed of deletes names only row ids.
    rows: OrdMap<u64, Arc<str>>,
    paths: OrdMap<Arc<str>, u64>,
}

/// Renders all vaults among an engine's tables, all with the same options.
pub struct Materializer {
    empty: Vault,
    parsed: Arc<ParsedNotes>,
}

impl Materializer {
    /// Makes a materializer. `parsed` is the cache in which the feed leaves the notes that it has parsed. Fails if the
    /// options are invalid.
    pub fn new(options: Options, parsed: Arc<ParsedNotes>) -> Result<Materializer> {
        Ok(Materializer { empty: Vault::new(options)?, parsed })
    }

    /// Returns a site without notes, whose pages serve readers while there is no vault.
    pub fn empty(&self) -> &Vault {
        &self.empty
    }

    fn known(&self, rows: &VaultColumns<'_>, at: usize) -> KnownFile {
        let path = rows.path.value(at);
        let content: &[u8] = match (rows.source.is_valid(at), rows.bytes.is_valid(at)) {
            (true, _) => rows.source.value(at).as_bytes(),
            (false, true) => rows.bytes.value(at),
            (false, false) => &[],
        };
        let modified = rows.modified.is_valid(at).then(|| rows.modified.value(at).div_euclid(1_000_000));
        KnownFile {
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
        has_vault_columns(def)
    }

    fn open(&self, _: &MaterializerDir, _: &Arc<Snapshot>, _: &Checkpoint) -> Result<Published> {
        Err(Error::not_found("pages are not kept on disk; they are rendered again from the vault"))
    }

    fn step(
        &self,
        _: &MaterializerDir,
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
                // All later rows are dead already.
                break;
            }
            let rows = VaultColumns::of(&batch)?;
            for at in 0..batch.num_rows() {
                (budget.tick)(0)?;
                let id = rows.id.value(at) as u64;
                let path: Arc<str> = rows.path.value(at).into();
                site.rows.insert(id, path.clone());
                site.paths.insert(path, id);
                changes.push(if rows.is_withheld(at) {
                    Change::Withhold(rows.path.value(at).to_owned())
                } else {
                    Change::PutKnown(self.known(&rows, at))
                });
                row = RowId(id);
            }
        }
        let vault = site.vault.try_apply(changes, &mut || (budget.tick)(0))?;
        log_warnings(&vault.new_warnings(&site.vault));
        site.vault = vault;
        let checkpoint = Checkpoint { row: last, lsn: table.lsn(), state: Vec::new() };
        Ok(Progress::Advanced(Position::new(checkpoint, Arc::new(site))))
    }

    fn clean(&self, _: &MaterializerDir, _: &Arc<Position>) -> Result<()> {
        Ok(())
    }

    fn dropped(&self, _: &MaterializerDir) -> Result<()> {
        Ok(())
    }
}

/// The largest number of notes whose warnings one change logs. The first step over a vault may have thousands.
const LOGGED_MAX: usize = 30;

/// Logs the warnings for authors, a line for each note.
fn log_warnings(news: &[Warning]) {
    for Warning { path, message } in news.iter().take(LOGGED_MAX) {
        tracing::warn!("{}: {}", types::name::printable(path), message.replace(char::is_control, " "));
    }
    if news.len() > LOGGED_MAX {
        tracing::warn!("and {} more notes have similar problems", news.len() - LOGGED_MAX);
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

/// Returns the rows of the site that were deleted.
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

struct VaultColumns<'a> {
    id: &'a arrow::array::Int64Array,
    path: &'a StringArray,
    source: &'a StringArray,
    bytes: &'a arrow::array::BinaryArray,
    published: &'a BooleanArray,
    modified: &'a TimestampMicrosecondArray,
}

impl<'a> VaultColumns<'a> {
    fn is_withheld(&self, at: usize) -> bool {
        self.source.is_null(at) && self.bytes.is_null(at) && crate::is_note(self.path.value(at))
    }

    fn of(batch: &'a RecordBatch) -> Result<VaultColumns<'a>> {
        let all = || {
            Some(VaultColumns {
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
