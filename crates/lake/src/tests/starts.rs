//! Tests of two processes that both take a warehouse for their own, because a data directory was copied.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sim::SimEnv;
use types::{Kind, Value};

use super::remote::{Flaky, options_in};
use super::support::{Bench, materializer, read, rows_of};
use crate::objects::Objects;

fn begin() -> (Bench, Arc<Flaky>) {
    let store = Arc::new(Flaky::default());
    (Bench::of(super::support::def(), options_in(&store)), store)
}

/// Returns a bench with the same table and rows, as in a copy of the directory.
fn copy(store: &Arc<Flaky>, keys: std::ops::Range<i64>) -> Bench {
    let mut copy = Bench::of(super::support::def(), options_in(store));
    // The copy runs in another process, with other random numbers.
    copy.sim.env().random.next_u64();
    copy.keys(keys);
    copy
}

#[test]
fn the_copy_of_a_directory_that_started_first_changes_nothing_any_more() {
    let _limit = testkit::limit(60);
    let (mut first, store) = begin();
    first.keys(0..10);
    first.land();
    let mut second = copy(&store, 0..10);
    second.land();

    // Rows of the two tables do not mix.
    first.keys(10..15);
    let files = first.files();
    let error = first.try_land().unwrap_err();
    assert_eq!(error.kind(), Kind::InUse, "{error}");
    assert!(error.hint_text().unwrap().contains("copied"), "{error}");
    second.keys(10..40);
    second.land();
    assert!(first.try_land().is_err());

    // Files that only the other process knows are not removed as unnamed.
    let named = second.lake().named_files().unwrap();
    let error = first.lake().sweep().unwrap_err();
    assert_eq!(error.kind(), Kind::InUse, "{error}");
    for path in &named {
        assert!(second.store().exists(path).unwrap(), "{}", path.display());
    }
    assert!(files.len() < second.files().len() + 10);
    assert_eq!(read(&second.store(), &second.dir()).unwrap(), rows_of(&second.snapshot()).unwrap());

    // After another start this process continues, since its table is the lake's.
    second.materializer = materializer(options_in(&store));
    second.restart();
    second.insert(&[vec![Value::Int64(100), Value::Null, Value::Int32(1)]]);
    second.land();
}

const DATA: &str = "data";

fn objects(store: &Arc<Flaky>) -> Objects {
    objects_of(store, "ours")
}

fn objects_of(store: &Arc<Flaky>, database: &str) -> Objects {
    let new = Objects::new(store.clone(), "lake", "s3://b/lake".into(), Duration::from_secs(10), database);
    new.unwrap().remembered_in(Path::new(DATA))
}

fn machine(seed: u64) -> SimEnv {
    let sim = SimEnv::new(seed);
    sim.env().disk.create_dir_all(Path::new(DATA)).unwrap();
    sim
}

fn copy_memory(from: &SimEnv, to: &SimEnv) {
    let path = Path::new(DATA).join("warehouse-starts");
    let bytes = crate::files::read(&from.env(), &path).unwrap();
    crate::files::replace(&to.env(), &path, &bytes).unwrap();
}

