//! The feed of the page: one sample a second, made once for all viewers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use types::{Lsn, Principal, Scope, TableDef, TableSet, name};

use crate::app::Shared;
use crate::telemetry::{Class, Recent, Telemetry, WINDOW_SECONDS, Window};

/// Maximum number of tables in a sample. A viewer could not read more.
const TABLES_MAX: usize = 500;

/// The figures of one second that the page shows.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    made: Option<Instant>,
    /// All figures except those of the tables, which depend on the principal (A1).
    figures: Json,
    /// The tables in the order of their full names, each with its JSON.
    tables: Vec<(Arc<TableDef>, Json)>,
    /// The complete JSON for principals that may see everything.
    full_json: String,
}

/// Returns true if the sample is older than 1.5 s, so that a new viewer waits for the next one.
impl Sample {
    pub fn is_stale(&self) -> bool {
        self.made.is_none_or(|made| made.elapsed() > Duration::from_millis(1_500))
    }

    /// Returns the JSON of the sample for `principal`, with the tables that it may see.
    pub fn text(&self, principal: &Principal) -> String {
        let is_admin = principal.scope >= Scope::Admin;
        if principal.tables == TableSet::All && is_admin {
            return self.full_json.clone();
        }
        let exists = |def: &TableDef| engine::exists_for(&principal.tables, is_admin, def);
        let seen = self.tables.iter().filter(|(def, _)| exists(def));
        with_tables(&self.figures, seen.map(|(_, table)| table.clone()).collect())
    }
}

fn with_tables(figures: &Json, tables: Vec<Json>) -> String {
    let mut full_json = figures.clone();
    full_json["tables"] = Json::from(tables);
    full_json.to_string()
}

/// The counters of the previous second. They are kept even while nobody watches, so that the first sample covers one second only.
#[derive(Default)]
struct LastCounters {
    rows_in: u64,
    ingest_bytes: u64,
    ingest_requests: u64,
    errors: u64,
    next_rows: HashMap<String, u64>,
}

/// Rates of the last second, per second.
struct Rates {
    rows_in: f64,
    ingest_bytes: f64,
    ingest_requests: f64,
    errors: f64,
}

impl LastCounters {
    fn tick(&mut self, telemetry: &Telemetry, seconds: f64) -> Rates {
        let rate = |now: u64, before: &mut u64| {
            let more = now.saturating_sub(std::mem::replace(before, now));
            rounded(more as f64 / seconds)
        };
        Rates {
            rows_in: rate(telemetry.rows_in.load(Relaxed), &mut self.rows_in),
            ingest_bytes: rate(telemetry.ingest_bytes.load(Relaxed), &mut self.ingest_bytes),
            ingest_requests: rate(telemetry.ingest_requests.load(Relaxed), &mut self.ingest_requests),
            errors: rate(telemetry.errors(), &mut self.errors),
        }
    }
}

/// Runs once a second: updates the windows, and makes a sample while somebody watches.
pub async fn run(app: Shared) {
    let mut stopping = app.stopping.subscribe();
    let mut interval = tokio::time::interval(Duration::from_secs(1));
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut write, mut read, mut sql) = (Window::default(), Window::default(), Window::default());
    let mut syncs = std::collections::VecDeque::new();
    let mut before = LastCounters::default();
    let mut ticked = Instant::now();
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            _ = stopping.changed() => return,
        }
        let seconds = ticked.elapsed().as_secs_f64().max(0.001);
        ticked = Instant::now();
        let rates = before.tick(&app.telemetry, seconds);
        let write = write.tick(app.telemetry.latency(Class::Write));
        let read = read.tick(app.telemetry.latency(Class::Read));
        let sql = sql.tick(app.telemetry.latency(Class::Sql));
        syncs.push_back(app.engine.status().log.sync_latency);
        if syncs.len() > WINDOW_SECONDS + 1 {
            syncs.pop_front();
        }
        if app.live.receiver_count() == 0 {
            before.next_rows.clear();
            continue;
        }
        let recent = syncs[syncs.len() - 1].since(&syncs[0]);
        let fsync = [0.5, 0.99].map(|q| recent.quantile(q).as_secs_f64() * 1e3);
        let sample = sample(&app, &mut before.next_rows, &rates, seconds, [write, read, sql], fsync);
        app.live.send_replace(Arc::new(sample));
    }
}

fn sample(
    app: &Shared,
    before: &mut HashMap<String, u64>,
    rates: &Rates,
    seconds: f64,
    recent: [Recent; 3],
    fsync_ms: [f64; 2],
) -> Sample {
    let root = app.engine.root();
    let mut tables = Vec::new();
    let mut next_rows = HashMap::new();
    for table in root.tables().take(TABLES_MAX) {
        let def = table.def();
        let next = table.next_row().0;
        let was = before.get(&def.name).copied().unwrap_or(next);
        next_rows.insert(def.name.clone(), next);
        tables.push((
            def.clone(),
            json!({
                "name": name::short_table_name(&def.name),
                "rows": table.rows(),
                "bytes": table.bytes(),
                "rows_per_s": rounded(next.saturating_sub(was) as f64 / seconds),
                "keyed": def.is_keyed(),
                "columns": def.schema.columns.len(),
            }),
        ));
    }
    *before = next_rows;
    let ms = |duration: Duration| (duration.as_secs_f64() * 1e6).round() / 1e3;
    let latency = |recent: Recent| json!({ "per_s": rounded(recent.per_second), "p50_ms": ms(recent.p50), "p99_ms": ms(recent.p99), "max_ms": ms(recent.max) });
    let [write, read, sql] = recent;
    let figures = json!({
        "time_us": app.engine.env().clock.now(),
        "uptime_s": app.started.elapsed().as_secs(),
        "version": env!("CARGO_PKG_VERSION"),
        "ingest": {
            "rows_per_s": rates.rows_in,
            "bytes_per_s": rates.ingest_bytes,
            "requests_per_s": rates.ingest_requests,
            "p50_ms": ms(write.p50), "p99_ms": ms(write.p99), "max_ms": ms(write.max),
        },
        "reads": latency(read),
        "sql": latency(sql),
        "log": { "lsn": root.lsn().0, "fsync_p50_ms": rounded(fsync_ms[0]), "fsync_p99_ms": rounded(fsync_ms[1]) },
        "errors_per_s": rates.errors,
    });
    let full_json = with_tables(&figures, tables.iter().map(|(_, table)| table.clone()).collect());
    Sample { made: Some(Instant::now()), figures, tables, full_json }
}

fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Notifies the followers of tables when there is a new commit. One task polls the root for all of them: every 20 ms, and every
/// 250 ms while nobody follows.
pub async fn follow(app: Shared) {
    let mut stopping = app.stopping.subscribe();
    loop {
        let pause = if app.lsn.receiver_count() == 0 { 250 } else { 20 };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(pause)) => {}
            _ = stopping.changed() => return,
        }
        let newest: Lsn = app.engine.root().lsn();
        app.lsn.send_if_modified(|seen| std::mem::replace(seen, newest) != newest);
    }
}
