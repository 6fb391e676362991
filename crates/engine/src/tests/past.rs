//! The past: its cost, and its end.

use std::path::Path;
use std::time::Duration;

use sim::{Rng, SimEnv};
use types::{Kind, Lsn, Principal};

use super::simulated::{self, State, lives_with};
use super::support::{batch, by_id, commit, contents, keyed, settle};
use crate::{Engine, Mode, Op, Options};

fn open(machine: &SimEnv, options: Options) -> Engine {
    Engine::open_stepped(machine.env(), Path::new("db"), options).unwrap()
}

/// Writes and changes rows over and over, with seals and merges in between. Returns the lsn of each round.
fn busy(engine: &Engine) -> Vec<Lsn> {
    commit(engine, Op::CreateTable { def: keyed("t"), if_absent: false });
    let upsert = |round: i64| {
        let rows: Vec<(i64, i64)> = (0..60).map(|id| (id + round % 3, round)).collect();
        Op::Insert { table: "t".into(), batch: batch(&rows), mode: Mode::Upsert }
    };
    (0..30).map(|round| commit(engine, upsert(round))).collect()
}

fn options() -> Options {
    Options { seal_rows: 100, ..Options::default() }
}

#[test]
fn who_reads_the_present_reads_no_row_more_for_the_past() {
    let _limit = testkit::limit(60);
    let read = |history: Duration| {
        let machine = SimEnv::new(1);
        let engine = open(&machine, Options { history, ..options() });
        busy(&engine);
        let root = engine.root();
        let table = root.table("main.t").unwrap();
        let stored: Vec<(u64, u64)> =
            table.segments().map(|s| (s.meta().rows, s.meta().last_row.0)).collect();
        let pieces: Vec<usize> = table.pieces().iter().map(table::ScanPiece::rows).collect();
        let status = engine.status();
        assert!(status.seals > 2 && status.compactions > 0, "{status:?}");
        (stored, pieces, table.bytes(), status.past_bytes)
    };
    let (with, without) = (read(Duration::from_secs(600)), read(Duration::ZERO));
    assert!(with.3 > 0 && without.3 == 0);
    assert_eq!((with.0, with.1, with.2), (without.0, without.1, without.2));
}

#[test]
fn the_past_ends_when_its_time_is_over_and_its_files_go() {
    let _limit = testkit::limit(60);
    let machine = SimEnv::new(2);
    let engine = open(&machine, options());
    let points = busy(&engine);
    let made = engine.root().table("main.t").unwrap().created();
    let view = || engine.view(&Principal::local()).unwrap();
    for (round, lsn) in points.iter().enumerate() {
        let then = view().at(*lsn).unwrap().table("t").unwrap();
        assert_eq!(by_id(&then)[&30], round as i64);
    }
    let reach = view().past_extent(engine.root().table("main.t").unwrap());
    assert!(reach.lsn == made && reach.bytes > 0 && reach.time.is_some(), "{reach:?}");
    let files = machine.disk.files().len();
    machine.clock.advance(Duration::from_secs(601));
    settle(&engine);
    // A manifest lets the files be removed.
    engine.close().unwrap();
    let engine = open(&machine, options());
    let status = engine.status();
    assert_eq!(status.past_bytes, 0, "{status:?}");
    assert!(machine.disk.files().len() < files);
    let table = engine.root().table("main.t").unwrap().clone();
    assert!(table.past_floor() > made && table.past_floor() <= *points.last().unwrap());
    let then = engine.view(&Principal::local()).unwrap().at(points[0]).unwrap();
    assert_eq!(then.table("t").unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn too_much_of_the_past_makes_it_shorter() {
    let _limit = testkit::limit(60);
    let machine = SimEnv::new(3);
    let engine = open(&machine, Options { history_bytes_max: 20_000, ..options() });
    let points = busy(&engine);
    let status = engine.status();
    assert!(status.past_bytes <= 20_000 && status.forgotten > 0, "{status:?}");
    let table = engine.root().table("main.t").unwrap().clone();
    let view = engine.view(&Principal::local()).unwrap();
    let mut read = [0; 2];
    for (round, lsn) in points.iter().enumerate() {
        let then = view.at(*lsn).unwrap().table("t");
        assert_eq!(then.is_ok(), *lsn >= table.past_floor());
        read[usize::from(then.is_ok())] += 1;
        if let Ok(then) = then {
            assert_eq!(by_id(&then)[&30], round as i64);
        }
    }
    assert!(read[0] > 0 && read[1] > 0, "{read:?}");
}

/// Compares the past at some lsns with the known states: for each table that still exists, its rows then. The past reaches
/// back at least as far as the engine has to keep it.
pub(super) fn check(engine: &Engine, now: types::Micros, states: &[State], rng: &mut Rng) {
    let view = engine.view(&Principal::local()).unwrap();
    let root = engine.root();
    let history = simulated::options().history.as_micros() as i64;
    let wanted = root.times.at(now - history).unwrap_or(Lsn(0));
    for _ in 0..12 {
        let lsn = Lsn(rng.below(root.lsn().0 + 1));
        let then = view.at(lsn).unwrap();
        for table in root.tables() {
            let name = table.def().name.strip_prefix("main.").unwrap();
            assert!(
                table.past_floor() <= table.created().max(wanted),
                "{name} can be read as far as wanted: {} {} {wanted}",
                table.past_floor(),
                table.created()
            );
            if lsn < table.past_floor() {
                assert_eq!(then.table(name).unwrap_err().kind(), Kind::NotFound);
                continue;
            }
            let found = contents(&then.table(name).unwrap());
            assert_eq!(found, states[lsn.0 as usize][name].rows, "{name} at lsn {lsn}");
        }
    }
}

#[test]
fn the_past_is_read_exactly_as_long_as_it_is_wanted_whatever_happened_since() {
    let _limit = testkit::limit(900);
    testkit::for_each_seed(40, |seed| {
        // The past of ten minutes is kept; a run of the process takes twenty.
        lives_with(seed, 5, 600, 1_500, |_| {}, Duration::from_secs(2));
    });
}
