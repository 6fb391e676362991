//! Tests of the lake in an object store: calls that fail, responses that are lost, machines that die, and other writers.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, Error as StoreError, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result as StoreResult,
};
use types::{Kind, Value};

use super::crashes::{self, Layouts, States, begin_in};
use super::support::{Bench, LAYOUTS, read, rows_of, small};
use crate::Options;
use crate::objects::Objects;

/// A store in which one call fails, or all from one on.
#[derive(Debug, Default)]
pub struct Flaky {
    pub store: Arc<InMemory>,
    pub calls: AtomicU64,
    fault: Mutex<Option<CallFault>>,
    /// True if puts that fail are carried out later (by [`Flaky::catches_up`]), and the puts that wait for that.
    is_late: AtomicBool,
    late: Mutex<Vec<(Key, PutPayload, PutOptions)>>,
    /// True if removals fail, as with a key that may not remove, or with locked objects.
    refuses_removals: AtomicBool,
    before_put: Mutex<Option<BeforePut>>,
}

/// A part of an object's name, and an action that runs once before a put of such an object.
struct BeforePut(&'static str, Box<dyn FnOnce() + Send>);

impl fmt::Debug for BeforePut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct CallFault {
    /// The call that fails, counted from 1.
    pub call: u64,
    /// True if the call does its work and only its response is lost.
    pub is_done: bool,
    /// True if all later calls fail as well.
    pub ends: bool,
}

enum CallFate {
    Nothing,
    Error,
    /// The work is done, and an error is returned.
    Loss,
}

impl Flaky {
    fn next_fate(&self) -> CallFate {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        match *self.fault.lock().unwrap() {
            Some(fault) if call == fault.call && fault.is_done => CallFate::Loss,
            Some(fault) if call == fault.call || fault.ends && call > fault.call => CallFate::Error,
            _ => CallFate::Nothing,
        }
    }

    async fn with_fault<T>(&self, work: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
        match self.next_fate() {
            CallFate::Nothing => work.await,
            CallFate::Error => Err(broken()),
            CallFate::Loss => work.await.and(Err(broken())),
        }
    }

    /// Makes calls fail in this way, counted from now.
    pub fn fail(&self, fault: CallFault) {
        self.calls.store(0, Ordering::Relaxed);
        *self.fault.lock().unwrap() = Some(fault);
    }

    /// Makes all calls fail from now on.
    pub fn goes_away(&self) {
        self.fail(CallFault { call: 1, is_done: false, ends: true });
    }

    /// Carries out the puts that failed before, as a slow store does; nobody gets the responses. Returns the number of puts,
    /// and how many of them succeeded.
    fn catches_up(&self) -> (usize, usize) {
        let late = std::mem::take(&mut *self.late.lock().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let puts = late.iter().map(|(key, payload, options)| {
            runtime.block_on(self.store.put_opts(key, payload.clone(), options.clone())).is_ok()
        });
        (late.len(), puts.filter(|done| *done).count())
    }

    /// Runs an action once, before a put of an object whose name contains `name`, as if that put had been slow.
    pub fn before_put(&self, name: &'static str, what: impl FnOnce() + Send + 'static) {
        *self.before_put.lock().unwrap() = Some(BeforePut(name, Box::new(what)));
    }

    pub fn works_again(&self) {
        *self.fault.lock().unwrap() = None;
    }
}

impl fmt::Display for Flaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("flaky")
    }
}

fn broken() -> StoreError {
    StoreError::Generic { store: "flaky", source: "503 Slow Down".into() }
}

#[async_trait::async_trait]
impl ObjectStore for Flaky {
    async fn put_opts(&self, key: &Key, payload: PutPayload, options: PutOptions) -> StoreResult<PutResult> {
        let before_put =
            self.before_put.lock().unwrap().take_if(|BeforePut(of, _)| key.as_ref().contains(*of));
        if let Some(BeforePut(_, before_put)) = before_put {
            // The action runs in another thread, since it uses a runtime of its own.
            std::thread::spawn(before_put).join().unwrap();
        }
        match self.next_fate() {
            CallFate::Nothing => self.store.put_opts(key, payload, options).await,
            CallFate::Error => {
                if self.is_late.load(Ordering::Relaxed) {
                    self.late.lock().unwrap().push((key.clone(), payload, options));
                }
                Err(broken())
            }
            CallFate::Loss => self.store.put_opts(key, payload, options).await.and(Err(broken())),
        }
    }

