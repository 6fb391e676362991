//! The goals of ingest on two cores, which the load generator shares, and the verdict on each run.

use crate::markdown::{ms, thousands};
use crate::report::{Claim, Sheet};
use crate::run::BenchRun;

/// Goal for batches of 100: events per second at the best number of connections.
pub const BULK_PER_S: f64 = 1_200_000.0;
/// Stretch goal for batches of 100, in events per second.
pub const BULK_STRETCH_PER_S: f64 = 1_500_000.0;
/// Goal for single events: events per second at the best number of connections.
pub const SINGLES_PER_S: f64 = 50_000.0;
/// Largest CPU time of the server per event up to its acknowledgement, in microseconds, for batches of 100.
pub const ACK_CPU_US_MAX: f64 = 0.8;
/// Number of connections that counts as very many. They must reach the share [`MANY_OF_BEST_MIN`] of the best throughput.
pub const MANY_CONNECTIONS: usize = 500;
pub const MANY_OF_BEST_MIN: f64 = 0.8;
/// Largest ratio of p99 to mean latency over very many connections: no client waits much longer than others.
pub const MANY_P99_OF_MEAN_MAX: f64 = 2.0;
/// Rate of the open loop as a share of the best throughput. Its p99 must be below [`OPEN_P99_MS_MAX`].
pub const OPEN_SHARE: f64 = 0.7;
pub const OPEN_P99_MS_MAX: f64 = 25.0;
/// Delays added to each fsync, in milliseconds. With each, very many connections must keep the share [`DELAYED_OF_UNDELAYED_MIN`]
/// of their throughput without it.
pub const DELAYS_MS: [u64; 2] = [2, 10];
pub const DELAYED_OF_UNDELAYED_MIN: f64 = 0.8;

/// Returns the run with the most events per second.
pub fn best(runs: &[BenchRun]) -> Option<&BenchRun> {
    runs.iter().max_by(|a, b| events_per_s(a).total_cmp(&events_per_s(b)))
}

pub fn events_per_s(run: &BenchRun) -> f64 {
    run.stream("events").units_per_second
}

fn connections(run: &BenchRun) -> usize {
    run.stream("events").connections
}

fn claim(claim: impl Into<String>, holds: bool, found: String) -> Claim {
    Claim { claim: claim.into(), holds, found }
}

/// Judges closed loops, one run for each number of connections. Only batches of 1 and of 100 events have goals.
pub fn judge_closed_loops(batch: usize, runs: &[BenchRun]) -> Vec<Claim> {
    let Some(best) = best(runs) else { return Vec::new() };
    let most = events_per_s(best);
    let found = format!("{} at {} connections", thousands(most), connections(best));
    match batch {
        1 => vec![claim(
            format!("{} single events/s", thousands(SINGLES_PER_S)),
            most >= SINGLES_PER_S,
            format!("{found}, {:.2} of it", most / SINGLES_PER_S),
        )],
        100 => judge_bulk(runs, best, &found),
        _ => Vec::new(),
    }
}

fn judge_bulk(runs: &[BenchRun], best: &BenchRun, found: &str) -> Vec<Claim> {
    let most = events_per_s(best);
    let mut claims = Vec::new();
    for (what, wanted) in [("", BULK_PER_S), (", the stretch", BULK_STRETCH_PER_S)] {
        claims.push(claim(
            format!("{} events/s{what}", thousands(wanted)),
            most >= wanted,
            format!("{found}, {:.2} of it", most / wanted),
        ));
    }
    if let Some(cpu) = best.figures.get("ack_cpu_us_per_event") {
        claims.push(claim(
            format!("at most {ACK_CPU_US_MAX} µs of CPU per event up to the acknowledgement"),
            *cpu <= ACK_CPU_US_MAX,
            format!("{cpu:.2} µs at {} connections", connections(best)),
        ));
    }
    if let Some(many) = runs.iter().find(|run| connections(run) == MANY_CONNECTIONS) {
        let share = events_per_s(many) / most.max(1e-9);
        claims.push(claim(
            format!("{MANY_CONNECTIONS} connections at least {:.0} % of the best", MANY_OF_BEST_MIN * 100.0),
            share >= MANY_OF_BEST_MIN,
            format!("{:.0} %, {} events/s", share * 100.0, thousands(events_per_s(many))),
        ));
        let warm = many.stream("events").warm;
        let ratio = warm.p99_ms / warm.mean_ms.max(1e-9);
        claims.push(claim(
            format!("{MANY_CONNECTIONS} connections: p99 at most {MANY_P99_OF_MEAN_MAX} times the mean"),
            ratio <= MANY_P99_OF_MEAN_MAX,
            format!("{ratio:.2}: {} and {} ms", ms(warm.p99_ms), ms(warm.mean_ms)),
        ));
    }
    claims
}

/// Judges an open loop at [`OPEN_SHARE`] of the best throughput.
pub fn judge_open_loop(run: &BenchRun) -> Claim {
    let stream = run.stream("events");
    let unsent = if stream.unsent > 0 { format!(", {} unsent", stream.unsent) } else { String::new() };
    claim(
        format!("open loop at {:.0} % of the best: p99 below {OPEN_P99_MS_MAX} ms", OPEN_SHARE * 100.0),
        stream.warm.p99_ms < OPEN_P99_MS_MAX,
        format!(
            "{} ms at {} and {} connections{unsent}",
            ms(stream.warm.p99_ms),
            stream.pace,
            stream.connections
        ),
    )
}

