//! Progress of each materializer in each table, and how its lag slows writers.
//!
//! It is read without a lock and written by the threads that do the work.

use std::sync::Arc;
use std::time::Duration;

use table::Snapshot;
use table::materializer::{Materializer, Position};
use types::{Error, Kind, Lsn, RowId, TableDef, TableId, name};

use crate::database_root::DatabaseRoot;
use crate::engine::Engine;
use crate::shared_state::Shared;

/// Lag from which on writers are slowed, as a share of the rows that readers may take in themselves.
const LAG_SOFT: f64 = 0.5;
/// Longest pause of a writer for lag alone: about one step of a materializer.
const LAG_PACE_MAX: Duration = Duration::from_secs(1);

/// Progress of a materializer in a table.
#[derive(Clone, Debug)]
pub struct MaterializerProgress {
    pub materializer: &'static str,
    pub state: MaterializerPhase,
    /// The last row taken in, and the lsn up to which the table was read; zeros before the first step.
    pub row: RowId,
    pub lsn: Lsn,
    /// Number of row ids assigned since. Some of their rows may be deleted again.
    pub missing: u64,
    /// Its [`Materializer::lag`].
    pub lag: f64,
    /// Error of its last step, if that failed; the step is retried.
    pub error: Option<Error>,
    /// Number of steps that failed since the database was opened. It tells a new failure from the one before.
    pub failures: u64,
}

/// Phase of a materializer's work on a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaterializerPhase {
    /// It has not caught up since it began.
    Building,
    /// It has caught up once, and follows.
    Following,
}

impl MaterializerPhase {
    pub fn name(self) -> &'static str {
        match self {
            MaterializerPhase::Building => "building",
            MaterializerPhase::Following => "following",
        }
    }
}

/// Facts about one materializer in one table, kept beside its position.
#[derive(Clone, Debug, Default)]
pub(crate) struct MaterializerNote {
    /// True once it has caught up since it began: from then on its lag slows writers.
    steady: bool,
    error: Option<Error>,
    failures: u64,
}

pub(crate) type MaterializerNotes = imbl::OrdMap<(TableId, &'static str), MaterializerNote>;

impl Shared {
    /// Notes that the materializers of a table may have to begin again.
    pub fn note_unsteady(&self, table: TableId) {
        self.change_notes(|notes| {
            let changed = |(pair, note): (&(TableId, &'static str), &MaterializerNote)| {
                let steady = note.steady && pair.0 != table;
                (*pair, MaterializerNote { steady, ..note.clone() })
            };
            *notes = notes.iter().map(changed).collect();
        });
    }

    /// Notes that a table has no rows. Its materializers have nothing to build, so they have caught up, and their lag counts
    /// from the first row on.
    pub fn note_empty(&self, def: &TableDef) {
        for materializer in self.materializers.load().iter().filter(|m| m.follows(def)) {
            let pair = (def.id, materializer.name());
            self.change_notes(|notes| {
                drop(notes.insert(pair, MaterializerNote { steady: true, ..MaterializerNote::default() }))
            });
        }
    }

    pub fn forget_note(&self, table: TableId, materializer: &'static str) {
        if self.notes.load().contains_key(&(table, materializer)) {
            self.change_notes(|notes| drop(notes.remove(&(table, materializer))));
        }
    }

    /// Records that a step moved a materializer of `table` from `before` to `now`.
    pub fn note_step(
        &self,
        materializer: &dyn Materializer,
        table: &Snapshot,
        before: Option<&Position>,
        now: Option<&Position>,
    ) {
        let begun_anew =
            before.zip(now).is_some_and(|(before, now)| now.checkpoint.row < before.checkpoint.row);
        let caught_up = now.is_some_and(|now| {
            now.checkpoint.missing(table) <= self.options.step_rows as u64
                && materializer.lag(table, now) <= LAG_SOFT
        });
        let pair = (table.def().id, materializer.name());
        let known = self.notes.load().get(&pair).cloned().unwrap_or_default();
        let steady = caught_up || known.steady && !begun_anew;
        if known.error.is_some() || known.steady != steady {
            if known.error.is_some() {
                tracing::info!("`{}` of table {} goes on", pair.1, name::short_table_name(&table.def().name));
            }
            let note = MaterializerNote { steady, error: None, ..known };
            self.change_notes(|notes| drop(notes.insert(pair, note.clone())));
        }
    }

    /// Records a failed step. The materializer no longer counts as following: its lag may grow for ever, and writers must
    /// not wait for it. As during a first build, this lasts until it has caught up.
    pub fn note_failure(&self, table: &TableDef, materializer: &'static str, error: &Error) {
        let known = self.notes.load().get(&(table.id, materializer)).and_then(|note| note.error.clone());
        // Logged once for all attempts, unless the kind of failure changes.
        if known.is_none_or(|known| known.kind() != error.kind()) {
            let place = name::short_table_name(&table.name);
            match error.kind() {
                Kind::DiskFull => tracing::warn!("`{materializer}` of table {place} waits for room: {error}"),
                _ => tracing::warn!("`{materializer}` of table {place} failed and is tried again: {error}"),
            }
        }
        let table = table.id;
        self.change_notes(|notes| {
            let failures = notes.get(&(table, materializer)).map_or(0, |note| note.failures) + 1;
            let note = MaterializerNote { steady: false, error: Some(error.clone()), failures };
            notes.insert((table, materializer), note);
        });
    }

    fn change_notes(&self, change: impl Fn(&mut MaterializerNotes)) {
        self.notes.rcu(|notes| {
            let mut notes = MaterializerNotes::clone(notes);
            change(&mut notes);
            notes
        });
    }

    /// Returns the greatest lag of the materializers that follow a table steadily, and the name of that materializer.
    fn lag(&self, root: &DatabaseRoot, table: &Snapshot) -> Option<(f64, &'static str)> {
        let notes = self.notes.load();
        // There are no notes where nothing derives from tables.
        if notes.is_empty() {
            return None;
        }
        let id = table.def().id;
        let materializers = self.materializers.load();
        let lag = |materializer: &Arc<dyn Materializer>| {
            let name = materializer.name();
            notes.get(&(id, name)).filter(|note| note.steady)?;
            Some((materializer.lag(table, root.derived(name, id)?), name))
        };
        materializers.iter().filter_map(lag).max_by(|a, b| a.0.total_cmp(&b.0))
    }
}

/// Finds a table by its exact name, full or short. A name in another case finds nothing: its writer is neither slowed nor
/// refused.
fn find<'r>(root: &'r DatabaseRoot, table: &str) -> Option<&'r Arc<Snapshot>> {
    root.table(table).or_else(|| root.table(&name::full_table_name(table).ok()?))
}