    async fn put_multipart_opts(
        &self,
        key: &Key,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(key, options).await
    }

    async fn get_opts(&self, key: &Key, options: GetOptions) -> StoreResult<GetResult> {
        self.with_fault(self.store.get_opts(key, options)).await
    }

    async fn get_ranges(&self, key: &Key, ranges: &[Range<u64>]) -> StoreResult<Vec<Bytes>> {
        self.store.get_ranges(key, ranges).await
    }

    fn delete_stream(
        &self,
        keys: BoxStream<'static, StoreResult<Key>>,
    ) -> BoxStream<'static, StoreResult<Key>> {
        if self.refuses_removals.load(Ordering::Relaxed) {
            return futures::stream::iter([Err(broken())]).boxed();
        }
        match self.next_fate() {
            CallFate::Nothing => self.store.delete_stream(keys),
            CallFate::Error => futures::stream::iter([Err(broken())]).boxed(),
            CallFate::Loss => {
                let store = self.store.clone();
                let lost = async move {
                    store.delete_stream(keys).collect::<Vec<_>>().await;
                    Err(broken())
                };
                futures::stream::once(lost).boxed()
            }
        }
    }

    fn list(&self, prefix: Option<&Key>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Key>) -> StoreResult<ListResult> {
        self.with_fault(self.store.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Key, to: &Key, options: CopyOptions) -> StoreResult<()> {
        self.store.copy_opts(from, to, options).await
    }
}

const URI: &str = "s3://bucket/lake";

pub fn options_in(store: &Arc<Flaky>) -> Options {
    options_of(store, "database")
}

/// Returns options for the database with the id `owner`.
fn options_of(store: &Arc<Flaky>, owner: &str) -> Options {
    let objects = Objects::new(store.clone(), "lake", URI.into(), Duration::from_secs(10), owner).unwrap();
    let Options { objects, warehouse, location, .. } = Options::remote(objects);
    Options { objects, warehouse, location, ..small() }
}

fn begin(layouts: Layouts) -> (Bench, Arc<Flaky>) {
    let store = Arc::new(Flaky::default());
    (begin_in(layouts, options_in(&store)), store)
}

#[test]
fn a_table_lands_in_an_object_store_as_on_a_disk() {
    let _limit = testkit::limit(120);
    for layout in 0..LAYOUTS.len() {
        let layouts: Layouts = [&[0][..], &[1], &[2], &[3], &[4], &[5], &[6], &[7]][layout];
        let (mut bench, store) = begin(layouts);
        crashes::run(&mut bench, &mut States::new(), layouts).unwrap();
        let lake = bench.land();
        assert_eq!(
            lake.metadata_location(),
            format!("{URI}/main/t/metadata/v{}.metadata.json", lake.version)
        );
        // A new process continues from there, and removes nothing that is needed.
        bench.restart();
        assert!(bench.position.is_some());
        bench.insert(&[vec![Value::Int64(100), Value::Null, Value::Int32(1)]]);
        bench.land();
        // G1: files that no kept snapshot names are removed.
        let found: Vec<String> = bench.files();
        let named = found.iter().filter(|name| name.ends_with(".metadata.json")).count();
        assert!(named <= 1 + small().metadata_files_max, "{found:?}");
        assert!(!found.iter().any(|name| name.ends_with(".tmp")), "{found:?}");
        assert!(store.calls.load(Ordering::Relaxed) > 100);
    }
}

/// K1 between machines: wherever the network or the process ends, readers find the table at some commit, and a new process
/// continues from there.
fn ends_at_every_call(layouts: Layouts, is_done: bool, stride: usize) {
    let (mut whole, store) = begin(layouts);
    store.calls.store(0, Ordering::Relaxed);
    crashes::run(&mut whole, &mut States::new(), layouts).unwrap();
    let calls = store.calls.load(Ordering::Relaxed);
    assert!(calls > 150, "{calls}");
    let stride = if testkit::scale() >= 1.0 { 1 } else { stride };
    for call in (1..=calls).step_by(stride) {
        let what = format!("call {call} of {calls}, done: {is_done}");
        let (mut bench, store) = begin(layouts);
        store.fail(CallFault { call, is_done, ends: true });
        let mut states = States::new();
        if crashes::run(&mut bench, &mut states, layouts).is_ok() {
            continue;
        }
        store.works_again();
        let dir = bench.dir();
        crashes::check(&bench.store(), &dir, &states, &what);
        bench.materializer = super::support::materializer(options_in(&store));
        bench.restart();
        crashes::finish(&mut bench, &states, layouts);
    }
}

