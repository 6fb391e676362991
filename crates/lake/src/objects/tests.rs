//! Tests with stores that ignore conditions, lose responses or do not answer.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, Error as StoreError, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as StoreResult,
    UploadPart,
};
use types::Kind;
use vfs::Env;

use super::{Objects, PART_BYTES};

/// The way in which puts fail.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PutFault {
    None,
    /// Conditions of puts are ignored.
    Careless,
    /// The object is written, and the response is an error.
    AnswerLost,
    /// The first puts, as many as the number says, write nothing and respond with an error.
    Failing(usize),
    /// The put writes nothing, and never returns.
    Silent,
    /// The put writes the object, and never returns.
    SilentAfter,
    /// The second part of an upload is refused.
    PartFails,
    /// The second part of an upload gets no response.
    PartSilent,
    /// The completion of an upload fails.
    CompleteFails,
    /// The completion of an upload succeeds, and the response is an error.
    CompleteLost,
}

#[derive(Debug)]
pub(crate) struct Faulty {
    pub store: InMemory,
    fault: PutFault,
    puts: AtomicUsize,
    /// True if all reads fail.
    pub is_away: AtomicBool,
    /// The byte ranges that were read, in order.
    pub reads: Mutex<Vec<Range<u64>>>,
}

impl Faulty {
    fn new(fault: PutFault) -> Faulty {
        Faulty {
            store: InMemory::new(),
            fault,
            puts: AtomicUsize::new(0),
            is_away: AtomicBool::new(false),
            reads: Mutex::default(),
        }
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

fn broken() -> StoreError {
    StoreError::Generic { store: "faulty", source: "500 Internal Server Error".into() }
}

#[async_trait::async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        key: &Key,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> StoreResult<PutResult> {
        let put = self.puts.fetch_add(1, Ordering::Relaxed);
        match self.fault {
            PutFault::Careless => options.mode = PutMode::Overwrite,
            PutFault::Failing(times) if put < times => return Err(broken()),
            PutFault::Silent => std::future::pending::<()>().await,
            _ => {}
        }
        let done = self.store.put_opts(key, payload, options).await?;
        match self.fault {
            PutFault::AnswerLost => Err(broken()),
            PutFault::SilentAfter => std::future::pending().await,
            _ => Ok(done),
        }
    }

    async fn put_multipart_opts(
        &self,
        key: &Key,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        let upload = self.store.put_multipart_opts(key, options).await?;
        Ok(Box::new(FaultyUpload { upload, fault: self.fault, parts: 0 }))
    }

    async fn get_opts(&self, key: &Key, options: GetOptions) -> StoreResult<GetResult> {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(broken());
        }
        let got = self.store.get_opts(key, options).await?;
        self.reads.lock().unwrap().push(got.range.clone());
        Ok(got)
    }

    async fn get_ranges(&self, key: &Key, ranges: &[Range<u64>]) -> StoreResult<Vec<Bytes>> {
        self.store.get_ranges(key, ranges).await
    }

    fn delete_stream(
        &self,
        keys: BoxStream<'static, StoreResult<Key>>,
    ) -> BoxStream<'static, StoreResult<Key>> {
        self.store.delete_stream(keys)
    }

    fn list(&self, prefix: Option<&Key>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Key>) -> StoreResult<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Key, to: &Key, options: CopyOptions) -> StoreResult<()> {
        self.store.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct FaultyUpload {
    upload: Box<dyn MultipartUpload>,
    fault: PutFault,
    parts: usize,
}

#[async_trait::async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.parts += 1;
        match self.fault {
            PutFault::PartFails if self.parts == 2 => Box::pin(async { Err(broken()) }),
            PutFault::PartSilent if self.parts == 2 => Box::pin(std::future::pending()),
            _ => self.upload.put_part(data),
        }
    }

    async fn complete(&mut self) -> StoreResult<PutResult> {
        if self.fault == PutFault::CompleteFails {
            return Err(broken());
        }
        let done = self.upload.complete().await;
        if self.fault == PutFault::CompleteLost { done.and(Err(broken())) } else { done }
    }

    async fn abort(&mut self) -> StoreResult<()> {
        self.upload.abort().await
    }
}

const CALL_MAX: Duration = Duration::from_millis(200);

/// Returns a store that records the reads and can be made unavailable.
pub(crate) fn recording_store() -> (Objects, Arc<Faulty>) {
    store_with(PutFault::None, Duration::from_secs(5))
}

