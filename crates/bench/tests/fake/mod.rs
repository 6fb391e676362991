//! A tiny server that answers the requests of the workloads, with faults on demand.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The faults of the server. Numbers count inserts from 1.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Delay of each insert.
    pub delay: Duration,
    /// A stall: from this insert on, no insert is answered for the given time.
    pub stall: Option<(u64, Duration)>,
    /// Answers this insert with this status.
    pub status: Option<(u64, u16)>,
    /// Acknowledges this insert and does not store it.
    pub forget: Option<u64>,
    /// Sends every second answer in chunks.
    pub chunked: bool,
    /// Closes the connection after this many answers.
    pub close_after: Option<u64>,
    /// Delays writing acknowledged batches to the file.
    pub write_later: Option<Duration>,
}

type Tables = BTreeMap<String, Vec<Value>>;

#[derive(Debug, Default)]
pub struct Fake {
    faults: Faults,
    tables: Mutex<Tables>,
    inserts: AtomicU64,
    stalled_until: Mutex<Option<Instant>>,
    /// The file that keeps inserts for the next process, one per line.
    file: Option<PathBuf>,
}

/// Starts the server in this process and returns its address. The server lives as long as the process.
pub fn start(faults: Faults) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let fake = Arc::new(Fake { faults, ..Fake::default() });
    std::thread::spawn(move || serve(&listener, &fake));
    address
}

/// Serves in this process for ever, with the rows in `data/rows`.
pub fn run(listen: &str, data: PathBuf, faults: Faults) {
    let file = data.join("rows");
    let fake = Fake { faults, file: Some(file.clone()), ..Fake::default() };
    let text = std::fs::read_to_string(file).unwrap_or_default();
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let (table, body) = line.split_once(' ').expect("a table and a body");
        fake.store(table, rows_of(body.as_bytes()));
    }
    serve(&TcpListener::bind(listen).expect("the port is free"), &Arc::new(fake));
}

fn serve(listener: &TcpListener, fake: &Arc<Fake>) {
    for stream in listener.incoming().flatten() {
        let fake = fake.clone();
        // A client that disconnects ends only its own thread.
        std::thread::spawn(move || fake.talk(stream));
    }
}

