//! `/metrics`: all counters in the text format of Prometheus.

use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::app::App;
use crate::telemetry::{Class, Close};

/// Upper bounds of the buckets of histograms, in milliseconds.
const BOUNDS_MS: [f64; 16] =
    [0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0];

struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP polynya_{name} {help}\n# TYPE polynya_{name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str("polynya_");
        self.0.push_str(name);
        for (i, (key, label)) in labels.iter().enumerate() {
            let escaped = label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{key}=\"{escaped}\"", if i == 0 { "{" } else { "," });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.line(name, &[], value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.one(name, "counter", help, value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.one(name, "gauge", help, value);
    }
}

/// The figures that a principal may see besides those of its tables. Sums over all tables are withheld from a principal that may
/// not see all tables: by subtracting its own it would learn the size of the others.
#[derive(Clone, Copy, Debug)]
pub struct Visibility {
    pub admin: bool,
    /// True if every table exists for the principal.
    pub engine: bool,
    /// True if it may also see every row. Of a vault, only admins see rows that are not published.
    pub rows: bool,
}

/// Returns the whole text. `tables` are the tables that the principal may see, `visibility` the other figures. This takes the
/// locks of the lists of locks and heartbeats, so it is not on the read path.
pub fn text(app: &App, tables: &[Arc<table::Snapshot>], visibility: Visibility) -> String {
    let mut t = Text(String::with_capacity(16 << 10));
    t.head("info", "gauge", "Version of this server.");
    t.line("info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    t.gauge("uptime_seconds", "Seconds since the server started.", app.started.elapsed().as_secs());
    requests(&mut t, app);
    connections(&mut t, app);
    if visibility.engine {
        engine(&mut t, app, visibility.rows);
    }
    sql(&mut t, app);
    ask(&mut t, app);
    derived(&mut t, app, tables);
    threads(&mut t);
    site(&mut t, app);
    for component in &app.options.components {
        for figure in
            component.report().figures.into_iter().filter(|figure| visibility.admin || !figure.for_admins)
        {
            t.one(figure.name, figure.kind, figure.help, figure.value);
        }
    }
    t.0
}

fn site(t: &mut Text, app: &App) {
    let root = app.engine.root();
    let table = app.options.site.as_deref().and_then(|table| root.table(table));
    let Some(position) = table.and_then(|table| root.derived(site::NAME, table.def().id)) else { return };
    let Some(site) = position.published::<site::Site>() else { return };
    t.gauge("site_pages", "Addresses of the published site.", site.vault.page_count());
    t.gauge("site_notes", "Published notes.", site.vault.cards().count());
    t.gauge("site_lsn", "The commit up to which the pages are rendered.", position.checkpoint.lsn.0);
}

fn requests(t: &mut Text, app: &App) {
    let telemetry = &app.telemetry;
    t.head("requests_total", "counter", "Requests by class of route and class of status.");
    for class in Class::ALL {
        for (i, count) in telemetry.statuses(class).into_iter().enumerate() {
            t.line("requests_total", &[("class", class.name()), ("status", &format!("{}xx", i + 2))], count);
        }
    }
    t.head("request_seconds", "histogram", "From the request's head to its answer's head.");
    for class in Class::ALL {
        let counts = telemetry.latency(class).counts();
        for bound in BOUNDS_MS {
            let limit = Duration::from_secs_f64(bound / 1e3);
            let le = format!("{}", bound / 1e3);
            t.line("request_seconds_bucket", &[("class", class.name()), ("le", &le)], counts.at_most(limit));
        }
        t.line("request_seconds_bucket", &[("class", class.name()), ("le", "+Inf")], counts.count());
        t.line("request_seconds_sum", &[("class", class.name())], counts.sum_us as f64 / 1e6);
        t.line("request_seconds_count", &[("class", class.name())], counts.count());
    }
    t.gauge(
        "requests_running",
        "Requests whose answer is not read to its end.",
        telemetry.requests_running.load(Relaxed),
    );
    t.counter("request_bytes_total", "Bytes of bodies read.", telemetry.bytes_in.load(Relaxed));
    t.counter("response_bytes_total", "Bytes of bodies sent.", telemetry.bytes_out.load(Relaxed));
    t.counter("ingested_rows_total", "Rows committed through POST rows.", telemetry.rows_in.load(Relaxed));
    t.counter(
        "ingest_lost_rows_total",
        "Rows that ack=memory answered 202 for, and that were not committed after all.",
        telemetry.rows_lost.load(Relaxed),
    );
    t.counter(
        "ingested_bytes_total",
        "Bytes of the bodies of inserts, as sent.",
        telemetry.ingest_bytes.load(Relaxed),
    );
    t.counter(
        "paced_requests_total",
        "Requests that were made to wait because of debt, lag or the memory of bodies.",
        telemetry.paced.load(Relaxed),
    );
    t.gauge(
        "body_bytes_held",
        "Bytes of bodies being read or decoded.",
        telemetry.body_bytes_held.load(Relaxed),
    );
    t.gauge("body_bytes_held_max", "The bound of body_bytes_held.", app.options.body_bytes_total_max);
    t.counter(
        "unrecorded_requests_total",
        "Requests that found the recorder's queue full.",
        telemetry.recorded_dropped.load(Relaxed),
    );
    t.counter("work_jobs_total", "Jobs given to the work threads.", telemetry.work_jobs.load(Relaxed));
    t.gauge("work_jobs_waiting", "Jobs that wait for a work thread.", app.work.waiting());
    t.gauge("work_jobs_waiting_max", "The bound of work_jobs_waiting.", app.options.work_queue_max);
}

fn connections(t: &mut Text, app: &App) {
    let telemetry = &app.telemetry;
    t.gauge("connections_open", "Open connections.", telemetry.connections_open.load(Relaxed));
    t.gauge("connections_open_max", "The bound of connections_open.", app.options.connections_max);
    t.counter("connections_total", "Connections accepted.", telemetry.connections_total.load(Relaxed));
    t.head("connections_closed_total", "counter", "Connections that the server ended, by reason.");
    for reason in Close::ALL {
        t.line("connections_closed_total", &[("reason", reason.name())], telemetry.closes(*reason));
    }
}

fn engine(t: &mut Text, app: &App, sees_rows: bool) {
    let s = app.engine.status();
    t.gauge("lsn", "The last commit that readers see.", s.lsn);
    t.gauge("tables", "Tables.", s.tables);
    t.counter("commits_total", "Commits.", s.commits);
    t.counter("commit_groups_total", "Commit groups, each one frame of the log.", s.groups);
    if sees_rows {
        t.counter("rows_total", "Rows inserted.", s.rows);
        t.counter("deletes_total", "Row versions ended.", s.deletes);
    }
    refused(t, app, s.refused);
    t.counter("conflicts_total", "Transactions that lost against another.", s.conflicts);
    t.gauge("transactions_open", "Transactions that are open.", s.transactions_open as u64);
    t.gauge("transactions_bytes", "Bytes that open transactions have written.", s.transactions_bytes);
    t.counter(
        "transactions_expired_total",
        "Transactions that were rolled back because their time was up.",
        s.transactions_expired,
    );
    if let Ok(memory) = app.engine.idempotency_stats() {
        let oldest = memory.oldest.map_or(0, |oldest| app.engine.env().clock.now().saturating_sub(oldest));
        t.gauge("idempotency_keys", "Requests that are remembered by their key.", memory.requests);
        t.gauge("idempotency_oldest_seconds", "Age of the oldest remembered request.", oldest as f64 / 1e6);
    }
    t.gauge("inbox_bytes", "Bytes that wait for the commit thread.", s.inbox_bytes);
    t.gauge("head_bytes", "Bytes of rows that are in no segment yet.", s.head_bytes);
    t.gauge("debt_bytes", "Head and inbox bytes, by which ingest is paced.", s.debt_bytes);
    t.gauge("debt_soft_bytes", "Debt from which writers wait.", s.debt_soft_bytes);
    t.gauge("debt_hard_bytes", "Debt at which writers are refused.", s.debt_hard_bytes);
    t.gauge("roots_retired", "Replaced roots that somebody still holds.", s.roots_retired);
    t.gauge("oldest_root_seconds", "Age of the oldest retired root.", s.oldest_root_age.as_secs_f64());
    t.gauge("held_bytes", "Bytes of replaced files that stay while a snapshot holds them.", s.held_bytes);
    t.gauge("past_bytes", "Bytes of files that hold rows which ended, for AS OF.", s.past_bytes);
    t.counter("seals_total", "Heads sealed into segments.", s.seals);
    t.counter("compactions_total", "Compactions.", s.compactions);
    t.counter("compressions_total", "Compactions that compressed a cold segment.", s.compressions);
    t.counter("evictions_total", "Segments whose rows were evicted to the lake.", s.evictions);
    t.counter("manifests_total", "Manifests written.", s.manifests);
    t.counter("background_bytes_total", "Bytes written by seals and compactions.", s.background_bytes);
    t.counter("background_errors_total", "Background work that failed.", s.background_errors);
    t.counter("removed_segments_total", "Segments removed after they were replaced.", s.removed_segments);
    t.gauge(
        "damaged_segments",
        "Segments in which damage was found since the start.",
        app.engine.root().damaged_segments(),
    );
    t.gauge("writes_refused", "1 while writes are refused for good.", u8::from(s.write_error.is_some()));
    t.gauge("log_durable_lsn", "The last durable commit.", s.log.durable_lsn);
    t.gauge("log_appended_lsn", "The last commit written to the log.", s.log.appended_lsn);
    t.counter("log_bytes_total", "Bytes of frames written.", s.log.bytes_written);
    t.counter("log_frames_total", "Frames written.", s.log.frames);
    t.counter("log_rotations_total", "Changes to a new log file.", s.log.rotations);
    t.gauge("log_files", "Log files in use.", s.log.files);
    if let Some(archive) = &s.archive {
        t.gauge("archive_lsn", "The last commit in the log's archive.", archive.lsn);
        t.gauge(
            "archive_files_waiting",
            "Log files kept because the archive lacks them.",
            archive.files_waiting,
        );
        t.counter("archive_bytes_total", "Bytes archived.", archive.bytes);
        t.counter(
            "archive_gaps_total",
            "Parts of the log that were removed before they were archived.",
            archive.gaps,
        );
        t.gauge(
            "archive_failing",
            "1 while the archive cannot be written to.",
            u8::from(archive.error.is_some()),
        );
    }
    t.head("log_fsync_seconds", "summary", "Duration of the log's fsyncs since the start.");
    for q in [0.5, 0.99, 0.999, 1.0] {
        let label = q.to_string();
        t.line("log_fsync_seconds", &[("quantile", &label)], s.log.sync_latency.quantile(q).as_secs_f64());
    }
    t.line("log_fsync_seconds_count", &[], s.log.syncs);
    let mean = if s.groups == 0 { 0.0 } else { s.commits as f64 / s.groups as f64 };
    t.gauge("commit_group_size_mean", "Commits of a group, on average since the start.", mean);
    if let Ok(free) = app.engine.env().disk.free_bytes(app.engine.dir()) {
        t.gauge("disk_free_bytes", "Free bytes where the data is.", free);
    }
}

/// Writes the requests that were answered 429 with the code `busy`, including calls of this process that were refused with it.
fn refused(t: &mut Text, app: &App, engine: engine::RefusedCounts) {
    t.head("refused_busy_total", "counter", "Requests refused because of too much load, by reason.");
    let telemetry = &app.telemetry;
    for (reason, count) in [
        ("debt", engine.debt),
        ("inbox", engine.inbox),
        ("lag", engine.lag),
        ("transactions", engine.transactions),
        ("bodies", telemetry.bodies_refused.load(Relaxed)),
        ("work", app.work.refused()),
        ("copies", app.copies.refused()),
        ("sql", app.sql.status().refused),
    ] {
        t.line("refused_busy_total", &[("reason", reason)], count);
    }
}

fn sql(t: &mut Text, app: &App) {
    let s = app.sql.status();
    t.gauge("sql_running", "Statements that are running.", s.running);
    t.gauge("sql_oldest_seconds", "Age of the oldest running or waiting statement.", s.oldest.as_secs_f64());
    t.gauge("sql_waiting", "Heavy statements that wait for one of their kind to end.", s.waiting);
    t.counter("sql_statements_total", "Statements.", s.started);
    t.counter("sql_direct_statements_total", "Statements that were lookups without a plan.", s.direct);
    t.counter("sql_heavy_statements_total", "Statements that were heavy work.", s.heavy);
    t.counter("sql_refused_total", "Statements refused because too many waited.", s.refused);
    t.gauge("sql_memory_bytes", "Bytes that sorts, joins and groupings hold.", s.memory_bytes);
    t.gauge("sql_spilled_bytes", "Bytes of spill files.", s.spilled_bytes);
    t.gauge(
        "copies_running",
        "Files that are being copied in or out by COPY.",
        app.copies.running(&app.options),
    );
    t.gauge("copy_spooled_bytes", "Bytes of incoming Parquet files on disk.", app.copies.spooled());
}

fn ask(t: &mut Text, app: &App) {
    let s = app.ask.status();
    t.counter("ask_questions_total", "Questions in plain words.", s.asked);
    t.counter(
        "ask_evaluations_total",
        "Questions for which sources were queried; equal questions share one evaluation.",
        s.evaluations,
    );
    t.gauge("ask_running", "Evaluations that are running.", s.running);
    t.gauge("ask_kept", "Answers in the cache.", s.kept);
}

fn derived(t: &mut Text, app: &App, tables: &[Arc<table::Snapshot>]) {
    tiers(t, tables);
    if let Some(reads) = &app.options.lake_reads {
        lake_reads(t, reads.counts());
    }
    if let Some(search) = &app.options.search {
        t.gauge("searches_waiting", "Searches that run or wait for a thread.", search.waiting());
    }
    let standing: Vec<_> = tables
        .iter()
        .flat_map(|table| {
            app.engine.materializer_progress(table).into_iter().map(move |standing| (table, standing))
        })
        .collect();
    let mut figure = |name: &str, help: &str, value: &dyn Fn(&engine::MaterializerProgress) -> f64| {
        t.head(name, "gauge", help);
        for (table, standing) in &standing {
            let table = types::name::short_table_name(&table.def().name);
            t.line(name, &[("table", table), ("materializer", standing.materializer)], value(standing));
        }
    };
    figure("derived_missing_rows", "Row ids that a materializer has not reached.", &|s| s.missing as f64);
    figure(
        "derived_lag",
        "Missing rows as a share of what readers may scan; from 0.5 on writers wait.",
        &|s| s.lag,
    );
    figure("derived_building", "1 until a materializer has caught up once.", &|s| {
        f64::from(u8::from(s.state == engine::MaterializerPhase::Building))
    });
    figure("derived_failing", "1 while the last step of a materializer failed.", &|s| {
        f64::from(u8::from(s.error.is_some()))
    });
}

/// Writes the figures of reads of rows that are only in the lake.
fn lake_reads(t: &mut Text, counts: lake::ReadCounts) {
    t.counter("lake_read_row_groups_total", "Row groups of which a part was decoded.", counts.row_groups);
    t.counter(
        "lake_read_parts_total",
        "Parts of row groups that were decoded, up to 16,384 rows each.",
        counts.parts,
    );
    t.counter("lake_read_bytes_total", "Bytes that were decoded.", counts.bytes);
    t.counter(
        "lake_read_found_total",
        "Columns of parts that were found decoded in the cache.",
        counts.found,
    );
    t.counter("lake_read_requests_total", "Requests to the object store.", counts.requests);
    t.gauge("lake_read_kept_bytes", "Bytes of decoded columns in the cache.", counts.cached_bytes);
    t.gauge("lake_read_kept_bytes_max", "The bound of lake_read_kept_bytes.", counts.cached_bytes_max);
}

/// Writes the figures of tables that evict rows.
fn tiers(t: &mut Text, tables: &[Arc<table::Snapshot>]) {
    let tiered: Vec<_> =
        tables.iter().filter(|table| table.def().options.hot.is_some() || table.has_evicted()).collect();
    let mut figure = |name: &str, help: &str, value: &dyn Fn(&table::Snapshot) -> u64| {
        t.head(name, "gauge", help);
        for table in &tiered {
            t.line(name, &[("table", types::name::short_table_name(&table.def().name))], value(table));
        }
    };
    figure("hot_rows", "Rows on this machine.", &|table| table.rows() - table.evicted().0);
    figure("hot_bytes", "Bytes of rows on this machine, in memory and files.", &engine::hot_bytes);
    figure("lake_only_rows", "Rows that are only in the lake.", &|table| table.evicted().0);
    figure("lake_only_bytes", "Approximate bytes that these rows would take on this machine.", &|table| {
        table.evicted().1
    });
}

fn threads(t: &mut Text) {
    let locks = vfs::lock_stats();
    t.head("lock_acquisitions_total", "counter", "Times a lock was taken.");
    locks.iter().for_each(|l| t.line("lock_acquisitions_total", &[("lock", l.name)], l.acquisitions));
    t.head("lock_waits_total", "counter", "Times that another thread held the lock.");
    locks.iter().for_each(|l| t.line("lock_waits_total", &[("lock", l.name)], l.waits));
    t.head("lock_wait_seconds_total", "counter", "Total time of those waits.");
    locks.iter().for_each(|l| t.line("lock_wait_seconds_total", &[("lock", l.name)], l.waited.as_secs_f64()));
    t.head("read_path_lock_waits_total", "counter", "Waits of readers; anything but 0 is a defect (R1).");
    locks
        .iter()
        .for_each(|l| t.line("read_path_lock_waits_total", &[("lock", l.name)], l.read_path_lock_waits));
    t.counter(
        "read_major_faults_total",
        "Times that a thread that answers reads waited for the disk because of a major page fault.",
        vfs::read_major_faults(),
    );
    let beats = vfs::heartbeat::heartbeats();
    t.head("thread_busy_seconds", "gauge", "Duration of the current turn of a serving thread.");
    for beat in &beats {
        let busy = beat.busy_for.unwrap_or_default().as_secs_f64();
        t.line("thread_busy_seconds", &[("thread", &beat.name), ("class", beat.class)], busy);
    }
    t.head(
        "thread_longest_turn_seconds",
        "gauge",
        "The longest turn of a serving thread in the last seconds.",
    );
    for beat in &beats {
        let longest = beat.longest_recent.as_secs_f64();
        t.line("thread_longest_turn_seconds", &[("thread", &beat.name), ("class", beat.class)], longest);
    }
}
