//! What other programs ask of a lake: to take files that they wrote in the place of its own, with the same rows.
//!
//! Whoever is asked first (the catalog) hands a [`Replace`] to the lake that it found ([`Lake::offer`]); the materializer's
//! next step looks at it, so that it is in order with the lake's own commits, and tells what became of it. It commits nothing
//! while somebody is told that nothing happened, and the other way round: [`Outcome`].

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;
use types::{Error, Result, TableId, name};
use vfs::{Mutex, Rank};

use crate::state::Lake;

/// A commit of another program that says it replaces files and no rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Replace {
    pub snapshot_id: i64,
    pub parent: Option<i64>,
    pub sequence: i64,
    /// Names the files that the table is to have.
    pub manifest_list: String,
    /// What the program says of the commit.
    pub summary: BTreeMap<String, String>,
    /// What has to hold of the table.
    pub requirements: Vec<Json>,
}

/// What became of it.
#[derive(Debug)]
pub enum Outcome {
    /// It is there, in the metadata file of this number and those after it.
    Taken(u64),
    /// Nothing was committed. [`types::Kind::Conflict`] says what is wrong with it.
    Refused(Error),
    /// Nobody knows.
    Unknown(Error),
}

/// Hears what became of it, once, and must not wait for anything there.
pub type Heard = Box<dyn FnOnce(Outcome) + Send>;

impl Replace {
    /// Reads a commit to a table that Polynya writes. `None`: it adds no snapshot. [`types::Kind::Conflict`] if it does what
    /// nobody else may, with the reason; [`types::Kind::Invalid`] if it is none.
    pub fn parse(requirements: &[Json], updates: &[Json]) -> Result<Option<Replace>> {
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
                "set-snapshot-ref" => return Err(Error::conflict("it has the branch `main` and no other")),
                other => {
                    let other = name::printable(other);
                    return Err(Error::conflict(format!(
                        "`{other}` cannot come with a replacement of files"
                    )));
                }
            }
        }
        if !is_main {
            return Err(Error::conflict("a snapshot beside the branch `main` is not kept there"));
        }
        let texts = snapshot["summary"].as_object().into_iter().flatten();
        Ok(Some(Replace {
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

/// Commits that wait for a step, of one table and of all.
const OF_TABLE_MAX: usize = 8;
const OF_ALL_MAX: usize = 64;

/// What waits to be looked at, oldest first.
pub(crate) struct Offers(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    by_table: BTreeMap<TableId, VecDeque<Offer>>,
    last: u64,
}

struct Offer {
    number: u64,
    replace: Arc<Replace>,
    heard: Heard,
    /// A step has begun with it: it may be there.
    is_begun: bool,
}

impl Default for Offers {
    fn default() -> Self {
        Offers(Mutex::new(Rank::new(67, "lake offers"), Waiting::default()))
    }
}

impl fmt::Debug for Offers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.lock().by_table.keys()).finish()
    }
}

impl Offers {
    fn add(&self, table: TableId, replace: Replace, heard: Heard) -> Result<u64> {
        let mut waiting = self.0.lock();
        let all: usize = waiting.by_table.values().map(VecDeque::len).sum();
        let of_table = waiting.by_table.get(&table).map_or(0, VecDeque::len);
        if of_table >= OF_TABLE_MAX || all >= OF_ALL_MAX {
            return Err(Error::new(types::Kind::Busy, "too many commits wait for the lake"));
        }
        waiting.last += 1;
        let number = waiting.last;
        let offer = Offer { number, replace: Arc::new(replace), heard, is_begun: false };
        waiting.by_table.entry(table).or_default().push_back(offer);
        Ok(number)
    }

    /// Takes one back; false if a step has begun with it, or it is answered already.
    fn withdraw(&self, table: TableId, number: u64) -> bool {
        self.remove(table, number).is_some_and(|offer| !offer.is_begun)
    }

    fn remove(&self, table: TableId, number: u64) -> Option<Offer> {
        let mut waiting = self.0.lock();
        let offers = waiting.by_table.get_mut(&table)?;
        let offer = offers.iter().position(|offer| offer.number == number).and_then(|at| offers.remove(at));
        if offers.is_empty() {
            waiting.by_table.remove(&table);
        }
        offer
    }

    pub fn is_asked(&self, table: TableId) -> bool {
        self.0.lock().by_table.contains_key(&table)
    }

    /// The oldest, which a step begins with now.
    pub fn begin(&self, table: TableId) -> Option<(u64, Arc<Replace>)> {
        let mut waiting = self.0.lock();
        let offer = waiting.by_table.get_mut(&table)?.front_mut()?;
        offer.is_begun = true;
        Some((offer.number, offer.replace.clone()))
    }

    /// Tells what became of one.
    pub fn end(&self, table: TableId, number: u64, outcome: Outcome) {
        if let Some(offer) = self.remove(table, number) {
            (offer.heard)(outcome);
        }
    }

    /// A step failed. Those that no step began with are told; of the others a later step finds out.
    pub fn fail(&self, table: TableId, error: &Error) {
        for offer in self.take(table, |offer| !offer.is_begun) {
            (offer.heard)(Outcome::Refused(error.clone()));
        }
    }

    /// The table has no lake any more.
    pub fn drop_of(&self, table: TableId, error: &Error) {
        for offer in self.take(table, |_| true) {
            let outcome = if offer.is_begun { Outcome::Unknown } else { Outcome::Refused };
            (offer.heard)(outcome(error.clone()));
        }
    }

    fn take(&self, table: TableId, is_meant: impl Fn(&Offer) -> bool) -> Vec<Offer> {
        let mut waiting = self.0.lock();
        let Some(offers) = waiting.by_table.remove(&table) else { return Vec::new() };
        let (taken, left): (Vec<Offer>, VecDeque<Offer>) =
            offers.into_iter().fold(Default::default(), |(mut taken, mut left), offer| {
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

/// A commit that was offered and may be taken back.
#[derive(Debug)]
pub struct Offered {
    offers: Arc<Offers>,
    table: TableId,
    number: u64,
}

impl Offered {
    /// Whether it certainly never happens.
    pub fn withdraw(&self) -> bool {
        self.offers.withdraw(self.table, self.number)
    }
}

impl Lake {
    /// Asks that another program's files take the place of this lake's. The engine then has to be hurried
    /// (`Engine::hurry`), so that a step looks. [`types::Kind::Busy`]: too many ask already.
    pub fn offer(&self, replace: Replace, heard: Heard) -> Result<Offered> {
        let table = self.metadata.table_id().unwrap_or_default();
        let number = self.offers.add(table, replace, heard)?;
        Ok(Offered { offers: self.offers.clone(), table, number })
    }

    /// Whether a commit of another program is in the table, or was lately: its answer may have been lost, and it is sent
    /// again. Ids of snapshots are drawn at random.
    pub fn has_taken(&self, snapshot_id: i64) -> bool {
        self.metadata.taken().any(|taken| taken == snapshot_id)
    }
}