impl Fake {
    fn talk(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut stream = stream;
        for number in 1.. {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                break;
            }
            let mut length = 0;
            loop {
                let mut header = String::new();
                reader.read_line(&mut header)?;
                if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a length");
                }
                if header.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let mut words = line.split(' ');
            let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let (status, answer) = self.answer(method, path, &body);
            let close = self.faults.close_after.is_some_and(|after| number >= after);
            let chunked = self.faults.chunked && number % 2 == 0;
            stream.write_all(&respond(status, &answer.to_string(), chunked, close))?;
            if close {
                break;
            }
        }
        Ok(())
    }

    fn answer(&self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        let plain = path.split('?').next().unwrap_or_default();
        let parts: Vec<&str> = plain.split('/').skip(1).collect();
        let mut tables = self.tables.lock().expect("no panic in here");
        match (method, parts.as_slice()) {
            ("GET", ["ready"]) => (200, json!({})),
            ("GET", ["v1", "tables", table]) if !tables.contains_key(*table) => {
                (404, json!({"error": table}))
            }
            ("GET", ["v1", "tables", _]) => (200, json!({})),
            ("PUT", ["v1", "tables", table]) => {
                tables.insert((*table).to_owned(), Vec::new());
                (200, json!({}))
            }
            ("DELETE", ["v1", "tables", table]) => {
                tables.remove(*table);
                (200, json!({}))
            }
            ("POST", ["v1", "tables", table, "rows"]) => {
                drop(tables);
                self.insert(table, body)
            }
            ("GET", ["v1", "tables", table, "rows", key]) => {
                let key = key.parse::<u64>().ok();
                let row =
                    tables.get(*table).and_then(|rows| rows.iter().find(|row| row["id"].as_u64() == key));
                (if row.is_some() { 200 } else { 404 }, row.cloned().unwrap_or_default())
            }
            ("GET", ["v1", "tables", table, "rows"]) => {
                let from =
                    path.split("from=").nth(1).and_then(|rest| rest.split('&').next()?.parse::<usize>().ok());
                let row = from.and_then(|from| tables.get(*table)?.get(from - 1));
                (200, json!({"rows": row.into_iter().collect::<Vec<_>>()}))
            }
            ("GET", ["v1", "tables", table, "watermarks"]) => {
                let rows = tables.get(*table).map_or(0, Vec::len);
                (200, json!({"acknowledged": {"row": rows}, "lake": {"row": rows, "snapshot_id": "1"}}))
            }
            // The server has no lake and names no files of one.
            ("POST", ["v1", "tables", _, "commit"]) => (200, json!({"rows": 0})),
            ("POST", ["v1", "sql"]) => {
                let request: Value = serde_json::from_slice(body).expect("JSON");
                let text = request["sql"].as_str().expect("a statement");
                let rows = sql(&tables, text, &request["params"]);
                drop(tables);
                if text.contains("JOIN") || text.contains("OVER") || text.contains("reverse") {
                    std::thread::sleep(Duration::from_millis(5));
                }
                (200, json!({"rows": rows, "truncated": false}))
            }
            _ => (404, json!({"error": path})),
        }
    }

    fn insert(&self, table: &str, body: &[u8]) -> (u16, Value) {
        let number = self.inserts.fetch_add(1, Ordering::SeqCst) + 1;
        std::thread::sleep(self.faults.delay);
        if let Some((_, stall)) = self.faults.stall.filter(|(at, _)| *at == number) {
            *self.stalled_until.lock().expect("no panic in here") = Some(Instant::now() + stall);
        }
        let until = *self.stalled_until.lock().expect("no panic in here");
        if let Some(until) = until {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
        }
        if let Some((_, status)) = self.faults.status.filter(|(at, _)| *at == number) {
            return (status, json!({"error": {"code": "asked_for"}}));
        }
        let rows = rows_of(body);
        let count = rows.len();
        if self.faults.forget == Some(number) {
            return (200, json!({"count": count, "first_row_id": 1}));
        }
        let first = self.store(table, rows);
        if let Some(file) = &self.file {
            let line = format!("{table} {}\n", String::from_utf8_lossy(body));
            let file = file.clone();
            let write = move || {
                let file = OpenOptions::new().create(true).append(true).open(file);
                file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file can be written");
            };
            match self.faults.write_later {
                None => write(),
                Some(later) => {
                    std::thread::spawn(move || {
                        std::thread::sleep(later);
                        write();
                    });
                }
            }
        }
        (200, json!({"count": count, "first_row_id": first}))
    }

    /// Stores rows and returns the id of the first one.
    fn store(&self, table: &str, rows: Vec<Value>) -> usize {
        let mut tables = self.tables.lock().expect("no panic in here");
        let all = tables.entry(table.to_owned()).or_default();
        let first = all.len() + 1;
        all.extend(rows);
        first
    }
}

fn rows_of(body: &[u8]) -> Vec<Value> {
    match serde_json::from_slice(body).expect("JSON") {
        Value::Array(rows) => rows,
        row => vec![row],
    }
}

fn sql(tables: &Tables, text: &str, params: &Value) -> Vec<Value> {
    let table = text.split("FROM \"").nth(1).and_then(|rest| rest.split('"').next()).expect("a table");
    let Some(rows) = tables.get(table) else { return Vec::new() };
    if text.contains("\"round\"") {
        return aggregate(rows);
    }
    if text.contains("WHERE id") {
        let found = rows.iter().filter(|row| row["id"] == params[0]);
        return found.map(|row| json!([row["id"], row["value"]])).collect();
    }
    vec![json!([rows.len()])]
}

/// Answers the query of `kill9`.
fn aggregate(rows: &[Value]) -> Vec<Value> {
    let mut groups: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
    for row in rows {
        let number = |name: &str| row[name].as_u64().expect("a number");
        groups.entry((number("round"), number("client"))).or_default().push((number("seq"), number("slot")));
    }
    let groups = groups.into_iter().map(|((round, client), rows)| {
        let mut distinct = rows.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let slots = || rows.iter().map(|row| row.1);
        let (first, last) = (distinct.first().expect("a row").0, distinct.last().expect("a row").0);
        json!([round, client, rows.len(), distinct.len(), last, first, slots().min(), slots().max()])
    });
    groups.collect()
}

fn respond(status: u16, body: &str, chunked: bool, close: bool) -> Vec<u8> {
    let connection = if close { "Connection: close\r\n" } else { "" };
    let head = format!("HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\n{connection}");
    if chunked {
        let (left, right) = body.split_at(body.len() / 2);
        let chunk = |part: &str| {
            if part.is_empty() { String::new() } else { format!("{:x}\r\n{part}\r\n", part.len()) }
        };
        return format!("{head}Transfer-Encoding: chunked\r\n\r\n{}{}0\r\n\r\n", chunk(left), chunk(right))
            .into_bytes();
    }
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}