#[test]
fn an_end_at_every_call_leaves_the_lake_at_a_commit() {
    let _limit = testkit::limit(600);
    for is_done in [false, true] {
        ends_at_every_call(&[0], is_done, 3);
        ends_at_every_call(&[0, 2], is_done, 11);
    }
}

/// A store may carry out a request after its process has ended and another process has removed unnamed files: a metadata file
/// that arrived then named files that were gone for good.
#[test]
fn a_put_that_is_done_after_its_process_ended_names_nothing_that_is_gone() {
    let _limit = testkit::limit(600);
    let layouts: Layouts = &[1, 0];
    let (mut whole, store) = begin(layouts);
    store.calls.store(0, Ordering::Relaxed);
    crashes::run(&mut whole, &mut States::new(), layouts).unwrap();
    let calls = store.calls.load(Ordering::Relaxed);
    let (mut came, mut done) = (0, 0);
    let stride = if testkit::scale() >= 1.0 { 1 } else { 2 };
    for call in (1..=calls).step_by(stride) {
        let what = format!("call {call} of {calls}");
        let (mut bench, store) = begin(layouts);
        store.is_late.store(true, Ordering::Relaxed);
        store.fail(CallFault { call, is_done: false, ends: true });
        let mut states = States::new();
        if crashes::run(&mut bench, &mut states, layouts).is_ok() {
            continue;
        }
        store.works_again();
        // Later puts are retries of the first: the process ended with that one.
        store.late.lock().unwrap().truncate(1);
        bench.materializer = super::support::materializer(options_in(&store));
        bench.restart();
        if bench.position.is_none() {
            let _ = bench.step(false);
        }
        let (late, took) = store.catches_up();
        (came, done) = (came + late, done + took);
        crashes::check(&bench.store(), &bench.dir(), &states, &what);
        crashes::finish(&mut bench, &states, layouts);
        assert_eq!(
            read(&bench.store(), &bench.dir()).unwrap(),
            rows_of(&bench.snapshot()).unwrap(),
            "{what}"
        );
    }
    assert!(came > 20 && done > 5 && done < came, "{done} of {came}");
}

/// One process continues after each failure, and after each lost response.
#[test]
fn a_failure_at_every_call_is_survived() {
    let _limit = testkit::limit(600);
    for is_done in [false, true] {
        let mut call = 1;
        loop {
            let layouts: Layouts = [&[0][..], &[2, 3], &[6, 1]][(call % 3) as usize];
            let (mut bench, store) = begin(layouts);
            store.fail(CallFault { call, is_done, ends: false });
            for step in 0..crashes::STEPS {
                crashes::changes(&mut bench, step, layouts);
                let mut tries = 0;
                while bench.try_land().is_err() {
                    tries += 1;
                    assert!(tries < 3, "call {call}");
                }
            }
            let is_beyond = store.calls.load(Ordering::Relaxed) < call;
            store.works_again();
            bench.land();
            if is_beyond {
                break;
            }
            call += if testkit::scale() >= 1.0 { 1 } else { 7 };
        }
        assert!(call > 150, "{call}");
    }
}

/// Another writer's metadata file is never replaced, and never taken for a commit of ours.
#[test]
fn a_commit_of_another_writer_is_never_replaced() {
    let _limit = testkit::limit(60);
    let (mut bench, store) = begin(&[0]);
    bench.keys(0..10);
    let lake = bench.land();
    let theirs = Key::from(format!("lake/main/t/metadata/v{}.metadata.json", lake.version + 1));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.store.put(&theirs, PutPayload::from_static(b"theirs"))).unwrap();
    bench.keys(10..20);
    let error = bench.try_land().unwrap_err();
    assert_eq!(error.kind(), Kind::Exists, "{error}");
    assert!(error.hint_text().unwrap().contains("another server"), "{error}");
    for _ in 0..3 {
        assert!(bench.try_land().is_err());
    }
    let found = runtime.block_on(async { store.store.get(&theirs).await.unwrap().bytes().await.unwrap() });
    assert_eq!(found, "theirs");
    runtime.block_on(store.store.delete(&theirs)).unwrap();
    bench.land();
    assert_eq!(read(&bench.store(), &bench.dir()).unwrap(), rows_of(&bench.snapshot()).unwrap());
}

