//! Offers of other programs to replace files of a lake by files with the same rows.
//!
//! The catalog receives such a commit and offers it as a [`Replacement`] to the lake that it found ([`Lake::offer`]). The next
//! step of the materializer looks at it, so that it is ordered with the lake's own commits, and reports an [`ReplacementOutcome`]. The
//! outcome is reliable: a refused replacement is never committed later, and a committed one is never reported as refused.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;
use types::{Error, Result, TableId, name};
use vfs::{Mutex, Rank};

use crate::state::Lake;

/// A commit of another program that claims to replace files without changing rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Replacement {
    pub snapshot_id: i64,
    pub parent: Option<i64>,
    pub sequence: i64,
    /// Path of the manifest list with the files that the table is to have.
    pub manifest_list: String,
    /// The snapshot's summary as the program wrote it.
    pub summary: BTreeMap<String, String>,
    /// The conditions of the commit, as in the catalog's protocol.
    pub requirements: Vec<Json>,
}

/// The outcome of an offered replacement.
#[derive(Debug)]
pub enum ReplacementOutcome {
    /// Committed: in the metadata file of this version and later ones.
    Committed(u64),
    /// Refused; no snapshot was committed. An error of kind [`types::Kind::Conflict`] gives the reason.
    Refused(Error),
    /// The outcome is not known.
    Unknown(Error),
}

/// Callback that receives the outcome once. It must not block.
pub type OutcomeCallback = Box<dyn FnOnce(ReplacementOutcome) + Send>;

impl Replacement {
    /// Parses a commit to a table that Polynya writes. Returns `None` if it adds no snapshot. Fails with
    /// [`types::Kind::Conflict`] and a reason if it does something that only Polynya may do, and with
    /// [`types::Kind::Invalid`] if it is malformed.
    pub fn parse(requirements: &[Json], updates: &[Json]) -> Result<Option<Replacement>> {
        let mut added = updates.iter().filter(|update| update["action"] == "add-snapshot");
        let Some(update) = added.next() else { return Ok(None) };
        let snapshot = &update["snapshot"];
        let operation = snapshot["summary"]["operation"].as_str().unwrap_or("snapshot");
        if operation != "replace" {
            return Err(Error::conflict(format!(
                "`{}` cannot be committed to it here",
                name::printable(operation)
            )));
        }
        let lacks = |key: &str| Error::invalid(format!("the snapshot has no `{key}`"));
        let number = |key: &str| snapshot[key].as_i64().ok_or_else(|| lacks(key));
        let id = number("snapshot-id")?;
        let list = snapshot["manifest-list"].as_str().ok_or_else(|| lacks("manifest-list"))?;
        let is_of_v3 = ["first-row-id", "added-rows", "key-id"].iter().any(|key| !snapshot[*key].is_null());
        if added.next().is_some() || is_of_v3 {
            return Err(Error::conflict("a commit replaces files by one snapshot of format version 2"));
        }
        let mut is_main = false;
        for update in updates.iter().filter(|update| update["action"] != "add-snapshot") {
            let action = update["action"].as_str().unwrap_or_default();
            let retention = ["max-ref-age-ms", "max-snapshot-age-ms", "min-snapshots-to-keep"];
            let is_plain = update["type"].as_str().is_none_or(|kind| kind == "branch")
                && retention.iter().all(|key| update[*key].is_null());
            match action {
                "set-snapshot-ref"
                    if update["ref-name"] == "main"
                        && update["snapshot-id"].as_i64() == Some(id)
                        && is_plain =>
                {
                    is_main = true;
                }
                "set-snapshot-ref" => return Err(Error::conflict("it has only the branch `main`")),
                other => {
                    let other = name::printable(other);
                    return Err(Error::conflict(format!(
                        "`{other}` cannot come with a replacement of files"
                    )));
                }
            }
        }
        if !is_main {
            return Err(Error::conflict("only snapshots on the branch `main` are kept there"));
        }
        let texts = snapshot["summary"].as_object().into_iter().flatten();
        Ok(Some(Replacement {
            snapshot_id: id,
            parent: snapshot["parent-snapshot-id"].as_i64().filter(|id| *id != -1),
            sequence: number("sequence-number")?,
            manifest_list: list.to_owned(),
            summary: texts
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
            requirements: requirements.to_vec(),
        }))
    }
}

/// Commits that wait for a step, of one table and of all tables, at most.
const WAITING_PER_TABLE_MAX: usize = 8;
const WAITING_MAX: usize = 64;

/// Offers that wait for a step, the oldest first.
pub(crate) struct ReplacementQueue(Mutex<QueueState>);

#[derive(Default)]
struct QueueState {
    by_table: BTreeMap<TableId, VecDeque<QueuedReplacement>>,
    last: u64,
}

struct QueuedReplacement {
    number: u64,
    replacement: Arc<Replacement>,
    callback: OutcomeCallback,
    /// True if a step has begun with it, so it may be committed.
    is_begun: bool,
}

