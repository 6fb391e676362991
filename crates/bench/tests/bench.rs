//! Runs the workloads against a small server with known faults, which a benchmark must notice.

mod fake;

use std::path::PathBuf;
use std::time::Duration;

use fake::Faults;
use polynya_bench::ingest::{self, Ack, sweep};
use polynya_bench::{LoadTarget, Pace, Report, Timing, child, kill9, lake_ingest, reads, sql_small};

fn quick() -> Timing {
    Timing {
        warm: Duration::from_millis(100),
        measure: Duration::from_millis(400),
        grace: Duration::from_secs(20),
    }
}

fn target(faults: Faults) -> LoadTarget {
    LoadTarget::new(&fake::start(faults)).expect("loopback").pid(std::process::id())
}

fn options(faults: Faults) -> ingest::Options {
    ingest::Options {
        connections: vec![4],
        batch: 10,
        timing: quick(),
        pool_events: 200,
        settle: Duration::ZERO,
        ..ingest::Options::new(target(faults))
    }
}

fn run(options: &ingest::Options) -> Report {
    ingest::run(options, &mut |_| {}).expect("the workload can be run")
}

#[test]
fn a_stall_is_charged_to_every_request_that_should_have_been_sent_meanwhile() {
    let _limit = testkit::limit(60);
    // 500 requests per second go over 4 connections; the 100th insert stalls all of them for 200 ms. About 100 requests fall into
    // the stall. Without coordinated omission half of them wait for more than 100 ms. Only 4 were in flight.
    let stall = Faults { stall: Some((100, Duration::from_millis(200))), ..Faults::default() };
    let report = run(&ingest::Options { rate: Some(5000.0), ..options(stall) });
    report.verdict().expect("nothing else went wrong");
    let stream = report.runs[0].stream("events");
    assert_eq!((stream.cold.count, stream.warm.count), (50, 200), "all that was intended, sent or not");
    assert!(stream.warm.longest_ms >= 195.0, "{stream:?}");
    // Half of the 200 measured requests waited, evenly from 200 ms down to nothing.
    assert!(stream.warm.p90_ms >= 120.0, "{stream:?}");
    assert!(
        stream.warm_from_sent.p90_ms < stream.warm.p90_ms / 2.0,
        "only requests in flight were slow: {stream:?}"
    );
}

#[test]
fn everything_that_was_acknowledged_is_counted_in_every_mode() {
    let _limit = testkit::limit(60);
    for faults in [
        Faults::default(),
        Faults { chunked: true, ..Faults::default() },
        Faults { close_after: Some(7), ..Faults::default() },
    ] {
        for (batch, ack, rate) in [(10, Ack::Durable, None), (1, Ack::Memory, Some(1000.0))] {
            let timing = Timing { measure: Duration::from_millis(100), ..quick() };
            let report =
                run(&ingest::Options { batch, ack, rate, timing, threads: 2, ..options(faults.clone()) });
            report.verdict().unwrap_or_else(|error| panic!("{faults:?}: {error}"));
            let stream = report.runs[0].stream("events");
            assert!(stream.units > 0 && stream.units_in_all >= stream.units, "{stream:?}");
            assert_eq!(stream.reconnects > 0, faults.close_after.is_some(), "{stream:?}");
            assert!(report.to_markdown().contains(&report.work_hash));
        }
    }
}

#[test]
fn an_answer_other_than_2xx_fails_the_run() {
    let _limit = testkit::limit(60);
    for status in [500, 429, 302] {
        let report = run(&options(Faults { status: Some((20, status)), ..Faults::default() }));
        let error = report.verdict().expect_err("a wrong status");
        assert!(error.message().contains(&format!("found {status}")), "{error}");
    }
}

