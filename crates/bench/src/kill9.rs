//! `polynya bench kill9`: kills a server with SIGKILL under load, again and again. It must restart with every acknowledged row
//! exactly once, and with each unacknowledged batch once or not at all, never in part (L1, L2).
//!
//! Each client has one batch in flight and numbers its batches from 0, so the acknowledged batches are a prefix. A few aggregates
//! per client therefore prove that all rows are right: see `ClientRows::judge`. Every restart checks all earlier rounds again.
//! Sometimes the server is also killed during its recovery.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use types::{Error, Result};

use crate::ProgressSink;
use crate::child::{self, Home, ServerProcess};
use crate::http::{HttpClient, excerpt};
use crate::random::{Random, WorkHash};
use crate::report::{Claim, Report};
use crate::run::BenchRun;
use crate::target::LoadTarget;
use crate::wire;

#[derive(Clone, Debug)]
pub struct Options {
    pub child: child::Options,
    pub rounds: usize,
    pub clients: usize,
    /// Rows of a batch. A batch is one commit.
    pub batch: usize,
    /// Least and greatest delay of the kill after the first request. The moment is random.
    pub kill_after: (Duration, Duration),
    /// True to kill the server in about a third of the recoveries as well.
    pub kill_recoveries: bool,
    pub table: String,
    pub seed: u64,
}

impl Options {
    pub fn new(child: child::Options) -> Options {
        Options {
            child,
            rounds: 20,
            clients: 8,
            batch: 20,
            kill_after: (Duration::from_millis(100), Duration::from_millis(2500)),
            kill_recoveries: true,
            table: "bench_kill9".into(),
            seed: 1,
        }
    }
}

/// Number of acknowledged batches by round and client.
type Acknowledged = BTreeMap<(u64, u64), u64>;

/// Runs the rounds. Lost, doubled or torn rows become failures of the report, and the directory is kept then.
pub fn run(options: &Options, progress: ProgressSink<'_>) -> Result<Report> {
    let mut report = Report::new("kill9", options.seed);
    report.set("rounds", options.rounds);
    report.set("clients", options.clients);
    report.set("batch", options.batch);
    report.set("kill after", format!("{:?} to {:?}", options.kill_after.0, options.kill_after.1));
    report.set("kill recoveries", options.kill_recoveries);
    let mut hash = WorkHash::default();
    hash.add(&body(options.seed, 0, 0, 0, options.batch));
    report.work_hash = hash.finish();

    let mut home = Home::new(options.child.clone())?;
    let mut state =
        State { options, random: Random::new(options.seed), acknowledged: Acknowledged::new(), landed: 0 };
    let mut slowest = Duration::ZERO;
    let outcome = (|| -> Result<()> {
        let mut server = home.start()?;
        for round in 0..options.rounds as u64 {
            let before: u64 = state.acknowledged.values().sum();
            state.load_and_kill(&mut server, round)?;
            server = state.restart(&mut home)?;
            slowest = slowest.max(server.ready_after());
            state.check(server.target())?;
            let acknowledged = state.acknowledged.values().sum::<u64>() - before;
            progress(&format!(
                "round {} of {}: {acknowledged} batches acknowledged, all there once, ready after {:?}",
                round + 1,
                options.rounds,
                server.ready_after()
            ));
        }
        // A clean stop must keep everything as well.
        server.stop(options.child.stop_within)?;
        let mut server = home.start()?;
        state.check(server.target())?;
        server.stop(options.child.stop_within).map(drop)
    })();
    let batches: u64 = state.acknowledged.values().sum();
    let mut figures = BTreeMap::from([
        ("acknowledged_batches".to_string(), batches as f64),
        ("acknowledged_rows".to_string(), (batches * options.batch as u64) as f64),
        ("unacknowledged_batches_that_landed".to_string(), state.landed as f64),
    ]);
    figures.insert("slowest_ready_ms".into(), slowest.as_secs_f64() * 1e3);
    report.claims.push(Claim {
        claim: format!("every acknowledged row is there exactly once after each of {} kills", options.rounds),
        holds: outcome.is_ok(),
        found: format!("{batches} batches of {} rows acknowledged", options.batch),
    });
    report.runs.push(BenchRun { name: "kill -9".into(), figures, ..BenchRun::default() });
    if let Err(error) = outcome {
        report.failures.push(format!("{error}; the directory is kept at {}", home.keep().display()));
    } else if batches == 0 {
        report.failures.push("nothing was acknowledged, so nothing was shown".into());
    }
    Ok(report)
}

