//! Reads and writes the vault table for the feed.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use engine::{Engine, Mode, Op, Transaction};
use site::{Note, ParsedNotes, PublishRule, Row, is_note};
use table::Snapshot;
use types::{ColumnId, Error, Kind, Principal, Result, Value, name};

use std::sync::atomic::{AtomicBool, Ordering};

use super::tree::{FileChange, StoredContent};

/// Bytes in one commit at most, so that other writers do not wait for a whole large folder.
const COMMIT_BYTES: usize = 16 << 20;
const COMMIT_ROWS: usize = 2_000;
const READ_ROWS: usize = 256;

/// A row that an earlier run wrote.
pub struct StoredRow {
    pub path: String,
    /// The file's content as stored. `None` for a note that was withheld.
    pub stored: Option<StoredContent>,
}

/// Makes the vault if it is missing. Fails if another table has its name.
pub fn ensure(engine: &Engine, table: &str) -> Result<()> {
    match engine.root().table(table) {
        Some(found) if site::has_vault_columns(found.def()) => Ok(()),
        Some(_) => Err(Error::new(
            Kind::Schema,
            format!("there is a table `{}` already, and it is not a vault", name::short_table_name(table)),
        )
        .hint("rename it: the notes of `site.vault` are kept in a table of this name")),
        None => {
            let create = Op::CreateTable { def: site::definition(table)?, if_absent: true };
            engine.commit(&Principal::local(), Transaction::new(vec![create])).map(drop)
        }
    }
}

/// Reads all rows of the table. Also returns corrections for the rows whose `published` differs from the present
/// `rule`.
pub fn stored_rows(table: &Arc<Snapshot>, rule: &PublishRule) -> Result<(Vec<StoredRow>, Vec<FileChange>)> {
    let mut stored_rows = Vec::new();
    let mut differing = Vec::new();
    let def = table.def();
    let id = |name: &str| -> Result<ColumnId> {
        let column = def.schema.columns.iter().find(|column| column.name == name);
        column.map(|column| column.id).ok_or_else(|| Error::internal(format!("a vault without `{name}`")))
    };
    let columns =
        [types::ROW_ID, id("path")?, id("source")?, id("bytes")?, id("published")?, id("modified")?];
    let projection = table.projection(&columns)?;
    let wrong = || Error::internal("a vault's columns are not of their types");
    let mut next = types::RowId(1);
    loop {
        let batch = table.scan_from(next, READ_ROWS, &projection)?;
        if batch.num_rows() == 0 {
            return Ok((stored_rows, differing));
        }
        let ids = batch.column(0).as_primitive_opt::<Int64Type>().ok_or_else(wrong)?;
        let paths = batch.column(1).as_string_opt::<i32>().ok_or_else(wrong)?;
        let sources = batch.column(2).as_string_opt::<i32>().ok_or_else(wrong)?;
        let contents = batch.column(3).as_binary_opt::<i32>().ok_or_else(wrong)?;
        let published = batch.column(4).as_boolean_opt().ok_or_else(wrong)?;
        let modified = batch.column(5).as_primitive_opt::<TimestampMicrosecondType>().ok_or_else(wrong)?;
        for at in 0..batch.num_rows() {
            let path = paths.value(at);
            let is_published = published.is_valid(at) && published.value(at);
            if is_note(path) && sources.is_null(at) && contents.is_null(at) {
                if is_published {
                    differing.push(FileChange::Withhold { path: path.to_owned() });
                }
                stored_rows.push(StoredRow { path: path.to_owned(), stored: None });
                continue;
            }
            let content = match (sources.is_valid(at), contents.is_valid(at)) {
                (true, _) => sources.value(at).as_bytes(),
                (false, true) => contents.value(at),
                (false, false) => &[],
            };
            let modified = modified.is_valid(at).then(|| modified.value(at));
            if is_note(path) && rule.publishes(path, content) != is_published {
                let content = content.to_vec().into();
                differing.push(FileChange::Put { path: path.to_owned(), content, modified });
            }
            let stored = StoredContent { size: content.len() as u64, modified, hash: blake3::hash(content) };
            stored_rows.push(StoredRow { path: path.to_owned(), stored: Some(stored) });
        }
        next = types::RowId(ids.value(batch.num_rows() - 1) as u64 + 1);
    }
}

