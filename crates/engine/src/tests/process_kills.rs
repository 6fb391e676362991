//! Kills of the process: the changes that it had not made durable stay behind, its successor relies on them, then power
//! fails.

use std::path::Path;

use sim::{Rng, SimEnv};
use types::Principal;

use super::support::{batch, contents, plain};
use crate::{Engine, Mode, Op, Options, Step, Transaction};

fn open(machine: &SimEnv) -> types::Result<Engine> {
    let log = commitlog::Options { file_bytes: 24 << 10, spare_files: 1, ..Default::default() };
    let options = Options { log, seal_rows: 40, ..Options::default() };
    Engine::open_stepped(machine.env(), Path::new("db"), options)
}

/// Inserts rows and seals them, as far as the machine lives.
fn fill(engine: &Engine, machine: &SimEnv) {
    let create = Op::CreateTable { def: plain("t"), if_absent: true };
    let rows = batch(&(0..50).map(|i| (i, i)).collect::<Vec<_>>());
    for transaction in [Transaction::new(vec![create]), Transaction::insert("t", rows, Mode::Append)] {
        engine.submit(&Principal::local(), transaction, |_| ());
        for _ in 0..50 {
            let worked = [Step::Commit, Step::Sync, Step::Background].map(|step| engine.step(step));
            if machine.disk.is_dead() || worked == [false; 3] {
                break;
            }
        }
    }
}

/// A killed process had made a table's directory without syncing its name. The next process took it for durable, sealed into
/// it and trimmed the log.
#[test]
fn what_is_sealed_after_a_kill_survives_a_power_failure_wherever_the_kill_struck() {
    let _limit = testkit::limit(300);
    let mut sealed = 0;
    for call in 1..400 {
        for seed in 0..3 {
            let mut machine = SimEnv::new(seed);
            machine.disk.crash_at(call);
            if let Ok(engine) = open(&machine) {
                fill(&engine, &machine);
            }
            if !machine.disk.is_dead() {
                // The workload ended before that call.
                assert!(sealed > 100);
                return;
            }
            machine = machine.kill();
            let engine = open(&machine).unwrap();
            fill(&engine, &machine);
            let root = engine.root();
            let expected = contents(root.table("main.t").unwrap());
            sealed += root.table("main.t").unwrap().segments().count();
            assert!(expected.len() >= 50);
            drop((root, engine));
            machine = machine.crash(&mut Rng::new(seed));
            let engine = open(&machine).unwrap();
            assert_eq!(contents(engine.root().table("main.t").unwrap()), expected, "killed at call {call}");
        }
    }
}