struct State<'a> {
    options: &'a Options,
    random: Random,
    acknowledged: Acknowledged,
    landed: u64,
}

impl State<'_> {
    fn load_and_kill(&mut self, server: &mut ServerProcess, round: u64) -> Result<()> {
        let (least, most) = self.options.kill_after;
        let range = most.saturating_sub(least).as_micros() as u64 + 1;
        let moment = least + Duration::from_micros(self.random.below(range));
        let killing = AtomicBool::new(false);
        let (target, killing, options) = (server.target().clone(), &killing, self.options);
        let (killed, clients) = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..options.clients as u64)
                .map(|client| {
                    let target = &target;
                    scope.spawn(move || (client, write_until_killed(options, target, round, client, killing)))
                })
                .collect();
            std::thread::sleep(moment);
            killing.store(true, Ordering::SeqCst);
            let killed = server.kill();
            let clients: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            (killed, clients)
        });
        killed?;
        for client in clients {
            let (client, acknowledged) = client.map_err(|_| Error::internal("a client thread panicked"))?;
            self.acknowledged.insert((round, client), acknowledged?);
        }
        Ok(())
    }

    fn restart(&mut self, home: &mut Home) -> Result<ServerProcess> {
        while self.options.kill_recoveries && self.random.below(3) == 0 {
            let mut server = home.spawn()?;
            std::thread::sleep(Duration::from_micros(self.random.below(60_000)));
            server.kill()?;
        }
        home.start()
    }

    /// Compares the table with the acknowledged batches of all rounds so far.
    fn check(&mut self, target: &LoadTarget) -> Result<()> {
        let mut client = HttpClient::new(target);
        let mut found = BTreeMap::new();
        if wire::exists(&mut client, &self.options.table)? {
            let text = format!(
                "SELECT \"round\", \"client\", count(*) AS n, count(DISTINCT \"seq\" * {} + \"slot\") AS d, \
                 max(\"seq\") AS last, min(\"seq\") AS first, min(\"slot\") AS low, max(\"slot\") AS high \
                 FROM {} GROUP BY \"round\", \"client\" ORDER BY 1, 2",
                self.options.batch,
                wire::quoted(&self.options.table)
            );
            for row in wire::sql(&mut client, &text, json!([]))? {
                let row: Vec<u64> = row.iter().filter_map(wire::whole).collect();
                let [round, client, rows, distinct, last, first, low, high] = row[..] else {
                    return Err(Error::invalid(format!("expected eight whole numbers, found {row:?}")));
                };
                found.insert((round, client), ClientRows { rows, distinct, last, first, low, high });
            }
        }
        if let Some(stranger) = found.keys().find(|key| !self.acknowledged.contains_key(key)) {
            return Err(Error::damaged(format!(
                "rows of round and client {stranger:?} are there, nobody sent them"
            )));
        }
        self.landed = 0;
        for ((round, client), acknowledged) in &self.acknowledged {
            let found = found.get(&(*round, *client)).copied().unwrap_or_default();
            let landed = found
                .judge(*acknowledged, self.options.batch as u64)
                .map_err(|why| Error::damaged(format!("round {round}, client {client}: {why}")))?;
            self.landed += u64::from(landed);
        }
        Ok(())
    }
}

/// Aggregates over the rows of one client in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ClientRows {
    rows: u64,
    /// Number of different pairs of batch and slot.
    distinct: u64,
    /// Highest and lowest batch number.
    last: u64,
    first: u64,
    /// Lowest and highest slot within a batch.
    low: u64,
    high: u64,
}

impl ClientRows {
    /// Checks that the table holds exactly the first `acknowledged` batches (returns false), or those and the batch in flight
    /// (returns true).
    ///
    /// Rows are distinct pairs out of `0..=last` × `0..batch`. If their number is `(last + 1) × batch`, every pair is there once.
    /// The number of batches must then be `acknowledged` or one more.
    fn judge(self, acknowledged: u64, batch: u64) -> std::result::Result<bool, String> {
        if self.rows != self.distinct {
            return Err(format!("{} rows are there more than once: {self:?}", self.rows - self.distinct));
        }
        if self.rows < acknowledged * batch {
            let lost = acknowledged * batch - self.rows;
            return Err(format!(
                "at least {lost} of {} acknowledged rows are lost: {self:?}",
                acknowledged * batch
            ));
        }
        if self.rows == 0 {
            return Ok(false);
        }
        let whole = (self.last + 1) * batch == self.rows
            && self.first == 0
            && self.low == 0
            && self.high + 1 == batch;
        let batches = self.last + 1;
        if !whole || batches > acknowledged + 1 {
            return Err(format!(
                "expected batches 0 to {acknowledged} of {batch} rows, the last or not, found {self:?}"
            ));
        }
        Ok(batches == acknowledged + 1)
    }
}