impl Engine {
    /// Returns [`Engine::pace`] for a writer of one table, `[namespace.]table`, or a longer pause if a materializer of the
    /// table lags.
    pub fn pace_of(&self, table: &str) -> Duration {
        let pace = self.pace();
        if self.shared().notes.load().is_empty() {
            return pace;
        }
        let root = self.root();
        let Some(lag) = find(&root, table).and_then(|table| self.shared().lag(&root, table)) else {
            return pace;
        };
        let excess = ((lag.0 - LAG_SOFT) / (1.0 - LAG_SOFT)).clamp(0.0, 1.0);
        pace.max(LAG_PACE_MAX.mul_f64(excess * excess))
    }

    /// Fails with [`Kind::Busy`] if readers would have to take in more rows of a table themselves than they may.
    pub(crate) fn check_lag(&self, root: &DatabaseRoot, table: &str) -> types::Result<()> {
        if self.shared().notes.load().is_empty() {
            return Ok(());
        }
        let Some(found) = find(root, table) else { return Ok(()) };
        match self.shared().lag(root, found) {
            Some((lag, materializer)) if lag >= 1.0 => {
                self.shared().counters.refused_lag.add(1);
                Err(Error::new(Kind::Busy, format!("rows come faster than `{materializer}` takes them in"))
                    .with("table", name::short_table_name(&found.def().name))
                    .hint("send it again a little later"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the progress of all materializers that follow a table, in the newest root.
    pub fn materializer_progress(&self, table: &Snapshot) -> Vec<MaterializerProgress> {
        let shared = self.shared();
        let root = self.root();
        let (notes, materializers) = (shared.notes.load(), shared.materializers.load());
        let def = table.def();
        let progress = |materializer: &Arc<dyn Materializer>| {
            let name = materializer.name();
            let position = root.derived(name, def.id);
            let note = notes.get(&(def.id, name)).cloned().unwrap_or_default();
            let next = table.next_row().0 - 1;
            let (row, lsn) = position.map_or((RowId(0), Lsn(0)), |p| (p.checkpoint.row, p.checkpoint.lsn));
            MaterializerProgress {
                materializer: name,
                state: if note.steady { MaterializerPhase::Following } else { MaterializerPhase::Building },
                row,
                lsn,
                missing: next.saturating_sub(row.0),
                lag: position.map_or(0.0, |position| materializer.lag(table, position)),
                error: note.error,
                failures: note.failures,
            }
        };
        materializers.iter().filter(|m| m.follows(def)).map(progress).collect()
    }
}
