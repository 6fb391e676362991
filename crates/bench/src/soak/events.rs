//! Rows without a key that expire: batches over time, which the table's `ttl` deletes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use types::Result;

use super::Actor;
use super::client::{SoakClient, whole};

const KINDS: [&str; 3] = ["start", "step", "stop"];
/// Time by which an expired row may outlive the `ttl`: a tenth of the `ttl`, at most a minute, plus the time that deletes take on
/// a busy machine.
const EXPIRY_LAG_MAX: Duration = Duration::from_secs(150);

#[derive(Clone, Copy, Debug)]
struct Batch {
    number: i64,
    rows: i64,
    /// Microseconds since 1970.
    time: i64,
    sent: Instant,
    is_acknowledged: bool,
}

/// The batches that were sent and have not expired, oldest first.
#[derive(Debug)]
pub(super) struct EventBatches {
    pub ttl: Duration,
    pub rows: usize,
    batches: Mutex<VecDeque<Batch>>,
}

impl EventBatches {
    pub fn new(ttl: Duration, rows: usize) -> EventBatches {
        EventBatches { ttl, rows, batches: Mutex::default() }
    }

    fn batches(&self) -> MutexGuard<'_, VecDeque<Batch>> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the next batch; from now on it may be in the table.
    fn send(&self) -> Batch {
        let mut batches = self.batches();
        let number = batches.back().map_or(0, |last| last.number + 1);
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as i64;
        let rows = self.rows as i64;
        let batch = Batch { number, rows, time, sent: Instant::now(), is_acknowledged: false };
        batches.push_back(batch);
        while batches.front().is_some_and(|first| first.sent.elapsed() > self.ttl) {
            batches.pop_front();
        }
        batch
    }

    fn acknowledge(&self, number: i64) {
        if let Some(batch) = self.batches().iter_mut().find(|batch| batch.number == number) {
            batch.is_acknowledged = true;
        }
    }

    /// Returns the acknowledged batches that are young enough not to expire soon.
    fn acknowledged(&self) -> Vec<Batch> {
        let young = |batch: &&Batch| batch.is_acknowledged && batch.sent.elapsed() < self.ttl / 2;
        self.batches().iter().filter(young).copied().collect()
    }

    fn random_batch(&self, client: &mut SoakClient<'_>) -> Option<Batch> {
        let batches = self.acknowledged();
        (!batches.is_empty()).then(|| batches[client.below(batches.len())])
    }
}

fn value(batch: i64, slot: i64) -> f64 {
    (batch % 1000 * 8 + slot) as f64 * 0.25
}

fn values(batch: Batch) -> f64 {
    (0..batch.rows).map(|slot| value(batch.number, slot)).sum()
}

/// Writes one batch at each step.
pub(super) struct EventWriter {
    pub batches: Arc<EventBatches>,
    pub number: usize,
}

impl Actor for EventWriter {
    fn every(&self) -> Duration {
        Duration::from_millis(800)
    }

    fn prepare(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        if self.number == 0 {
            let ttl = self.batches.ttl.as_secs().max(1);
            client.execute(
                &format!(
                    "CREATE TABLE events (at timestamptz NOT NULL, batch bigint NOT NULL, slot bigint NOT NULL, kind text, \
                     value double) WITH (time = 'at', ttl = '{ttl} s')"
                ),
                json!([]),
            )?;
        }
        Ok(())
    }

    fn step(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let batch = self.batches.send();
        let rows: Vec<_> = (0..batch.rows)
            .map(|slot| {
                json!({
                    "at": batch.time,
                    "batch": batch.number,
                    "slot": slot,
                    "kind": KINDS[slot as usize % KINDS.len()],
                    "value": value(batch.number, slot),
                })
            })
            .collect();
        let written = client.send_write("POST", "/v1/tables/events/rows", &json!(rows))?;
        client.expect(|| format!("rows of batch {}", batch.number), &written.count, &(batch.rows as u64));
        self.batches.acknowledge(batch.number);
        Ok(())
    }
}

/// Queries the events and checks the answers.
pub(super) struct EventReader {
    pub batches: Arc<EventBatches>,
}

impl EventReader {
    /// Checks that a batch is complete and that each of its rows is there once.
    fn batch(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let Some(batch) = self.batches.random_batch(client) else { return Ok(()) };
        let sql = "SELECT count(*), count(DISTINCT slot), sum(value) FROM events WHERE batch = $1";
        let rows = client.query(sql, json!([batch.number]))?;
        let found = rows.first().map(|row| (whole(&row[0]), whole(&row[1]), row[2].as_f64()));
        client.expect(
            || format!("batch {}", batch.number),
            &found,
            &Some((Some(batch.rows), Some(batch.rows), Some(values(batch)))),
        );
        Ok(())
    }