/// Sends batches until the server is killed, and returns the number of acknowledged batches.
fn write_until_killed(
    options: &Options,
    target: &LoadTarget,
    round: u64,
    client: u64,
    killing: &AtomicBool,
) -> Result<u64> {
    let mut connection = HttpClient::new(target).timeout(Duration::from_secs(30));
    let path = format!("/v1/tables/{}/rows", options.table);
    let mut acknowledged = 0;
    let started = Instant::now();
    loop {
        let body = body(options.seed, round, client, acknowledged, options.batch);
        match connection.request("POST", &path, "application/json", &body) {
            Ok(answer)
                if answer.is_success() && wire::count_in(&answer.body) == Some(options.batch as u64) =>
            {
                acknowledged += 1;
            }
            Ok(answer) => {
                let found = format!("{}: {}", answer.status, excerpt(&answer.body));
                return Err(Error::invalid(format!(
                    "expected {} rows acknowledged, found {found}",
                    options.batch
                )));
            }
            Err(_) if killing.load(Ordering::SeqCst) => return Ok(acknowledged),
            Err(error) => return Err(error.with("milliseconds under load", started.elapsed().as_millis())),
        }
    }
}

fn body(seed: u64, round: u64, client: u64, seq: u64, batch: usize) -> Vec<u8> {
    let mut random = Random::part(seed, round << 40 ^ client << 32 ^ seq);
    let mut body = Vec::with_capacity(batch * 130);
    for slot in 0..batch {
        body.push(if slot == 0 { b'[' } else { b',' });
        body.extend_from_slice(
            format!("{{\"round\":{round},\"client\":{client},\"seq\":{seq},\"slot\":{slot},\"payload\":\"")
                .as_bytes(),
        );
        random.text(40, &mut body);
        body.extend_from_slice(b"\"}");
    }
    body.push(b']');
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(batches: u64, batch: u64) -> ClientRows {
        let rows = batches * batch;
        ClientRows {
            rows,
            distinct: rows,
            last: batches.saturating_sub(1),
            first: 0,
            low: 0,
            high: batch - 1,
        }
    }

    #[test]
    fn the_acknowledged_prefix_and_one_more_batch_are_right() {
        assert_eq!(found(5, 10).judge(5, 10), Ok(false));
        assert_eq!(found(6, 10).judge(5, 10), Ok(true));
        assert_eq!(ClientRows::default().judge(0, 10), Ok(false));
        assert_eq!(found(1, 10).judge(0, 10), Ok(true));
    }

    #[test]
    fn losses_doubles_holes_and_torn_batches_are_wrong() {
        assert!(found(4, 10).judge(5, 10).is_err(), "an acknowledged batch is lost");
        assert!(found(7, 10).judge(5, 10).is_err(), "two batches nobody was told of");
        assert!(ClientRows::default().judge(1, 10).is_err(), "everything is lost");
        assert!(ClientRows { rows: 51, ..found(5, 10) }.judge(5, 10).is_err(), "a row is there twice");
        let torn = ClientRows { rows: 53, distinct: 53, last: 5, ..found(5, 10) };
        assert!(torn.judge(5, 10).is_err(), "the batch in flight is there in part");
        let hole = ClientRows { last: 5, ..found(5, 10) };
        assert!(hole.judge(5, 10).is_err(), "the one in flight landed, an acknowledged one did not");
    }

    #[test]
    fn a_batch_is_json_and_its_seed_decides_it() {
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&body(1, 2, 3, 4, 5)).expect("JSON");
        assert_eq!(rows.len(), 5);
        assert_eq!((rows[4]["round"].as_u64(), rows[4]["slot"].as_u64()), (Some(2), Some(4)));
        assert_eq!(body(1, 2, 3, 4, 5), body(1, 2, 3, 4, 5));
        assert_ne!(body(2, 2, 3, 4, 5), body(1, 2, 3, 4, 5));
    }
}
