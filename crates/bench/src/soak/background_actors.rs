//! Parts that run beside the writers: indexes that are built and dropped, a follower of the change feed, a slow reader, a client
//! that sends invalid requests or disconnects early, and backups.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use types::{Error, Result};

use super::Actor;
use super::client::{SoakClient, whole};
use super::orders::{ORDERS, SharedOrders, TOTALS, Totals};
use super::streamed_answer::StreamedAnswer;

/// Builds indexes over the orders, and drops each a while later.
#[derive(Default)]
pub(super) struct IndexBuilder {
    made: std::collections::VecDeque<usize>,
    next: usize,
}

const INDEXES: [&str; 6] = [
    "CREATE INDEX by_customer ON orders (customer)",
    "CREATE INDEX by_amount ON orders (amount)",
    "CREATE INDEX by_region ON orders (region, amount)",
    "CREATE INDEX by_rev ON orders (rev DESC, id)",
    "CREATE INDEX by_note ON orders USING text (note)",
    "CREATE INDEX by_customer_and_region ON orders (customer, region)",
];

fn index_name(index: usize) -> &'static str {
    INDEXES[index].split(' ').nth(2).unwrap_or_default()
}

impl Actor for IndexBuilder {
    fn every(&self) -> Duration {
        Duration::from_millis(4_000)
    }

    fn step(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        // Most indexes are dropped long after they are complete, some during their build.
        let during_build = client.below(4) == 0;
        if self.made.len() >= 4 || during_build {
            let dropped = if during_build { self.made.pop_back() } else { self.made.pop_front() };
            if let Some(dropped) = dropped {
                client.execute(&format!("DROP INDEX {} ON orders", index_name(dropped)), json!([]))?;
                return Ok(());
            }
        }
        while self.made.contains(&self.next) {
            self.next = (self.next + 1) % INDEXES.len();
        }
        client.execute(INDEXES[self.next], json!([]))?;
        self.made.push_back(self.next);
        self.next = (self.next + 1) % INDEXES.len();
        Ok(())
    }
}

/// Follows the change feed of the orders, over connections that it closes from time to time.
pub(super) struct FeedFollower {
    shared: Arc<SharedOrders>,
    rows: HashMap<i64, (i64, Option<i64>, i64)>,
    totals: Totals,
    /// The lsn up to which every event has arrived.
    lsn: Option<u64>,
}

impl FeedFollower {
    pub fn new(shared: Arc<SharedOrders>) -> FeedFollower {
        FeedFollower { shared, rows: HashMap::new(), totals: Totals::default(), lsn: None }
    }

    fn apply_event(&mut self, event: &str, data: &str) -> Result<()> {
        let data: Value = serde_json::from_str(data).map_err(|error| {
            Error::invalid(format!("an event of the change feed is no JSON: {error}: {data}"))
        })?;
        let row_id = whole(&data["_row_id"]).unwrap_or(-1);
        match event {
            "insert" => {
                let row = (
                    whole(&data["id"]).unwrap_or(-1),
                    whole(&data["amount"]),
                    whole(&data["rev"]).unwrap_or(-1),
                );
                self.totals.add(row.0, row.1, row.2, 1);
                self.rows.insert(row_id, row);
            }
            // An unknown row was inserted and deleted before the feed reported either.
            "delete" => {
                if let Some((id, amount, rev)) = self.rows.remove(&row_id) {
                    self.totals.add(id, amount, rev, -1);
                }
            }
            _ => return Err(Error::invalid(format!("the change feed ended: {event}: {data}"))),
        }
        Ok(())
    }
}

impl Actor for FeedFollower {
    fn every(&self) -> Duration {
        Duration::from_millis(100)
    }