/// Two databases got one warehouse: the second one commits nothing.
#[test]
fn a_warehouse_is_written_by_one_database() {
    let _limit = testkit::limit(60);
    let (mut bench, store) = begin(&[0]);
    bench.keys(0..10);
    let lake = bench.land();
    let mut second = begin_in(&[0], options_of(&store, "another"));
    second.keys(0..3);
    let error = second.try_land().unwrap_err();
    assert_eq!(error.kind(), Kind::InUse, "{error}");
    assert_eq!(bench.land().version, lake.version);
}

/// Each database counts table ids from 1. After another database took over a warehouse, its first table was taken for the
/// successor of a table of the same name. That table's lake was removed, with rows that were nowhere else.
#[test]
fn a_database_that_takes_a_warehouse_over_removes_no_lake_of_the_one_before() {
    let _limit = testkit::limit(60);
    let (mut bench, store) = begin(&[0]);
    bench.keys(0..10);
    let lake = bench.land();
    let files = bench.files();
    let rows = read(&bench.store(), &bench.dir()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.store.delete(&Key::from("lake/polynya-warehouse.json"))).unwrap();
    let mut later = super::support::def();
    later.id = types::TableId(lake.metadata.table_id().unwrap().0 + 1);
    let mut second = Bench::of(later.clone(), options_of(&store, "another"));
    second.keys(0..3);
    let error = second.try_land().unwrap_err();
    assert!(
        error.kind() == Kind::Damaged && error.to_string().contains("another database's table 7"),
        "{error}"
    );
    assert_eq!((bench.files(), read(&bench.store(), &bench.dir()).unwrap()), (files, rows));

    // Its own lakes are recognised by their properties: that of a dropped table is removed when a table of the same name lands.
    runtime.block_on(store.store.delete(&Key::from("lake/polynya-warehouse.json"))).unwrap();
    let mut third = Bench::of(later, options_in(&store));
    third.keys(0..3);
    third.land();
    assert_eq!(third.lake().metadata.database(), Some("database"));
    assert_eq!(read(&third.store(), &third.dir()).unwrap(), rows_of(&third.snapshot()).unwrap());
}

/// Lakes of earlier versions did not tell their database until the next commit, and a table that was dropped and created again
/// could not land.
#[test]
fn a_lake_without_a_database_id_gets_one_at_the_next_start() {
    let _limit = testkit::limit(60);
    let (mut bench, _) = begin(&[0]);
    bench.keys(0..10);
    let lake = bench.land();
    let mut json: serde_json::Value =
        serde_json::from_slice(&bench.store().read(&lake.metadata_path()).unwrap()).unwrap();
    json["properties"].as_object_mut().unwrap().remove("polynya.database").unwrap();
    bench.store().replace(&lake.metadata_path(), json.to_string().as_bytes()).unwrap();
    bench.restart();
    let after = bench.lake();
    assert_eq!((after.metadata.database(), after.version), (Some("database"), lake.version + 1));
    assert_eq!(read(&bench.store(), &bench.dir()).unwrap(), rows_of(&bench.snapshot()).unwrap());
    bench.restart();
    assert_eq!(bench.step(false).map(|_| bench.lake().version).ok(), Some(lake.version + 1));
}

