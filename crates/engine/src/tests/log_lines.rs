//! Log lines of work that waits: one when it begins to wait, one when it goes on, none for the attempts in between.

use std::fmt::{Debug, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use types::Principal;

use super::derived::Listing;
use super::simulated::options;
use super::support::{batch, keyed};
use crate::{Engine, Mode, Op, Options, Step, Transaction};

/// The log lines of one thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            write!(self.0, "{value:?}").unwrap();
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Lines {
    fn with(&self, text: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|line| line.contains(text)).count()
    }
}

fn settle(engine: &Engine) {
    while engine.step(Step::Background) | engine.step(Step::Commit) | engine.step(Step::Sync) {}
}

/// It was logged nowhere that indexes wait for room on the disk.
#[test]
fn what_waits_for_room_is_logged_once_and_once_when_it_goes_on() {
    let _limit = testkit::limit(60);
    let machine = sim::SimEnv::new(1);
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let engine = Engine::open_stepped(machine.env(), Path::new("db"), options()).unwrap();
        engine.register(Arc::new(Listing::default())).unwrap();
        let write = |op| {
            engine.submit(&Principal::local(), Transaction::new(vec![op]), |result| assert!(result.is_ok()));
            while engine.step(Step::Commit) | engine.step(Step::Sync) {}
        };
        write(Op::CreateTable { def: keyed("t"), if_absent: false });
        write(Op::Insert { table: "t".into(), batch: batch(&[(1, 1), (2, 2)]), mode: Mode::Append });
        machine.disk.set_free_bytes(Some(0));
        for _ in 0..10 {
            settle(&engine);
            machine.clock.advance(Duration::from_secs(70));
        }
        let standing = || engine.materializer_progress(engine.root().table("main.t").unwrap()).remove(0);
        assert!(standing().failures > 3, "{:?}", standing());
        assert_eq!(lines.with("`listing` of table t waits for room"), 1, "{:?}", lines.0);
        assert_eq!(lines.with("of table t goes on"), 0);
        machine.disk.set_free_bytes(None);
        machine.clock.advance(Duration::from_secs(70));
        settle(&engine);
        assert!(standing().error.is_none());
        assert_eq!(lines.with("`listing` of table t goes on"), 1, "{:?}", lines.0);
    });
}

/// An archive that could not be written to was not logged, and `/ready` reported it only once there was something to write.
#[test]
fn an_archive_that_is_away_is_told_before_there_is_anything_to_archive() {
    let _limit = testkit::limit(60);
    let machine = sim::SimEnv::new(2);
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let options = Options { archive: Some("archive".into()), ..options() };
        let engine = Engine::open_stepped(machine.env(), Path::new("db"), options).unwrap();
        let folder = engine.status().archive.unwrap().dir;
        machine.env().disk.create_dir_all(Path::new("archive")).unwrap();
        machine.env().disk.create(&folder).unwrap();
        (0..5).for_each(|_| assert!(!engine.step(Step::Archive)));
        let error = engine.status().archive.unwrap().error.expect("it is told at once");
        assert!(error.to_string().contains(folder.to_str().unwrap()), "{error}");
        assert_eq!(lines.with("the log is not archived"), 1, "{:?}", lines.0);
        machine.env().disk.remove(&folder).unwrap();
        while engine.step(Step::Archive) {}
        assert!(engine.status().archive.unwrap().error.is_none());
        assert_eq!(lines.with("the log is archived again"), 1, "{:?}", lines.0);
        assert_eq!(lines.with("the log is not archived"), 1, "{:?}", lines.0);
    });
}