#[test]
fn a_directory_starts_if_it_knows_the_last_start() {
    let _limit = testkit::limit(60);
    let store = Arc::new(Flaky::default());
    let (here, there) = (machine(1), machine(2));
    let first = objects(&store);
    for _ in 0..2 {
        first.ensure_usable(&here.env()).unwrap();
    }
    copy_memory(&here, &there);
    // The copy may as well be the directory itself, moved.
    let copied = objects(&store);
    copied.ensure_usable(&there.env()).unwrap();
    copied.ensure_usable(&there.env()).unwrap();
    for error in [first.ensure_usable(&here.env()).unwrap_err(), first.check_last_start().unwrap_err()] {
        assert_eq!(error.kind(), Kind::InUse, "{error}");
    }
    // The first directory is the older state now.
    let error = objects(&store).ensure_usable(&here.env()).unwrap_err();
    assert_eq!(error.kind(), Kind::InUse, "{error}");
    assert!(error.hint_text().unwrap().contains("polynya-starts/"), "{error}");
    objects(&store).ensure_usable(&there.env()).unwrap();

    // A directory without any record may start only if no other one started before.
    let new = machine(3);
    assert!(objects(&store).ensure_usable(&new.env()).is_err());
    for found in first.list("polynya-starts").unwrap() {
        first.remove(&format!("polynya-starts/{}", found.name)).unwrap();
    }
    let again = objects(&store);
    again.ensure_usable(&here.env()).unwrap();
    assert!(copied.check_last_start().is_err(), "numbers are not used again");
    assert_eq!(again.list("polynya-starts").unwrap().len(), 1);
}

/// The first copy is slow to put its start's object. The other one starts twice meanwhile, and removes the number that the
/// first one is about to use. Both landed.
#[test]
fn a_start_that_was_overtaken_fails() {
    let _limit = testkit::limit(60);
    let store = Arc::new(Flaky::default());
    let (here, there) = (machine(1), machine(2));
    objects(&store).ensure_usable(&here.env()).unwrap();
    copy_memory(&here, &there);
    let late = objects(&store);
    let (of_another, kept) = (store.clone(), Arc::new(std::sync::Mutex::new(None)));
    let keep = kept.clone();
    store.before_put("polynya-starts", move || {
        objects(&of_another).ensure_usable(&there.env()).unwrap();
        let second = objects(&of_another);
        second.ensure_usable(&there.env()).unwrap();
        *keep.lock().unwrap() = Some(second);
    });
    for _ in 0..2 {
        assert_eq!(late.ensure_usable(&here.env()).unwrap_err().kind(), Kind::InUse);
    }
    let second = kept.lock().unwrap().take().unwrap();
    second.check_last_start().unwrap();
    assert_eq!(second.list("polynya-starts").unwrap().len(), 1, "the late one took its object back");
}

/// Follows the documentation: the mark of the other database, which is gone, is removed.
#[test]
fn starts_of_another_database_do_not_block_a_start() {
    let _limit = testkit::limit(60);
    let store = Arc::new(Flaky::default());
    let (here, there) = (machine(1), machine(2));
    let gone = objects_of(&store, "gone");
    gone.ensure_usable(&here.env()).unwrap();
    assert_eq!(objects(&store).ensure_usable(&there.env()).unwrap_err().kind(), Kind::InUse);
    gone.remove("polynya-warehouse.json").unwrap();
    let next = objects(&store);
    next.ensure_usable(&there.env()).unwrap();
    next.check_last_start().unwrap();
    assert_eq!(gone.check_last_start().unwrap_err().kind(), Kind::InUse, "it was not gone");
}

/// Each call of a start fails, before or after it did its work. Then the start is repeated, or its process ends and another one
/// starts.
#[test]
fn a_start_that_fails_anywhere_is_followed_by_another() {
    let _limit = testkit::limit(120);
    for (is_done, is_again) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut call = 1;
        loop {
            let (store, sim) = (Arc::new(Flaky::default()), machine(call));
            objects(&store).ensure_usable(&sim.env()).unwrap();
            store.fail(super::remote::CallFault { call, is_done, ends: true });
            let begun = objects(&store);
            let is_beyond = begun.ensure_usable(&sim.env()).is_ok();
            store.works_again();
            if is_again {
                begun.ensure_usable(&sim.env()).unwrap();
            }
            let next = objects(&store);
            next.ensure_usable(&sim.env()).unwrap();
            next.check_last_start().unwrap();
            // A process whose start did not succeed makes no such check, and changes nothing.
            assert!(!is_again || begun.check_last_start().is_err());
            if is_beyond {
                break;
            }
            call += 1;
        }
        assert!(call > 8, "{call}");
    }
}
