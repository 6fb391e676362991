//! Hostile clients attack a server while others read. It must survive, answer every reader, and afterwards be as idle and as
//! small as before.
//!
//! `POLYNYA_TEST_HOSTILE_SECONDS` sets the duration of the attack; the default is 8 s.

#[path = "hostile/attacks.rs"]
mod attacks;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use attacks::{Attack, attacks};
use bench::process::ProcessSample;
use bench::{HttpClient, LoadTarget, child};
use polynya_e2e::program;
use serde_json::json;
use testkit::temp_dir;

const ATTACKERS: usize = 6;
const READERS: usize = 2;
/// Time between two requests of a reader.
const READ_PAUSE: Duration = Duration::from_millis(20);
const ROWS: u64 = 1_000;
/// The time limit of a statement, passed to the server as a setting.
const DEADLINE: &str = "2 s";
/// The share of one core, over two seconds, below which the server counts as idle.
const IDLE_CORES: f64 = 0.15;
const IDLE_WITHIN: Duration = Duration::from_secs(12);
const SHRUNK_WITHIN: Duration = Duration::from_secs(60);
const RSS_GROWTH_BYTES_MAX: u64 = 192 << 20;

/// The outcomes of the attacks.
#[derive(Debug, Default)]
struct Outcomes {
    answered: AtomicU64,
    refused: AtomicU64,
    /// Requests for which the server closed the connection, or took longer than the client's timeout.
    unanswered: AtomicU64,
}

fn seconds() -> u64 {
    std::env::var("POLYNYA_TEST_HOSTILE_SECONDS").map_or(8, |text| text.parse().expect("a number of seconds"))
}

/// Reads single rows by key and through SQL, in turns, until `stop` is set. Every answer must be the right row.
fn read(target: &LoadTarget, first: u64, stop: &AtomicBool) -> u64 {
    let mut client = HttpClient::new(target).timeout(Duration::from_secs(10));
    let mut reads = 0;
    while !stop.load(Ordering::Relaxed) {
        let id = (first + reads * 7) % ROWS;
        let body = json!({"sql": format!("SELECT name FROM victim WHERE id = {id}")}).to_string();
        let answer = match reads % 2 {
            0 => client.request("GET", &format!("/v1/tables/victim/rows/{id}"), "application/json", b""),
            _ => client.request("POST", "/v1/sql", "application/json", body.as_bytes()),
        };
        let answer = answer.unwrap_or_else(|error| panic!("read {reads}: {error}"));
        let text = String::from_utf8_lossy(&answer.body);
        assert_eq!(answer.status, 200, "read {reads} was refused: {text}");
        assert!(text.contains(&format!("\"row {id}\"")), "read {reads}: {text}");
        reads += 1;
        thread::park_timeout(READ_PAUSE);
    }
    reads
}