#[test]
fn rows_that_were_acknowledged_and_not_stored_fail_the_run() {
    let _limit = testkit::limit(60);
    let report = run(&options(Faults { forget: Some(20), ..Faults::default() }));
    let error = report.verdict().expect_err("ten rows are missing");
    assert!(error.message().contains("rows stored differ from rows acknowledged"), "{error}");
}

#[test]
fn a_server_that_is_not_there_is_an_error_with_a_hint() {
    let address = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("bound").to_string()
    };
    let target = LoadTarget::new(&address).expect("loopback");
    assert!(ingest::run(&ingest::Options::new(target), &mut |_| {}).is_err());
}

#[test]
fn a_rate_that_the_server_cannot_follow_is_reported_as_it_is() {
    let _limit = testkit::limit(60);
    // Two connections at 20 ms each answer 100 requests per second; the rate is 1000.
    let slow = Faults { delay: Duration::from_millis(20), ..Faults::default() };
    let timing = Timing { grace: Duration::from_millis(300), ..quick() };
    let report =
        run(&ingest::Options { connections: vec![2], rate: Some(10_000.0), timing, ..options(slow) });
    report.verdict().expect("slow is not wrong");
    let stream = report.runs[0].stream("events");
    assert!(stream.unsent > 100, "{stream:?}");
    assert_eq!(stream.warm.count, 400, "unsent operations have a latency too");
    assert!(stream.warm.p99_ms > 300.0, "{stream:?}");
}

#[test]
fn a_comparison_finds_which_server_is_slower_and_by_how_much() {
    let _limit = testkit::limit(60);
    let timing = Timing { warm: Duration::from_millis(30), measure: Duration::from_millis(150), ..quick() };
    let side = |delay| ingest::Options {
        timing,
        ..options(Faults { delay: Duration::from_millis(delay), ..Faults::default() })
    };
    let report =
        ingest::compare(("quick", &side(4)), ("slow", &side(12)), 4, 3, &mut |_| {}).expect("both run");
    report.verdict().expect("nothing went wrong");
    let events =
        report.comparisons.iter().find(|compared| compared.figure == "events_per_s").expect("compared");
    assert!(events.clear, "{events:?}");
    assert!(
        (0.25..0.55).contains(&events.ratio.median),
        "a third, less what a busy machine blurs: {events:?}"
    );
    assert!(report.to_markdown().contains("| events_per_s |"));
}

#[test]
fn reads_find_their_rows_alone_and_beside_writers_and_heavy_sql() {
    let _limit = testkit::limit(60);
    let timing = Timing { warm: Duration::from_millis(20), measure: Duration::from_millis(80), ..quick() };
    let small = |options: reads::Options| reads::Options {
        rows: 50,
        rate: 500.0,
        connections: 2,
        writers: 2,
        heavy: 2,
        pairs: 1,
        timing,
        ..options
    };
    let report =
        reads::run(&small(reads::Options::new(target(Faults::default()))), &mut |_| {}).expect("it runs");
    report.verdict().expect("nothing went wrong");
    assert_eq!(report.runs.len(), 5);
    assert_eq!(report.claims.len(), 1, "R3 is judged");
    assert!(report.comparisons.iter().any(|compared| compared.figure == "voluntary_switches_per_read"));

    let report =
        sql_small::run(&small(sql_small::options(target(Faults::default()))), &mut |_| {}).expect("it runs");
    report.verdict().expect("nothing went wrong");
}

#[test]
fn a_row_that_is_missing_fails_the_reads() {
    let _limit = testkit::limit(60);
    let server = target(Faults { forget: Some(2), ..Faults::default() });
    let options = reads::Options { rows: 2000, ..reads::Options::new(server) };
    let error = reads::run(&options, &mut |_| {}).expect_err("half the rows are not there");
    assert!(error.message().contains("which then has 1000"), "{error}");
}