    /// Follows the feed over one connection for a while.
    fn step(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let path = format!("/v1/tables/{ORDERS}/tail?after={}", self.lsn.unwrap_or(0));
        // The server sends a comment every 15 s.
        let timeout = Duration::from_secs(60);
        let mut stream =
            StreamedAnswer::open(client.target(), "GET", &path, "text/event-stream", b"", timeout)?;
        if stream.status != 200 {
            return Err(stream.unexpected(&path));
        }
        let until = Instant::now() + Duration::from_secs(20 + client.below(60) as u64);
        let (mut event, mut events) = (String::new(), 0u64);
        while let Some(line) = stream.line()? {
            if let Some(name) = line.strip_prefix("event: ") {
                event = name.to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                self.apply_event(&event, data)?;
                events += 1;
            } else if let Some(lsn) = line.strip_prefix("id: ").and_then(|id| id.parse().ok()) {
                self.lsn = Some(lsn);
                self.shared.set_feed_totals(lsn, self.totals);
                if Instant::now() > until || client.state.is_over() {
                    break;
                }
            }
        }
        if events == 0 && Instant::now() < until && !client.state.is_over() {
            return Err(Error::invalid(format!("{path} ended by itself")));
        }
        Ok(())
    }
}

/// Reads a large answer slowly. The answer must stay at one lsn, however long it takes, and the server must release its snapshot
/// afterwards.
pub(super) struct SlowReader {
    pub shared: Arc<SharedOrders>,
    pub takes: Duration,
}

impl Actor for SlowReader {
    fn every(&self) -> Duration {
        self.takes * 3
    }

    fn step(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        const TIMES: i64 = 12;
        let sql = format!(
            "SELECT o.id, o.amount, o.rev, o.note FROM orders o CROSS JOIN generate_series(1, {TIMES}) g"
        );
        let body = json!({ "sql": sql }).to_string();
        let accept = "application/x-ndjson";
        let timeout = Duration::from_secs(60);
        let mut stream =
            StreamedAnswer::open(client.target(), "POST", "/v1/sql", accept, body.as_bytes(), timeout)?;
        client.state.statements.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if stream.status != 200 {
            return Err(stream.unexpected(&sql));
        }
        let (mut found, mut lines) = (Totals::default(), 0u64);
        let started = Instant::now();
        while let Some(line) = stream.line()? {
            let row: Value = serde_json::from_str(&line)
                .map_err(|error| Error::invalid(format!("a line of {sql} is no JSON: {error}: {line}")))?;
            if let Some(why) = row.get("error") {
                return Err(Error::invalid(format!("{sql} broke off: {why}")));
            }
            let number = |name: &str| whole(&row[name]).unwrap_or_default();
            found.add(number("id"), whole(&row["amount"]), number("rev"), 1);
            lines += 1;
            // Spreads the pauses over the expected number of lines.
            if lines.is_multiple_of(1_000) && started.elapsed() < self.takes && !client.state.is_over() {
                std::thread::sleep(self.takes / 200);
            }
        }
        // The writer may not have received the acknowledgement of the commit at which this read stood.
        client.state.sleep(Duration::from_secs(1));
        let Some(wanted) = self.shared.totals_at(stream.lsn) else { return Ok(()) };
        let wanted = Totals {
            rows: wanted.rows * TIMES,
            ids: wanted.ids * TIMES,
            amount: wanted.amount * TIMES,
            revs: wanted.revs * TIMES,
        };
        client.expect(|| format!("{sql} at lsn {}", stream.lsn), &found, &wanted);
        Ok(())
    }
}

/// Sends statements that must fail, and disconnects before the answer. The server must keep nothing of them.
pub(super) struct InvalidClient;

impl Actor for InvalidClient {
    fn every(&self) -> Duration {
        Duration::from_millis(1_500)
    }

    fn step(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        const WRONG: [(&str, u16); 6] = [
            ("SELEC 1", 400),
            ("SELECT * FROM nowhere", 404),
            ("SELECT id / 0 FROM orders", 400),
            ("SELECT sum(note) FROM orders", 400),
            ("INSERT INTO orders (id) VALUES ('x')", 422),
            ("BEGIN", 400),
        ];
        // Each request uses a new connection.
        client.reconnect();
        match client.below(8) {
            // Disconnects during a heavy statement.
            6 => {
                let sql = "SELECT a.note, b.note FROM orders a JOIN orders b ON a.region = b.region ORDER BY 1, 2 LIMIT 5";
                let body = json!({ "sql": sql }).to_string();
                let target = client.target().clone();
                let answer = StreamedAnswer::open(
                    &target,
                    "POST",
                    "/v1/sql",
                    "application/json",
                    body.as_bytes(),
                    Duration::from_millis(200),
                );
                client.state.statements.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                drop(answer);
                Ok(())
            }
            7 => {
                let found = client.request("GET", "/v1/tables/orders/rows/none", None)?.status;
                client.expect(|| "the status of a key that is no number".to_owned(), &found, &400);
                let found = client.request("GET", "/nowhere/at/all", None)?.status;
                client.expect(|| "the status of a path that is none".to_owned(), &found, &404);
                Ok(())
            }
            at => {
                let (sql, wanted) = WRONG[at];
                let (found, said) = client.statement_status(sql, json!([]))?;
                client.expect(|| format!("the status of {sql} ({said})"), &found, &wanted);
                Ok(())
            }
        }
    }
}

