//! Transfers of money between accounts, in transactions of several concurrent writers. Every reader must always see the same
//! total, and each acknowledged transfer once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use types::Result;

use super::client::{SoakClient, whole};
use super::{Actor, Size};

const INITIAL_CENTS: i64 = 10_000;
/// Transfers of a writer that are kept; older ones are deleted.
const TRANSFERS_KEPT: u64 = 200;

/// Shared state of the writers and readers of the accounts.
#[derive(Debug)]
pub(super) struct Bank {
    accounts: i64,
    keep: Duration,
    /// Numbers of acknowledged and of sent transfers of each writer.
    transfers: Vec<(AtomicU64, AtomicU64)>,
    /// Lsns of commits that are still readable, with their times.
    points: Mutex<VecDeque<(u64, Instant)>>,
}

impl Bank {
    pub fn new(size: &Size, writers: usize, keep: Duration) -> Bank {
        Bank {
            accounts: size.accounts as i64,
            keep,
            transfers: (0..writers).map(|_| Default::default()).collect(),
            points: Mutex::default(),
        }
    }

    fn remember(&self, lsn: u64) {
        let mut points = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        points.push_back((lsn, Instant::now()));
        while points.front().is_some_and(|(_, at)| at.elapsed() > self.keep / 2) {
            points.pop_front();
        }
    }

    fn random_point(&self, client: &mut SoakClient<'_>) -> Option<u64> {
        let points = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        let young: Vec<u64> =
            points.iter().filter(|(_, at)| at.elapsed() < self.keep / 2).map(|(lsn, _)| *lsn).collect();
        (!young.is_empty()).then(|| young[client.below(young.len())])
    }
}

/// Transfers money at each step.
pub(super) struct TransferWriter {
    pub bank: Arc<Bank>,
    pub number: usize,
}

impl Actor for TransferWriter {
    fn every(&self) -> Duration {
        Duration::from_millis(700)
    }

    fn prepare(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        if self.number > 0 {
            return Ok(());
        }
        client.execute(
            "CREATE TABLE accounts (id bigint PRIMARY KEY, cents bigint NOT NULL, moves bigint NOT NULL, name text)",
            json!([]),
        )?;
        client.execute("CREATE INDEX ON accounts (name)", json!([]))?;
        client.execute("CREATE TABLE transfers (writer bigint, number bigint, cents bigint)", json!([]))?;
        let rows: Vec<_> = (0..self.bank.accounts)
            .map(|id| json!({"id": id, "cents": INITIAL_CENTS, "moves": 0, "name": format!("account {id}")}))
            .collect();
        let lsn = client.send_write("POST", "/v1/tables/accounts/rows", &json!(rows))?.lsn;
        self.bank.remember(lsn);
        Ok(())
    }

    fn step(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let accounts = self.bank.accounts as usize;
        let from = client.below(accounts);
        let to = (from + 1 + client.below(accounts - 1)) % accounts;
        let cents = client.below(500);
        let (done, sent) = &self.bank.transfers[self.number];
        let number = done.load(SeqCst);
        let mut ops = vec![
            json!({"op": "sql", "sql": "UPDATE accounts SET cents = cents - $1, moves = moves + 1 WHERE id = $2", "params": [cents, from]}),
            json!({"op": "sql", "sql": "UPDATE accounts SET cents = cents + $1, moves = moves + 1 WHERE id = $2", "params": [cents, to]}),
            json!({"op": "insert", "table": "transfers", "rows": [{"writer": self.number, "number": number, "cents": cents}]}),
        ];
        if number.is_multiple_of(50) && number > TRANSFERS_KEPT {
            ops.push(json!({
                "op": "sql",
                "sql": "DELETE FROM transfers WHERE writer = $1 AND number < $2",
                "params": [self.number, number - TRANSFERS_KEPT],
            }));
        }
        sent.store(number + 1, SeqCst);
        let lsn = client.commit_operations(&json!(ops))?;
        done.store(number + 1, SeqCst);
        self.bank.remember(lsn);
        Ok(())
    }

    /// Checks that all kept transfers are there once, and at most one more: the transfer in flight.
    fn verify(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let done = self.bank.transfers[self.number].0.load(SeqCst) as i64;
        let sent = self.bank.transfers[self.number].1.load(SeqCst) as i64;
        let first = (done - TRANSFERS_KEPT as i64).max(0);
        let found = client.query_numbers(
            "SELECT count(*), count(DISTINCT number), max(number) FROM transfers WHERE writer = $1 AND number >= $2",
            json!([self.number, first]),
        )?;
        let wanted = |last: i64| vec![last - first, last - first, (last - 1).max(0)];
        if found != wanted(done) && found != wanted(sent) {
            client.state.report_wrong(format!(
                "transfers of writer {} after the kill: {done} acknowledged, found {found:?}",
                self.number
            ));
        }
        Ok(())
    }
}

/// Checks the total and the transfers.
pub(super) struct Auditor {
    pub bank: Arc<Bank>,
}

impl Auditor {
    fn sum(&self, client: &mut SoakClient<'_>, point: &str) -> Result<()> {
        let sql = format!("SELECT count(*), sum(cents) FROM accounts{point}");
        let found = client.query_numbers(&sql, json!([]))?;
        client.expect(|| sql, &found, &vec![self.bank.accounts, self.bank.accounts * INITIAL_CENTS]);
        Ok(())
    }
}

impl Actor for Auditor {
    fn every(&self) -> Duration {
        Duration::from_millis(900)
    }

    fn step(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        match client.below(4) {
            0 => {
                let point =
                    self.bank.random_point(client).map_or(String::new(), |lsn| format!(" AS OF LSN {lsn}"));
                self.sum(client, &point)
            }
            1 => {
                let id = client.below(self.bank.accounts as usize);
                let rows = client
                    .query("SELECT id FROM accounts WHERE name = $1", json!([format!("account {id}")]))?;
                client.expect(|| format!("account {id} by name"), &rows, &vec![vec![json!(id)]]);
                Ok(())
            }
            2 => {
                // Transfers acknowledged before the query must be there; later ones may be.
                let done: Vec<i64> =
                    self.bank.transfers.iter().map(|(done, _)| done.load(SeqCst) as i64).collect();
                let rows =
                    client.query("SELECT writer, max(number) FROM transfers GROUP BY writer", json!([]))?;
                for (writer, done) in done.into_iter().enumerate().filter(|(_, done)| *done > 0) {
                    let row = rows.iter().find(|row| row.first().and_then(whole) == Some(writer as i64));
                    let found = row.and_then(|row| whole(row.get(1)?)).unwrap_or(-1);
                    let sent = self.bank.transfers[writer].1.load(SeqCst) as i64;
                    if found < done - 1 || found >= sent {
                        client.state.report_wrong(format!(
                            "transfers of writer {writer}: {done} acknowledged and {sent} sent, the last that is there is {found}"
                        ));
                    }
                }
                Ok(())
            }
            _ => self.sum(client, ""),
        }
    }

    fn verify(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        self.sum(client, "")?;
        let found = client.query_numbers("SELECT sum(moves) FROM accounts", json!([]))?;
        let bounds = |which: fn(&(AtomicU64, AtomicU64)) -> &AtomicU64| {
            2 * self.bank.transfers.iter().map(|done| which(done).load(SeqCst) as i64).sum::<i64>()
        };
        let (least, most) = (bounds(|done| &done.0), bounds(|done| &done.1));
        if !(least..=most).contains(&found[0]) {
            client.state.report_wrong(format!(
                "moves after the kill: {least} to {most} expected, found {}",
                found[0]
            ));
        }
        Ok(())
    }
}