/// Judges very many connections with `delay_ms` added to each fsync.
pub fn judge_delay(delay_ms: u64, run: &BenchRun, undelayed: &BenchRun) -> Claim {
    let share = events_per_s(run) / events_per_s(undelayed).max(1e-9);
    claim(
        format!(
            "{delay_ms} ms added to each fsync: {MANY_CONNECTIONS} connections at least {:.0} % of without",
            DELAYED_OF_UNDELAYED_MIN * 100.0
        ),
        share >= DELAYED_OF_UNDELAYED_MIN,
        format!("{:.0} %, {} events/s", share * 100.0, thousands(events_per_s(run))),
    )
}

/// Renders all measured figures of ingest, one line per run.
pub fn sheet(title: &str, runs: &[BenchRun]) -> Sheet {
    const COLUMNS: [&str; 16] = [
        "run",
        "connections",
        "events/s",
        "of the best",
        "mean ms",
        "p50",
        "p99",
        "p99/mean",
        "p99.9",
        "longest",
        "CPU µs/event to the acknowledgement",
        "behind it",
        "generator",
        "log fsync p50 ms",
        "p99",
        "device bytes/event",
    ];
    let most = best(runs).map_or(0.0, events_per_s).max(1e-9);
    let rows = runs.iter().map(|run| {
        let stream = run.stream("events");
        let figure = |name: &str| run.figures.get(name).map_or("?".into(), |value| format!("{value:.2}"));
        let written = |bytes: u64| format!("{:.0}", bytes as f64 / stream.units.max(1) as f64);
        let warm = stream.warm;
        vec![
            run.name.clone(),
            stream.connections.to_string(),
            thousands(stream.units_per_second),
            format!("{:.0} %", stream.units_per_second / most * 100.0),
            ms(warm.mean_ms),
            ms(warm.p50_ms),
            ms(warm.p99_ms),
            format!("{:.2}", warm.p99_ms / warm.mean_ms.max(1e-9)),
            ms(warm.p999_ms),
            ms(warm.longest_ms),
            figure("ack_cpu_us_per_event"),
            figure("behind_cpu_us_per_event"),
            figure("client_cpu_us_per_event"),
            figure("log_fsync_p50_ms"),
            figure("log_fsync_p99_ms"),
            run.device_written_bytes.map_or("?".into(), written),
        ]
    });
    Sheet {
        title: format!(
            "{title}. CPU of the server's threads; \"behind\" are those that no acknowledgement waits for ({}). The generator \
             runs on the same cores, and what loopback costs is charged to whoever sends.",
            crate::process::BACKGROUND_THREADS.join(", ")
        ),
        columns: COLUMNS.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Summary;
    use crate::run::StreamResult;

    fn run(connections: usize, events_per_s: f64, mean_ms: f64, p99_ms: f64) -> BenchRun {
        let warm = Summary { mean_ms, p99_ms, ..Summary::default() };
        let stream = StreamResult {
            name: "events".into(),
            pace: "closed loop".into(),
            connections,
            units_per_second: events_per_s,
            warm,
            ..StreamResult::default()
        };
        let figures = [("ack_cpu_us_per_event".to_owned(), 0.7)].into();
        BenchRun { name: format!("{connections}"), streams: vec![stream], figures, ..BenchRun::default() }
    }

    fn held(claims: &[Claim]) -> Vec<bool> {
        claims.iter().map(|claim| claim.holds).collect()
    }

    #[test]
    fn the_best_is_named_and_each_wish_is_judged_by_itself() {
        let runs = [run(10, 900e3, 1.0, 5.0), run(100, 1.3e6, 7.0, 20.0), run(500, 1.1e6, 40.0, 70.0)];
        let claims = judge_closed_loops(100, &runs);
        assert_eq!(held(&claims), [true, false, true, true, true], "{claims:#?}");
        assert!(claims[0].found.contains("1,300,000 at 100 connections"), "{claims:#?}");
        assert!(claims[3].found.contains("85 %"), "{claims:#?}");

        let runs = [run(100, 1.3e6, 7.0, 20.0), run(500, 1.0e6, 40.0, 81.0)];
        assert_eq!(held(&judge_closed_loops(100, &runs)), [true, false, true, false, false]);
        assert_eq!(
            held(&judge_closed_loops(1, &[run(50, 49e3, 1.0, 2.0), run(200, 51e3, 4.0, 9.0)])),
            [true]
        );
        assert_eq!(held(&judge_closed_loops(1, &[run(50, 49e3, 1.0, 2.0)])), [false]);
        assert!(judge_closed_loops(10, &runs).is_empty() && judge_closed_loops(100, &[]).is_empty());
    }

    #[test]
    fn open_loops_and_delays_are_judged_by_their_limits() {
        assert!(judge_open_loop(&run(50, 840e3, 3.0, 24.9)).holds);
        assert!(!judge_open_loop(&run(50, 840e3, 3.0, 25.0)).holds);
        let undelayed = run(500, 1e6, 40.0, 70.0);
        assert!(judge_delay(2, &run(500, 801e3, 50.0, 90.0), &undelayed).holds);
        assert!(!judge_delay(10, &run(500, 799e3, 50.0, 90.0), &undelayed).holds);
    }

    #[test]
    fn the_sheet_has_a_cell_for_each_column() {
        let sheet = sheet("runs", &[run(10, 900e3, 1.0, 5.0), run(500, 450e3, 40.0, 70.0)]);
        assert!(sheet.rows.iter().all(|row| row.len() == sheet.columns.len()));
        assert_eq!((sheet.rows[1][3].as_str(), sheet.rows[1][7].as_str()), ("50 %", "1.75"));
    }
}