fn attack(target: &LoadTarget, attacks: &[Attack], first: usize, stop: &AtomicBool, outcomes: &Outcomes) {
    let mut client = HttpClient::new(target).timeout(Duration::from_secs(30));
    for attack in attacks.iter().cycle().skip(first) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        match client.request(attack.method, &attack.path, attack.content_type, &attack.body) {
            Ok(answer) => {
                let text = String::from_utf8_lossy(&answer.body);
                let is_bug = answer.status >= 500 && answer.status != 503;
                assert!(
                    !is_bug,
                    "{}: {} {}",
                    attack.name,
                    answer.status,
                    text.chars().take(300).collect::<String>()
                );
                let counter = if answer.is_success() { &outcomes.answered } else { &outcomes.refused };
                counter.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {
                outcomes.unanswered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Returns the resident memory of a process.
fn memory_bytes(pid: u32) -> u64 {
    let sample = ProcessSample::of(pid).unwrap();
    sample.until(&sample).memory_bytes
}

/// Waits until the resident memory of a process is at most `bytes_max`. Returns the memory and the time that it took. Freed
/// memory goes back to the machine when the process is quiet.
fn memory_after(pid: u32, bytes_max: u64) -> (u64, Duration) {
    let began = Instant::now();
    loop {
        let bytes = memory_bytes(pid);
        if bytes <= bytes_max {
            return (bytes, began.elapsed());
        }
        assert!(began.elapsed() < SHRUNK_WITHIN, "{} MiB are still resident", bytes >> 20);
        thread::park_timeout(Duration::from_millis(500));
    }
}

/// Returns the time until the process was idle. Panics if that takes longer than [`IDLE_WITHIN`].
fn idle_after(pid: u32) -> Duration {
    let began = Instant::now();
    loop {
        let before = ProcessSample::of(pid).unwrap();
        thread::park_timeout(Duration::from_secs(2));
        let used = before.until(&ProcessSample::of(pid).unwrap());
        if used.cpu_seconds / used.seconds < IDLE_CORES {
            return began.elapsed();
        }
        assert!(began.elapsed() < IDLE_WITHIN, "still busy: {used:?}");
    }
}

/// A key with read scope aborted the process by one statement, and four other statements kept both cores busy until a restart.
#[test]
fn hostile_clients_neither_end_the_server_nor_keep_it_busy_nor_stop_readers() {
    let attacked_for = Duration::from_secs(seconds());
    let _limit = testkit::limit(seconds() + 180);
    let root = temp_dir("hostile");
    let mut options = child::Options::new(program::polynya());
    options.root = root.path().to_owned();
    options.env.push(("POLYNYA_SQL_DEADLINE".into(), DEADLINE.into()));
    let mut home = child::Home::new(options).unwrap();
    let mut server = home.start().unwrap();
    let target = server.target().clone();
    let mut client = HttpClient::new(&target);
    let victim = json!({
        "columns": [{"name": "id", "type": "int64"}, {"name": "name", "type": "string"}],
        "primary_key": ["id"],
    });
    client.json("PUT", "/v1/tables/victim", Some(&victim)).unwrap();
    let rows: Vec<_> = (0..ROWS).map(|id| json!({"id": id, "name": format!("row {id}")})).collect();
    client.json("POST", "/v1/tables/victim/rows", Some(&json!(rows))).unwrap();
    let decimals = json!({"columns": [{"name": "v", "type": "decimal(38,2)"}]});
    client.json("PUT", "/v1/tables/decimals", Some(&decimals)).unwrap();
    let before = memory_bytes(server.pid());

    let attacks = attacks();
    let (stop, outcomes) = (AtomicBool::new(false), Outcomes::default());
    let reads: u64 = thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS as u64)
            .map(|n| {
                scope.spawn({
                    let (target, stop) = (&target, &stop);
                    move || read(target, n, stop)
                })
            })
            .collect();
        let attackers: Vec<_> = (0..ATTACKERS)
            .map(|n| {
                let (target, attacks, stop, outcomes) = (&target, &attacks, &stop, &outcomes);
                scope.spawn(move || attack(target, attacks, n * attacks.len() / ATTACKERS, stop, outcomes))
            })
            .collect();
        let end = Instant::now() + attacked_for;
        while Instant::now() < end && server.is_running() {
            thread::park_timeout(Duration::from_millis(200));
        }
        stop.store(true, Ordering::Relaxed);
        assert!(server.is_running(), "the server ended: {}", std::fs::read_to_string(server.log()).unwrap());
        for attacker in attackers {
            attacker.join().unwrap();
        }
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    let idle_after = idle_after(server.pid());
    let (after, shrunk_after) = memory_after(server.pid(), before + RSS_GROWTH_BYTES_MAX);
    println!(
        "{} s: {reads} reads, attacks: {outcomes:?}; idle after {:.1} s; resident {} MiB after {} s, before {} MiB",
        attacked_for.as_secs(),
        idle_after.as_secs_f64(),
        after >> 20,
        shrunk_after.as_secs(),
        before >> 20
    );
    // There are few reads if other tests use the cores, but each was answered.
    assert!(reads > attacked_for.as_secs(), "{reads} reads");
    let ready = client.json("GET", "/ready", None).unwrap();
    assert_eq!(ready["ready"], true, "{ready}");
}