/// Each failed try to remove unnamed files published the metadata once more, and nothing removed those versions.
#[test]
fn files_that_cannot_be_removed_cause_no_more_metadata() {
    let _limit = testkit::limit(60);
    let (mut bench, store) = begin(&[0]);
    for step in 0..20 {
        bench.keys(step * 10..step * 10 + 10);
        bench.land();
    }
    let before = bench.lake().version;
    let stray = bench.dir().join("data/0123456789abcdef-1.parquet");
    bench.store().write(&stray, b"left by a process that was killed".to_vec()).unwrap();
    bench.materializer = super::support::materializer(options_in(&store));
    bench.store().ensure_usable().unwrap();
    store.refuses_removals.store(true, Ordering::Relaxed);
    bench.position = None;
    for _ in 0..30 {
        assert!(bench.step(false).is_err());
    }
    let version = || crate::newest_version(&bench.store(), &bench.dir()).unwrap().unwrap();
    assert_eq!(version(), before + 1);
    store.refuses_removals.store(false, Ordering::Relaxed);
    bench.step(false).unwrap();
    assert!(!bench.store().exists(&stray).unwrap());
    // Processes end in a commit again and again: the list of metadata files stays bounded.
    for nth in 0..30 {
        bench.store().write(&stray, vec![nth]).unwrap();
        bench.restart();
        let _ = bench.step(false);
    }
    let log = bench.lake().metadata.metadata_log.len();
    assert!(log <= small().metadata_files_max, "{log}");
    let files = bench.files().into_iter().filter(|name| name.ends_with(".metadata.json")).count();
    assert!(files <= small().metadata_files_max + 1, "{files}");
}

/// Erasure over a network: a failed call or a lost response is reported to the client, and a repetition completes the erasure.
#[test]
fn an_erasure_in_an_object_store_survives_a_failure_at_every_call() {
    let _limit = testkit::limit(300);
    let prepared = || {
        let (mut bench, store) = begin(&[1]);
        bench.keys(0..20);
        bench.land();
        bench.keys(20..30).delete([3, 4]);
        bench.land();
        bench.delete([5, 25]);
        store.calls.store(0, Ordering::Relaxed);
        (bench, store)
    };
    let (mut whole, store) = prepared();
    let erased = whole.erase().unwrap();
    assert!(erased.files_removed > 0 && erased.bytes_removed > 0, "{erased:?}");
    let calls = store.calls.load(Ordering::Relaxed);
    assert!(calls > 20, "{calls}");
    for call in 1..=calls {
        for is_done in [false, true] {
            let (mut bench, store) = prepared();
            store.fail(CallFault { call, is_done, ends: false });
            let mut tries = 0;
            while bench.erase().is_err() {
                tries += 1;
                assert!(tries < 4, "call {call}, done: {is_done}");
            }
            store.works_again();
            let lake = bench.land();
            assert_eq!((lake.metadata.snapshots.len(), lake.deletes.len()), (1, 0), "call {call}");
            let left = crate::tests::erasure::rows_in_files(&bench);
            assert!([3, 4, 5, 25].iter().all(|row| !left.contains(row)), "call {call}: {left:?}");
        }
    }
}

/// Another program rewrites a table's files in the store while calls fail or their responses are lost: the reported outcome of
/// its commit is true, or becomes known later.
#[test]
fn the_reported_outcome_of_a_replacement_in_an_object_store_is_true() {
    let _limit = testkit::limit(300);
    let mut outcomes = [0, 0];
    for is_done in [false, true] {
        for call in 1.. {
            let (mut bench, store) = begin(&[1]);
            bench.keys(0..30).delete([3, 4]);
            bench.land();
            bench.keys(30..40).delete([5]);
            bench.land();
            let before = bench.lake();
            let replace = super::replacement::writer::Writer::new(&bench, 77).rewrite_all().finish();
            store.fail(CallFault { call, is_done, ends: false });
            let told = bench.offered(&replace);
            let mut outcome = None;
            for _ in 0..10 {
                let _ = bench.step(false);
                outcome = outcome.or_else(|| told.lock().unwrap().take());
            }
            let is_beyond = store.calls.load(Ordering::Relaxed) < call;
            store.works_again();
            bench.land();
            let is_there = bench.lake().has_adopted(77);
            match outcome {
                Some(crate::ReplacementOutcome::Committed(_)) => assert!(is_there, "call {call}"),
                Some(crate::ReplacementOutcome::Refused(error)) => assert!(!is_there, "call {call}: {error}"),
                other => panic!("call {call}: {other:?}"),
            }
            outcomes[usize::from(is_there)] += 1;
            assert_eq!((bench.lake().row, bench.lake().lsn), (before.row, before.lsn));
            bench.restart();
            bench.delete([7, 31]).keys(50..55);
            bench.land();
            if is_beyond {
                break;
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}