/// Acts as the server that the tests below start and kill, by running this binary. It is not a test otherwise.
#[test]
fn this_binary_serves_when_it_is_told_to() {
    let Ok(mode) = std::env::var("POLYNYA_BENCH_FAKE") else { return };
    let delay = std::env::var("POLYNYA_BENCH_SYNC_DELAY").unwrap_or_default();
    let delay = delay.strip_suffix(" ms").and_then(|ms| ms.parse().ok()).unwrap_or(0);
    let faults = match mode.as_str() {
        "honest" => Faults { delay: Duration::from_millis(delay), ..Faults::default() },
        _ => Faults { write_later: Some(Duration::from_millis(30)), ..Faults::default() },
    };
    let data = PathBuf::from(std::env::var_os("POLYNYA_DATA").expect("set by the harness"));
    fake::run(&std::env::var("POLYNYA_LISTEN").expect("set by the harness"), data, faults);
}

fn fake_child(mode: &str, root: &testkit::TempDir) -> child::Options {
    let mut child = child::Options::new(std::env::current_exe().expect("this binary"));
    child.args =
        ["--exact", "this_binary_serves_when_it_is_told_to", "--nocapture"].map(String::from).to_vec();
    child.env = vec![("POLYNYA_BENCH_FAKE".into(), mode.into())];
    child.root = root.path().to_path_buf();
    child
}

fn killed(mode: &str) -> (Report, testkit::TempDir) {
    let root = testkit::temp_dir("bench");
    let child = fake_child(mode, &root);
    let options = kill9::Options {
        rounds: 3,
        clients: 3,
        batch: 5,
        kill_after: (Duration::from_millis(60), Duration::from_millis(120)),
        ..kill9::Options::new(child)
    };
    (kill9::run(&options, &mut |_| {}).expect("it runs"), root)
}

#[test]
fn everything_wanted_of_ingest_is_measured_each_with_a_server_of_its_own() {
    let _limit = testkit::limit(120);
    let root = testkit::temp_dir("bench");
    let timing = Timing { warm: Duration::from_millis(50), measure: Duration::from_millis(200), ..quick() };
    let options = sweep::Options {
        connections: vec![2, 4],
        pool_events: 200,
        timing,
        settle: Duration::ZERO,
        ..sweep::Options::new(fake_child("honest", &root))
    };
    let mut said = Vec::new();
    let report = sweep::run(&options, &mut |line| said.push(line.to_owned())).expect("it runs");
    report.verdict().expect("nothing went wrong");
    let names: Vec<&str> = report.runs.iter().map(|run| run.name.as_str()).collect();
    let expected =
        ["bulk", "bulk", "open loop, 70 %", "single", "single", "bulk, fsync + 2 ms", "bulk, fsync + 10 ms"];
    assert_eq!(names, expected, "{said:?}");
    // Bulk has two claims and one on its CPU, the open loop one, singles one, delays two. Claims on 500 connections are missing.
    assert_eq!(report.claims.len(), 7, "{:#?}", report.claims);
    assert!(report.claims.iter().any(|claim| claim.claim.contains("10 ms added")), "{:#?}", report.claims);
    // The open loop derives its rate from the best closed loop, and the delay reaches the server.
    let per_second = |at: usize| report.runs[at].stream("events").units_per_second;
    let rate: f64 = report.runs[2].stream("events").pace.trim_end_matches("/s").parse().expect("a rate");
    let best = per_second(0).max(per_second(1));
    assert!((rate * 100.0 - best * 0.7).abs() < 2.0, "{rate} batches of {best} events");
    assert!(report.runs[6].stream("events").warm.mean_ms >= 10.0, "{}", report.to_markdown());
    assert!(report.to_markdown().contains("| wanted | found | |"), "{}", report.to_markdown());
    let left = std::fs::read_dir(root.path()).expect("it is there").count();
    assert_eq!(left, 0, "directories are removed");
}