impl Default for ReplacementQueue {
    fn default() -> Self {
        ReplacementQueue(Mutex::new(Rank::new(73, "lake offers"), QueueState::default()))
    }
}

impl fmt::Debug for ReplacementQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.lock().by_table.keys()).finish()
    }
}

impl ReplacementQueue {
    fn add(&self, table: TableId, replacement: Replacement, callback: OutcomeCallback) -> Result<u64> {
        let mut waiting = self.0.lock();
        let all: usize = waiting.by_table.values().map(VecDeque::len).sum();
        let of_table = waiting.by_table.get(&table).map_or(0, VecDeque::len);
        if of_table >= WAITING_PER_TABLE_MAX || all >= WAITING_MAX {
            return Err(Error::new(types::Kind::Busy, "too many commits wait for the lake"));
        }
        waiting.last += 1;
        let number = waiting.last;
        let offer =
            QueuedReplacement { number, replacement: Arc::new(replacement), callback, is_begun: false };
        waiting.by_table.entry(table).or_default().push_back(offer);
        Ok(number)
    }

    /// Removes an offer. Returns false if a step has begun with it or it was answered already.
    fn withdraw(&self, table: TableId, number: u64) -> bool {
        self.remove(table, number).is_some_and(|offer| !offer.is_begun)
    }

    fn remove(&self, table: TableId, number: u64) -> Option<QueuedReplacement> {
        let mut waiting = self.0.lock();
        let replacements = waiting.by_table.get_mut(&table)?;
        let offer = replacements
            .iter()
            .position(|offer| offer.number == number)
            .and_then(|at| replacements.remove(at));
        if replacements.is_empty() {
            waiting.by_table.remove(&table);
        }
        offer
    }

    pub fn is_requested(&self, table: TableId) -> bool {
        self.0.lock().by_table.contains_key(&table)
    }

    /// Returns the oldest offer, and marks it as begun.
    pub fn begin(&self, table: TableId) -> Option<(u64, Arc<Replacement>)> {
        let mut waiting = self.0.lock();
        let offer = waiting.by_table.get_mut(&table)?.front_mut()?;
        offer.is_begun = true;
        Some((offer.number, offer.replacement.clone()))
    }

    /// Ends an offer with its outcome.
    pub fn end(&self, table: TableId, number: u64, outcome: ReplacementOutcome) {
        if let Some(offer) = self.remove(table, number) {
            (offer.callback)(outcome);
        }
    }

    /// Refuses the offers that no step has begun with, after a failed step. A later step determines the outcome of the
    /// others.
    pub fn fail(&self, table: TableId, error: &Error) {
        for offer in self.take(table, |offer| !offer.is_begun) {
            (offer.callback)(ReplacementOutcome::Refused(error.clone()));
        }
    }

    /// Ends all offers for a table whose lake is gone.
    pub fn end_all(&self, table: TableId, error: &Error) {
        for offer in self.take(table, |_| true) {
            let outcome =
                if offer.is_begun { ReplacementOutcome::Unknown } else { ReplacementOutcome::Refused };
            (offer.callback)(outcome(error.clone()));
        }
    }

    fn take(&self, table: TableId, is_meant: impl Fn(&QueuedReplacement) -> bool) -> Vec<QueuedReplacement> {
        let mut waiting = self.0.lock();
        let Some(replacements) = waiting.by_table.remove(&table) else { return Vec::new() };
        let (taken, left): (Vec<QueuedReplacement>, VecDeque<QueuedReplacement>) =
            replacements.into_iter().fold(Default::default(), |(mut taken, mut left), offer| {
                if is_meant(&offer) {
                    taken.push(offer)
                } else {
                    left.push_back(offer)
                }
                (taken, left)
            });
        if !left.is_empty() {
            waiting.by_table.insert(table, left);
        }
        taken
    }
}

/// An offered commit that may be withdrawn.
#[derive(Debug)]
pub struct PendingReplacement {
    replacements: Arc<ReplacementQueue>,
    table: TableId,
    number: u64,
}

impl PendingReplacement {
    /// Withdraws the offer. Returns true if it will certainly never be committed.
    pub fn withdraw(&self) -> bool {
        self.replacements.withdraw(self.table, self.number)
    }
}

impl Lake {
    /// Offers to replace files of this lake by those of another program. The caller then has to hurry the engine
    /// (`Engine::hurry`), so that a step looks at it. Fails with [`types::Kind::Busy`] if too many offers wait.
    pub fn offer(&self, replacement: Replacement, callback: OutcomeCallback) -> Result<PendingReplacement> {
        let table = self.metadata.table_id().unwrap_or_default();
        let number = self.replacements.add(table, replacement, callback)?;
        Ok(PendingReplacement { replacements: self.replacements.clone(), table, number })
    }

    /// Returns true if the table has, or recently had, this snapshot of another program: the program repeats a commit whose
    /// answer was lost. Snapshot ids are random, so an equal id means the same commit.
    pub fn has_adopted(&self, snapshot_id: i64) -> bool {
        self.metadata.adopted().any(|adopted| adopted == snapshot_id)
    }
}