    /// Counts rows by steps of time. Batches that are not acknowledged yet may be in the count or not.
    fn steps(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let batches = self.batches.acknowledged();
        let (Some(first), Some(last)) = (batches.first(), batches.last()) else { return Ok(()) };
        let (from, to) = (first.time.min(last.time), last.time);
        let sql = "SELECT sum(n) FROM (SELECT date_bin(INTERVAL '5 seconds', at) AS step, count(*) AS n FROM events \
                   WHERE at >= to_timestamp_micros($1) AND at <= to_timestamp_micros($2) GROUP BY step) s";
        let found = client.query_numbers(sql, json!([from, to]))?;
        let within = |batch: &&Batch| (from..=to).contains(&batch.time);
        let least: i64 = batches.iter().filter(within).map(|batch| batch.rows).sum();
        let most: i64 = self.batches.batches().iter().filter(within).map(|batch| batch.rows).sum();
        if !(least..=most.max(least)).contains(&found[0]) {
            client.state.report_wrong(format!(
                "events of a time in steps: {least} to {most} expected, found {}",
                found[0]
            ));
        }
        Ok(())
    }

    /// Checks the latest batch of each kind.
    fn latest(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let Some(newest) = self.batches.acknowledged().iter().map(|batch| batch.time).max() else {
            return Ok(());
        };
        let sql = if client.below(2) == 0 {
            "SELECT kind, max(batch), max_by(batch, at) FROM events GROUP BY kind ORDER BY kind"
        } else {
            "SELECT DISTINCT ON (kind) kind, batch, batch FROM events ORDER BY kind, at DESC NULLS LAST"
        };
        let rows = client.query(sql, json!([]))?;
        client.expect(|| sql.to_owned(), &rows.len(), &KINDS.len().min(self.batches.rows));
        let batches = self.batches.batches();
        for row in rows {
            let found = whole(&row[2]).unwrap_or(-1);
            let time = batches.iter().find(|batch| batch.number == found).map(|batch| batch.time);
            if time.is_none_or(|time| time < newest) {
                client.state.report_wrong(format!(
                    "{sql}: batch {found} is the latest, though a later one was acknowledged"
                ));
            }
        }
        Ok(())
    }

    fn asof_join(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let Some(batch) = self.batches.random_batch(client) else { return Ok(()) };
        let found = client.query_numbers(
            "SELECT count(*), count(r.batch) FROM (SELECT * FROM events WHERE batch = $1) l ASOF JOIN \
             (SELECT at, kind, batch FROM events WHERE batch = $1 AND slot < 3) r \
             MATCH_CONDITION (l.at >= r.at) ON l.kind = r.kind",
            json!([batch.number]),
        )?;
        client.expect(
            || format!("an ASOF JOIN of batch {}", batch.number),
            &found,
            &vec![batch.rows, batch.rows],
        );
        Ok(())
    }

    /// Checks that rows long past their `ttl` are gone.
    fn expired(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let seconds = (self.batches.ttl + EXPIRY_LAG_MAX).as_secs();
        let sql = format!("SELECT count(*) FROM events WHERE at < now() - INTERVAL '{seconds} seconds'");
        let found = client.query_numbers(&sql, json!([]))?;
        client.expect(|| "events that should have ended".to_owned(), &found, &vec![0]);
        Ok(())
    }
}

impl Actor for EventReader {
    fn every(&self) -> Duration {
        Duration::from_millis(800)
    }

    fn step(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        match client.below(6) {
            0 => self.steps(client),
            1 => self.latest(client),
            2 => self.asof_join(client),
            3 => self.expired(client),
            _ => self.batch(client),
        }
    }

    fn verify(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let rows = client
            .query("SELECT batch, count(*), count(DISTINCT slot) FROM events GROUP BY batch", json!([]))?;
        let found: std::collections::BTreeMap<i64, Vec<i64>> = rows
            .iter()
            .map(|row| (whole(&row[0]).unwrap_or(-1), row[1..].iter().filter_map(whole).collect()))
            .collect();
        for batch in self.batches.acknowledged() {
            client.expect(
                || format!("batch {} after the kill", batch.number),
                &found.get(&batch.number),
                &Some(&vec![batch.rows, batch.rows]),
            );
        }
        for batch in self.batches.batches().iter().filter(|batch| !batch.is_acknowledged) {
            if found.get(&batch.number).is_some_and(|counts| counts != &vec![batch.rows, batch.rows]) {
                client
                    .state
                    .report_wrong(format!("batch {} was in flight and is there in part", batch.number));
            }
        }
        Ok(())
    }
}