#[test]
fn a_part_that_fails_is_named_and_the_others_are_measured() {
    let _limit = testkit::limit(120);
    let root = testkit::temp_dir("bench");
    let timing = Timing { warm: Duration::from_millis(20), measure: Duration::from_millis(50), ..quick() };
    let mut child = fake_child("honest", &root);
    // The fourth start is the one for the first single events.
    child.program = "/bin/sh".into();
    let program = std::env::current_exe().expect("this binary");
    let counter = root.path().join("starts");
    let script = format!(
        "echo >> {0}; [ $(wc -l < {0}) = 4 ] && exit 3; exec {1} --exact {2} --nocapture",
        counter.display(),
        program.display(),
        "this_binary_serves_when_it_is_told_to"
    );
    child.args = ["-c".to_owned(), script].to_vec();
    let options = sweep::Options {
        connections: vec![1, 2],
        pool_events: 100,
        timing,
        settle: Duration::ZERO,
        ..sweep::Options::new(child)
    };
    let report = sweep::run(&options, &mut |_| {}).expect("it runs");
    let error = report.verdict().expect_err("one part is missing");
    assert!(error.message().contains("single, 1 connections"), "{error}");
    assert_eq!(report.runs.len(), 6, "{:?}", report.failures());
}

#[test]
fn a_steady_stream_is_measured_after_the_quiet_and_a_lake_that_cannot_be_read_fails_it() {
    let _limit = testkit::limit(120);
    let root = testkit::temp_dir("bench");
    let options = lake_ingest::Options {
        rate: 2_000.0,
        measure: Duration::from_millis(2_200),
        warm: Duration::from_millis(100),
        quiet: Duration::from_millis(1),
        connections: 4,
        batch: 10,
        pool_events: 200,
        ..lake_ingest::Options::new(fake_child("honest", &root))
    };
    let mut said = Vec::new();
    let report = lake_ingest::run(&options, &mut |line| said.push(line.to_owned())).expect("it runs");
    let error = report.verdict().expect_err("the fake has no lake");
    assert!(error.message().contains("where the lake of bench_events is"), "{error}");
    let figures = &report.runs[0].figures;
    assert_eq!(figures["events"], 4600.0, "every batch of 2.3 s was acknowledged");
    assert!(figures["quiet_p999_ms"] > 0.0 && figures["p999_ms"] > 0.0, "{figures:?}");
    assert!(report.claims.iter().any(|claim| claim.claim.contains("of the quiet")), "{:?}", report.claims);
    assert!(report.sheets[0].rows.len() >= 2, "{said:?}");
    assert!(said.iter().any(|line| line.contains("RssAnon")), "{said:?}");
}

#[test]
fn an_honest_server_survives_being_killed() {
    let _limit = testkit::limit(60);
    let (report, _root) = killed("honest");
    report.verdict().expect("every acknowledged row is there once");
    assert!(report.claims[0].holds);
    assert!(report.runs[0].figures["acknowledged_rows"] > 0.0);
}

#[test]
fn a_server_that_acknowledges_before_it_writes_is_caught() {
    let _limit = testkit::limit(60);
    let (report, _root) = killed("lying");
    let error = report.verdict().expect_err("rows were lost");
    assert!(error.message().contains("acknowledged rows are lost"), "{error}");
    assert!(error.message().contains("the directory is kept at"), "{error}");
}

#[test]
fn a_child_that_dies_at_once_shows_what_it_printed() {
    let _limit = testkit::limit(60);
    let root = testkit::temp_dir("bench");
    let mut options = child::Options::new("/bin/sh");
    options.args = ["-c", "echo the port is taken; exit 3"].map(String::from).to_vec();
    options.root = root.path().to_path_buf();
    let error = child::Home::new(options).and_then(|mut home| home.start()).expect_err("it ended");
    assert!(error.message().contains("the port is taken"), "{error}");
}

#[test]
fn a_pace_is_described_for_people() {
    assert_eq!(Pace::Open { per_second: 1000.0 }.describe(), "1000/s");
}