fn objects(fault: PutFault) -> (Objects, Arc<Faulty>) {
    store_with(fault, CALL_MAX)
}

fn store_with(fault: PutFault, call_max: Duration) -> (Objects, Arc<Faulty>) {
    let store = Arc::new(Faulty::new(fault));
    let objects = Objects::new(store.clone(), "lake", "s3://bucket/lake".into(), call_max, "ours").unwrap();
    (objects, store)
}

#[test]
fn put_objects_can_be_read_listed_and_removed() {
    let _limit = testkit::limit(60);
    let (objects, _) = objects(PutFault::None);
    objects.check_conditions(7).unwrap();
    assert_eq!(objects.list("").unwrap(), [], "the probe leaves nothing");
    objects.put_if_absent("main/t/metadata/v1.json", Bytes::from_static(b"one")).unwrap();
    objects.put("main/t/metadata/hint", Bytes::from_static(b"1")).unwrap();
    objects.put("main/t/metadata/hint", Bytes::from_static(b"2")).unwrap();
    objects.put("main/u/x", Bytes::new()).unwrap();
    assert_eq!(objects.get("main/t/metadata/hint").unwrap(), "2");
    assert_eq!(objects.get_range("main/t/metadata/v1.json", 1, 2).unwrap(), "ne");
    assert_eq!(objects.len("main/t/metadata/v1.json").unwrap(), Some(3));
    assert_eq!(objects.len("main/t/metadata/v2.json").unwrap(), None);
    let names =
        |dir: &str| objects.list(dir).unwrap().into_iter().map(|o| (o.name, o.is_dir)).collect::<Vec<_>>();
    assert_eq!(names("main"), [("t".to_owned(), true), ("u".to_owned(), true)]);
    assert_eq!(names("main/t/metadata"), [("hint".to_owned(), false), ("v1.json".to_owned(), false)]);
    assert_eq!(names("nowhere"), []);
    let mut all = objects.list_all("main").unwrap();
    all.sort();
    assert_eq!(all, ["main/t/metadata/hint", "main/t/metadata/v1.json", "main/u/x"]);
    let missing = objects.get("main/none").unwrap_err();
    assert!(super::is_missing(&missing), "{missing}");
    objects.remove("main/u/x").unwrap();
    objects.remove("main/u/x").unwrap();
    assert_eq!(objects.len("main/u/x").unwrap(), None);
    assert!(objects.get("../other").is_err(), "names stay below the place");
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let _limit = testkit::limit(60);
    let (careless, _) = objects(PutFault::Careless);
    let error = careless.check_conditions(1).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.message().contains("If-None-Match"), "{error}");
    let (silent, _) = objects(PutFault::Silent);
    assert_eq!(silent.check_conditions(1).unwrap_err().kind(), Kind::Io, "nobody knows what it would do");
}

#[test]
fn a_place_belongs_to_one_database() {
    let _limit = testkit::limit(60);
    let (ours, store) = objects(PutFault::None);
    let env = Env::real();
    for _ in 0..2 {
        ours.ensure_usable(&env).unwrap();
    }
    // After a restart the place is still this database's and nobody else's.
    let again =
        |owner| Objects::new(store.clone(), "lake", "s3://bucket/lake".into(), CALL_MAX, owner).unwrap();
    again("ours").ensure_usable(&env).unwrap();
    let error = again("theirs").ensure_usable(&env).unwrap_err();
    assert_eq!(error.kind(), Kind::InUse, "{error}");
    assert!(error.hint_text().unwrap().contains(super::Purpose::Warehouse.mark()), "{error}");
    let apart = Objects::new(store.clone(), "apart", "s3://bucket/apart".into(), CALL_MAX, "theirs").unwrap();
    apart.ensure_usable(&env).unwrap();
}

#[test]
fn a_put_whose_response_was_lost_is_verified_by_reading_the_object() {
    let _limit = testkit::limit(60);
    for fault in [PutFault::AnswerLost, PutFault::SilentAfter, PutFault::Failing(2)] {
        let (objects, _) = objects(fault);
        objects.put_if_absent("v1", Bytes::from_static(b"ours")).unwrap_or_else(|e| panic!("{fault:?}: {e}"));
        assert_eq!(objects.get("v1").unwrap(), "ours");
    }
    // Another client put the object first: it is never taken for our own.
    for fault in [PutFault::None, PutFault::AnswerLost, PutFault::Failing(1)] {
        let (objects, store) = objects(fault);
        let key = Key::from("lake/v1");
        let theirs = PutPayload::from_static(b"theirs");
        objects
            .network
            .0
            .as_ref()
            .unwrap()
            .block_on(store.store.put_opts(&key, theirs, PutOptions::default()))
            .unwrap();
        let error = objects.put_if_absent("v1", Bytes::from_static(b"ours")).unwrap_err();
        assert_eq!(error.kind(), Kind::Exists, "{fault:?}: {error}");
        assert_eq!(objects.get("v1").unwrap(), "theirs");
    }
}