/// The order in which changes are written. A private note is written before the notes that link to it: while a page is
/// rendered, a note that is missing from the table counts as one that does not exist, and a link to it shows its name
/// (A1). For the same reason removals come last, after any note that may still link to the removed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WritePhase {
    /// Private notes, and other files. Files come before the notes, so that pages that show them are rendered only
    /// once.
    Private,
    Published,
    Removed,
}

impl WritePhase {
    fn of(change: &FileChange, rule: &PublishRule) -> WritePhase {
        match change {
            FileChange::Remove { .. } => WritePhase::Removed,
            FileChange::Put { path, content, .. } if is_note(path) && rule.publishes(path, content) => {
                WritePhase::Published
            }
            FileChange::Put { .. } | FileChange::Withhold { .. } => WritePhase::Private,
        }
    }
}

/// Writes changes in commits of bounded size, and removes the written ones from the list. The rest can be written
/// later, after an error. If private notes cannot be written, published ones must wait too; removals are always tried.
pub fn write(
    engine: &Engine,
    table: &str,
    rule: &PublishRule,
    parsed: &ParsedNotes,
    changes: &mut Vec<FileChange>,
    stopping: &AtomicBool,
) -> Result<u64> {
    let mut by_phase = BTreeMap::<WritePhase, Vec<FileChange>>::new();
    for change in std::mem::take(changes) {
        by_phase.entry(WritePhase::of(&change, rule)).or_default().push(change);
    }
    let mut written = 0;
    let mut failed = None;
    for (phase, mut some) in by_phase {
        while !some.is_empty() && (failed.is_none() || phase == WritePhase::Removed) {
            let count = fitting(&some);
            match commit(engine, table, rule, parsed, &some[..count], stopping) {
                Ok(()) => drop(some.drain(..count)),
                Err(error) => {
                    failed.get_or_insert(error);
                    break;
                }
            }
            written += count as u64;
        }
        changes.append(&mut some);
    }
    failed.map_or(Ok(written), Err)
}

/// Returns the number of changes that fit into one commit.
fn fitting(changes: &[FileChange]) -> usize {
    let mut bytes = 0;
    let fits = |change: &&FileChange| {
        bytes += match change {
            // The row holds the source and the text extracted from it.
            FileChange::Put { content, .. } => 256 + 2 * content.len(),
            FileChange::Withhold { path } | FileChange::Remove { path } => path.len(),
        };
        bytes <= COMMIT_BYTES
    };
    changes.iter().take(COMMIT_ROWS).take_while(fits).count().max(1)
}

/// Commits changes of one turn. They are either rows or removals, since a transaction may change a keyed table only
/// once.
fn commit(
    engine: &Engine,
    table: &str,
    rule: &PublishRule,
    parsed: &ParsedNotes,
    changes: &[FileChange],
    stopping: &AtomicBool,
) -> Result<()> {
    let (mut rows, mut keys) = (Vec::new(), Vec::new());
    for change in changes {
        if stopping.load(Ordering::Acquire) {
            return Err(Error::new(
                Kind::Closed,
                "the feed is stopping; it reads the rest when it starts again",
            ));
        }
        match change {
            FileChange::Put { path, content, modified } => {
                let note = is_note(path).then(|| Arc::new(Note::parse(path, content)));
                rows.push(Row {
                    path: path.clone(),
                    published: note.as_ref().is_some_and(|note| rule.is_published(note)),
                    words: note.as_ref().map(|note| note.public_words()),
                    content: content.clone(),
                    modified: *modified,
                });
                if let Some(note) = note {
                    parsed.put(note, content);
                }
            }
            FileChange::Withhold { path } => rows.push(site::withheld_row(path)),
            FileChange::Remove { path } => keys.push(vec![Value::String(path.clone())]),
        }
    }
    let transaction = if keys.is_empty() {
        Transaction::insert(table, site::batch(&rows)?, Mode::Upsert)
    } else {
        Transaction::new(vec![Op::DeleteKeys { table: table.to_owned(), keys }])
    };
    engine.commit(&Principal::local(), transaction).map(drop)
}
