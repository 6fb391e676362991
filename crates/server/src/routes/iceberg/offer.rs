//! Commits by other engines to tables that Polynya writes. They may replace files by others with the same rows. The lake checks
//! that the rows are equal and commits the replacement in order with its own commits. The request waits for this without holding
//! a thread.
//!
//! A client deletes its files when it is told that its commit failed. So a failure is reported only if the commit certainly did
//! not happen and will not. In all other cases the answer is that the state is unknown.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lake::{PendingReplacement, Replacement, ReplacementOutcome};
use types::{Error, Kind, Principal};

use super::commit::{Commit, own_commit_refused};
use super::names::Ident;
use super::problem::{Problem, Result};
use super::service::Catalog;
use super::tables::{FoundTable, LoadedMetadata};

/// Time that the lake may take to check an offer: it reads all files that are replaced, after the work that is queued before.
const LOOK_MAX: Duration = Duration::from_secs(600);
/// Time until the lake publishes a commit that it has made.
const SHOW_MAX: Duration = Duration::from_secs(30);
const SHOW_EVERY: Duration = Duration::from_millis(10);

/// A commit that waits for the lake's decision.
struct PendingOffer {
    table: Arc<table::Snapshot>,
    snapshot_id: i64,
    offered: PendingReplacement,
    outcome: tokio::sync::oneshot::Receiver<ReplacementOutcome>,
}

enum OfferOutcome {
    /// The lake has already made this commit.
    Committed(LoadedMetadata),
    Pending(PendingOffer),
    /// The commit is not a replacement of files in a table of Polynya's own.
    NotApplicable(Commit),
}

impl Catalog {
    /// Carries out all commits or none. Returns the resulting state of each table.
    pub async fn commit_all(
        self: &Arc<Self>,
        principal: Arc<Principal>,
        mut commits: Vec<Commit>,
    ) -> Result<Vec<LoadedMetadata>> {
        if commits.len() == 1
            && let Some(commit) = commits.pop()
        {
            let (ident, asker) = (commit.ident.clone(), principal.clone());
            match self.run(move |catalog| catalog.offer(&asker, commit)).await? {
                OfferOutcome::Committed(loaded) => return Ok(vec![loaded]),
                OfferOutcome::Pending(pending) => {
                    return Ok(vec![self.wait_for_decision(&ident, pending).await?]);
                }
                OfferOutcome::NotApplicable(commit) => commits.push(commit),
            }
        }
        self.run(move |catalog| catalog.commit(&principal, &commits)).await
    }

    /// Offers a commit to the lake if it replaces files of a table that Polynya writes.
    fn offer(&self, principal: &Principal, commit: Commit) -> Result<OfferOutcome> {
        if commit.creates {
            return Ok(OfferOutcome::NotApplicable(commit));
        }
        let FoundTable::Own(table) = self.find(&self.state(), principal, &commit.ident)? else {
            return Ok(OfferOutcome::NotApplicable(commit));
        };
        let replace = Replacement::parse(&commit.requirements, &commit.updates);
        let of_own = |error: Error| match error.kind() {
            Kind::Conflict => own_commit_refused(&commit.ident, error.message()),
            _ => error.into(),
        };
        let Some(replace) = replace.map_err(of_own)? else {
            return Ok(OfferOutcome::NotApplicable(commit));
        };
        let lake = self.lake_of(&table)?;
        let snapshot_id = replace.snapshot_id;
        if lake.has_adopted(snapshot_id) {
            return load_lake(&lake).map(OfferOutcome::Committed);
        }
        let (sender, outcome) = tokio::sync::oneshot::channel();
        // The send fails if the client is gone.
        let notify = Box::new(move |result| drop(sender.send(result)));
        let offered = lake.offer(replace, notify)?;
        self.engine.hurry(lake::NAME, table.def().id);
        Ok(OfferOutcome::Pending(PendingOffer { table, snapshot_id, offered, outcome }))
    }

    async fn wait_for_decision(
        self: &Arc<Self>,
        ident: &Ident,
        pending: PendingOffer,
    ) -> Result<LoadedMetadata> {
        let PendingOffer { table, snapshot_id, offered, mut outcome } = pending;
        let result = match tokio::time::timeout(LOOK_MAX, &mut outcome).await {
            Ok(result) => result.ok(),
            Err(_) if offered.withdraw() => {
                return Err(Error::new(Kind::Busy, "the lake has not processed the commit").into());
            }
            // The outcome may have arrived just now.
            Err(_) => outcome.try_recv().ok(),
        };
        match result {
            Some(ReplacementOutcome::Committed(version)) => {
                let wait_until_visible =
                    move |catalog: &Catalog| catalog.wait_until_visible(&table, snapshot_id, version);
                // The commit exists, even if it cannot be shown.
                let unknown = || Problem::unknown(&Error::new(Kind::Timeout, "the commit is not shown yet"));
                self.run(wait_until_visible).await.map_err(|_| unknown())
            }
            Some(ReplacementOutcome::Refused(error)) => Err(refused(ident, error)),
            Some(ReplacementOutcome::Unknown(error)) => Err(Problem::unknown(&error)),
            None => {
                Err(Problem::unknown(&Error::new(Kind::Timeout, "the lake has not reported the outcome")))
            }
        }
    }

    /// Waits until readers see a commit of the lake, because the client's next request loads the table.
    fn wait_until_visible(
        &self,
        table: &table::Snapshot,
        snapshot_id: i64,
        version: u64,
    ) -> Result<LoadedMetadata> {
        let begun = Instant::now();
        loop {
            let lsn = self.engine.root().lsn();
            let lake = self.lake_of(table)?;
            if lake.version >= version && lake.has_adopted(snapshot_id) {
                return load_lake(&lake);
            }
            if begun.elapsed() > SHOW_MAX {
                return Err(Error::new(Kind::Timeout, "the lake does not show its commit").into());
            }
            self.engine.wait_for_commit(lsn, SHOW_EVERY)?;
        }
    }
}

fn load_lake(lake: &lake::Lake) -> Result<LoadedMetadata> {
    let table = lake::catalog::TableMetadata::parse(&lake.metadata.to_bytes()?)?;
    Ok(LoadedMetadata::of(&table, lake.metadata_location())?)
}

fn refused(ident: &Ident, error: Error) -> Problem {
    match error.kind() {
        Kind::Conflict => Problem::conflict(format!("{ident}: {}", error.message())),
        _ => error.into(),
    }
}