#[test]
fn a_store_that_fails_or_hangs_is_given_up_after_the_time_limit() {
    let _limit = testkit::limit(60);
    for fault in [PutFault::Failing(usize::MAX), PutFault::Silent] {
        let (objects, store) = objects(fault);
        let began = Instant::now();
        let error = objects.put_if_absent("v1", Bytes::from_static(b"x")).unwrap_err();
        assert_eq!(error.kind(), Kind::Io, "{error}");
        assert!(began.elapsed() < CALL_MAX * 8, "{:?}", began.elapsed());
        assert!((1..=super::UNKNOWN_TRIES).contains(&store.puts.load(Ordering::Relaxed)));
        assert_eq!(objects.len("v1").unwrap(), None);
    }
}

#[test]
fn an_upload_appears_whole_when_it_is_finished_and_never_before() {
    let _limit = testkit::limit(60);
    let (objects, _) = objects(PutFault::None);
    for len in [0, 1, PART_BYTES - 1, PART_BYTES, 2 * PART_BYTES + 17] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
        let name = format!("data/{len}");
        let mut upload = objects.upload(&name).unwrap();
        for part in bytes.chunks(1 << 20) {
            upload.write(part).unwrap();
        }
        assert_eq!(upload.len(), len as u64);
        assert_eq!(objects.len(&name).unwrap(), None, "not there yet");
        upload.finish().unwrap();
        assert_eq!(objects.get(&name).unwrap(), bytes);
    }
    let mut dropped = objects.upload("data/dropped").unwrap();
    dropped.write(&vec![1; PART_BYTES + 1]).unwrap();
    drop(dropped);
    assert_eq!(objects.len("data/dropped").unwrap(), None);
}

/// The object is larger than one part, so that it is uploaded in several.
#[test]
fn an_upload_in_parts_appears_complete_or_not_at_all() {
    let _limit = testkit::limit(60);
    let bytes: Vec<u8> = (0..3 * PART_BYTES + 11).map(|i| (i * 7 % 253) as u8).collect();
    for fault in [
        PutFault::None,
        PutFault::PartFails,
        PutFault::PartSilent,
        PutFault::CompleteFails,
        PutFault::CompleteLost,
        PutFault::Failing(usize::MAX),
    ] {
        let (objects, _) = objects(fault);
        let mut blocks = bytes.chunks(1 << 20).map(<[u8]>::to_vec);
        let outcome = objects.put_blocks("data/large", &mut || Ok(blocks.next()));
        // Single puts fail where parts do not.
        let works = matches!(fault, PutFault::None | PutFault::CompleteLost | PutFault::Failing(_));
        assert_eq!(outcome.is_ok(), works, "{fault:?}: {:?}", outcome.err());
        if works {
            assert_eq!(objects.get("data/large").unwrap(), bytes, "{fault:?}")
        } else {
            assert_eq!(objects.len("data/large").unwrap(), None, "{fault:?}")
        }
    }
    // An error of the source of the bytes is returned unchanged.
    let (objects, _) = objects(PutFault::None);
    let mut blocks = bytes.chunks(1 << 20).map(<[u8]>::to_vec);
    let mut left = 20;
    let error = objects.put_blocks("data/large", &mut || {
        left -= 1;
        if left == 0 { Err(types::Error::damaged("the disk")) } else { Ok(blocks.next()) }
    });
    assert_eq!(error.unwrap_err().kind(), Kind::Damaged);
    assert_eq!(objects.len("data/large").unwrap(), None);
    // A read beyond the end of an object, or of a missing one, is damage.
    objects.put("data/short", Bytes::from_static(b"four")).unwrap();
    let mut buffer = [0; 3];
    objects.read_at("data/short", &mut buffer, 1).unwrap();
    assert_eq!(&buffer, b"our");
    assert_eq!(objects.read_at("data/short", &mut buffer, 2).unwrap_err().kind(), Kind::Damaged);
    assert_eq!(objects.read_at("data/none", &mut buffer, 0).unwrap_err().kind(), Kind::Damaged);
}
