//! Commits of others to tables that Polynya writes. They may write files anew; the lake looks whether the rows are the same,
//! and commits in order with what it does itself. Until it has looked a request waits, and holds no thread.
//!
//! Clients remove their files when they are told that a commit failed. So that is told only of what certainly did not happen
//! and will not; of all else, that nobody knows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lake::{Offered, Outcome, Replace};
use types::{Error, Kind, Principal};

use super::commit::{Commit, own_commit_refused};
use super::names::Ident;
use super::problem::{Problem, Result};
use super::service::Catalog;
use super::tables::{Found, Loaded};

/// How long the lake may take to look: it reads all that is replaced, and what it does before.
const LOOK_MAX: Duration = Duration::from_secs(600);
/// And to show what it committed, which is done already.
const SHOW_MAX: Duration = Duration::from_secs(30);
const SHOW_EVERY: Duration = Duration::from_millis(10);

/// A commit that waits for the lake.
struct Waiting {
    table: Arc<table::Snapshot>,
    snapshot_id: i64,
    offered: Offered,
    outcome: tokio::sync::oneshot::Receiver<Outcome>,
}

enum Begun {
    /// It is there already.
    Done(Loaded),
    Waits(Waiting),
    /// It is of another kind.
    No(Commit),
}

impl Catalog {
    /// Carries out all of the commits or none. Returns each table as it stands then.
    pub async fn commit_all(
        self: &Arc<Self>,
        principal: Arc<Principal>,
        mut commits: Vec<Commit>,
    ) -> Result<Vec<Loaded>> {
        if commits.len() == 1
            && let Some(commit) = commits.pop()
        {
            let (ident, asker) = (commit.ident.clone(), principal.clone());
            match self.run(move |catalog| catalog.offer(&asker, commit)).await? {
                Begun::Done(loaded) => return Ok(vec![loaded]),
                Begun::Waits(waiting) => return Ok(vec![self.answered(&ident, waiting).await?]),
                Begun::No(commit) => commits.push(commit),
            }
        }
        self.run(move |catalog| catalog.commit(&principal, &commits)).await
    }

    /// Offers a commit to the lake if it replaces files of a table that Polynya writes.
    fn offer(&self, principal: &Principal, commit: Commit) -> Result<Begun> {
        if commit.creates {
            return Ok(Begun::No(commit));
        }
        let Found::Own(table) = self.find(&self.state(), principal, &commit.ident)? else {
            return Ok(Begun::No(commit));
        };
        let replace = Replace::parse(&commit.requirements, &commit.updates);
        let of_own = |error: Error| match error.kind() {
            Kind::Conflict => own_commit_refused(&commit.ident, error.message()),
            _ => error.into(),
        };
        let Some(replace) = replace.map_err(of_own)? else {
            return Ok(Begun::No(commit));
        };
        let lake = self.lake_of(&table)?;
        let snapshot_id = replace.snapshot_id;
        if lake.has_taken(snapshot_id) {
            return shown(&lake).map(Begun::Done);
        }
        let (tell, outcome) = tokio::sync::oneshot::channel();
        // Whoever asked may have gone.
        let heard = Box::new(move |told| drop(tell.send(told)));
        let offered = lake.offer(replace, heard)?;
        self.engine.hurry(lake::NAME, table.def().id);
        Ok(Begun::Waits(Waiting { table, snapshot_id, offered, outcome }))
    }

    async fn answered(self: &Arc<Self>, ident: &Ident, waiting: Waiting) -> Result<Loaded> {
        let Waiting { table, snapshot_id, offered, mut outcome } = waiting;
        let told = match tokio::time::timeout(LOOK_MAX, &mut outcome).await {
            Ok(told) => told.ok(),
            Err(_) if offered.withdraw() => {
                return Err(Error::new(Kind::Busy, "the lake has not come to it").into());
            }
            // It may have been told just now.
            Err(_) => outcome.try_recv().ok(),
        };
        match told {
            Some(Outcome::Taken(version)) => {
                let shows = move |catalog: &Catalog| catalog.shows(&table, snapshot_id, version);
                // It is there, whatever keeps it from being shown.
                let unknown = || Problem::unknown(&Error::new(Kind::Timeout, "the commit is not shown yet"));
                self.run(shows).await.map_err(|_| unknown())
            }
            Some(Outcome::Refused(error)) => Err(refused(ident, error)),
            Some(Outcome::Unknown(error)) => Err(Problem::unknown(&error)),
            None => {
                Err(Problem::unknown(&Error::new(Kind::Timeout, "the lake has not said what became of it")))
            }
        }
    }

    /// Waits until everybody sees a commit of the lake: whoever made it asks for the table next.
    fn shows(&self, table: &table::Snapshot, snapshot_id: i64, version: u64) -> Result<Loaded> {
        let begun = Instant::now();
        loop {
            let lsn = self.engine.root().lsn();
            let lake = self.lake_of(table)?;
            if lake.version >= version && lake.has_taken(snapshot_id) {
                return shown(&lake);
            }
            if begun.elapsed() > SHOW_MAX {
                return Err(Error::new(Kind::Timeout, "the lake does not show its commit").into());
            }
            self.engine.wait_for_commit(lsn, SHOW_EVERY)?;
        }
    }
}

fn shown(lake: &lake::Lake) -> Result<Loaded> {
    let table = lake::catalog::Table::parse(&lake.metadata.to_bytes()?)?;
    Ok(Loaded::of(&table, lake.metadata_location())?)
}

fn refused(ident: &Ident, error: Error) -> Problem {
    match error.kind() {
        Kind::Conflict => Problem::conflict(format!("{ident}: {}", error.message())),
        _ => error.into(),
    }
}