/// Takes backups during the load, restores and examines each, and compares it with the totals at its lsn. Between two backups the
/// server's directory is examined.
pub(super) struct Backups {
    pub shared: Arc<SharedOrders>,
    pub every: Duration,
    pub program: std::path::PathBuf,
    pub directory: std::path::PathBuf,
    pub data: std::path::PathBuf,
    /// The archive of the server's log.
    pub archive: std::path::PathBuf,
    pub rounds: u64,
}

impl Backups {
    fn run(&self, args: &[&str]) -> Result<String> {
        super::run_program(&self.program, &self.directory, args)
    }

    fn compare(&self, backup: &str, restored: &str, client: &mut SoakClient<'_>) -> Result<()> {
        let data = self.data.to_string_lossy().into_owned();
        let taken = self.run(&["backup", backup, "--json", "--data", &data])?;
        let taken: Value = serde_json::from_str(&taken)
            .map_err(|error| Error::invalid(format!("what a backup says is no JSON: {error}: {taken}")))?;
        let archive = self.archive.to_string_lossy().into_owned();
        let mut args = vec!["restore", backup, restored, "--json"];
        // Every second backup is carried forward with the log archived since.
        if self.rounds % 4 == 3 {
            client.state.sleep(Duration::from_secs(5));
            args.extend(["--archive", archive.as_str()]);
        }
        let back = self.run(&args)?;
        let back: Value = serde_json::from_str(&back)
            .map_err(|error| Error::invalid(format!("what a restore says is no JSON: {error}: {back}")))?;
        let lsn = whole(&back["lsn"]).unwrap_or_default() as u64;
        if lsn < whole(&taken["lsn"]).unwrap_or_default() as u64 {
            return Err(Error::invalid(format!("restored less than was taken: {taken}, {back}")));
        }
        self.run(&["doctor", restored])?;
        let rows = self.run(&["sql", "--json", "--data", restored, TOTALS])?;
        let row: Value = serde_json::from_str(rows.lines().next().unwrap_or_default())
            .map_err(|error| Error::invalid(format!("what sql says is no JSON: {error}: {rows}")))?;
        // The numbers are in the order of the columns.
        let numbers: Vec<i64> =
            row.as_object().map(|row| row.values().filter_map(whole).collect()).unwrap_or_default();
        if let Some(wanted) = self.shared.totals_at(lsn) {
            let mut found = numbers;
            found.sort_unstable();
            let mut wanted = vec![wanted.rows, wanted.ids, wanted.amount, wanted.revs];
            wanted.sort_unstable();
            client.expect(|| format!("a backup of lsn {lsn}"), &found, &wanted);
        }
        Ok(())
    }
}

impl Actor for Backups {
    fn every(&self) -> Duration {
        self.every
    }

    fn step(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        self.rounds += 1;
        if self.rounds.is_multiple_of(2) {
            let data = self.data.to_string_lossy().into_owned();
            return self.run(&["doctor", &data]).map(drop);
        }
        let paths = [self.directory.join("backup"), self.directory.join("restored")];
        let [backup, restored] = paths.each_ref().map(|path| path.to_string_lossy().into_owned());
        let compared = self.compare(&backup, &restored, client);
        for path in paths {
            if let Err(error) = std::fs::remove_dir_all(&path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                return Err(Error::io(format_args!("removing {}", path.display()), error));
            }
        }
        compared
    }
}
