//! Tests of a warehouse in a store without a key: the catalog hands out expiring credentials for each table.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::aws::AwsCredentialProvider;
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, Error as StoreError, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as StoreResult,
};
use serde_json::{Value as Json, json};
use types::Kind;
use vfs::Clock;

use super::super::crashes;
use super::super::remote::{self, Flaky};
use super::super::support::{Bench, read_with_metadata, rows_of, small};
use super::catalog_in;
use super::fake_catalog::{FakeCatalog, Fate};
use crate::Options;
use crate::objects::{Connector, Objects, StoreEndpoint};

const URI: &str = "s3://bucket/lake";
const HOUR: Duration = Duration::from_secs(3_600);

/// The access control of the store: its keys, the place for which each is valid, and until when.
struct AccessControl {
    clock: Arc<dyn Clock>,
    keys: BTreeMap<String, (String, i64)>,
    made: u64,
    /// The number of refused calls.
    refused: u64,
    /// True if conditions of puts are ignored.
    is_careless: bool,
    /// True if removals fail.
    keeps: bool,
    probes: u64,
}

type SharedAccessControl = Arc<Mutex<AccessControl>>;

impl AccessControl {
    /// Makes a new key for a place, and returns it in the form of a response.
    fn make(&mut self, location: &str, life: Duration, is_told: bool) -> Json {
        self.made += 1;
        let id = format!("key-{}", self.made);
        let ends = self.clock.now() / 1000 + life.as_millis() as i64;
        let place = location.strip_prefix("s3://bucket/").unwrap().to_owned();
        self.keys.insert(id.clone(), (place, ends));
        let mut told = json!({
            "s3.access-key-id": id,
            "s3.secret-access-key": format!("hush-{}-", self.made),
            "s3.session-token": format!("token-{}-", self.made),
        });
        if is_told {
            told["s3.session-token-expires-at-ms"] = json!(ends.to_string());
        }
        told
    }
}

/// The store behind the access control.
struct GuardedStore {
    store: Arc<InMemory>,
    access: SharedAccessControl,
    credentials: AwsCredentialProvider,
}

impl fmt::Debug for GuardedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("guarded")
    }
}

impl fmt::Display for GuardedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("guarded")
    }
}

impl GuardedStore {
    async fn pass(&self, key: &Key) -> StoreResult<()> {
        let credential = self.credentials.get_credential().await?;
        let number = credential.key_id.strip_prefix("key-").unwrap_or_default();
        let (secret, token) = (format!("hush-{number}-"), format!("token-{number}-"));
        let mut access = self.access.lock().unwrap();
        let now = access.clock.now() / 1000;
        let is_right = credential.secret_key == secret && credential.token.as_ref() == Some(&token);
        let found = access.keys.get(&credential.key_id).filter(|_| is_right).cloned();
        let why: Box<dyn std::error::Error + Send + Sync> = match found {
            Some((place, ends)) if now < ends && key.prefix_matches(&Key::from(place.as_str())) => {
                return Ok(());
            }
            // Amazon's error, which comes with 400.
            Some((_, ends)) if now >= ends => {
                access.refused += 1;
                let source = format!("400: <Code>ExpiredToken</Code><Token-0>{token}</Token-0>").into();
                return Err(StoreError::Generic { store: "guarded", source });
            }
            Some(_) => "AccessDenied".into(),
            None => format!("InvalidAccessKeyId {token}").into(),
        };
        access.refused += 1;
        Err(StoreError::PermissionDenied { path: key.to_string(), source: why })
    }
}

#[async_trait::async_trait]
impl ObjectStore for GuardedStore {
    async fn put_opts(
        &self,
        key: &Key,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> StoreResult<PutResult> {
        self.pass(key).await?;
        {
            let mut access = self.access.lock().unwrap();
            access.probes += u64::from(key.as_ref().contains("polynya-probe"));
            if access.is_careless {
                options.mode = PutMode::Overwrite;
            }
        }
        self.store.put_opts(key, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        key: &Key,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.pass(key).await?;
        self.store.put_multipart_opts(key, options).await
    }

    async fn get_opts(&self, key: &Key, options: GetOptions) -> StoreResult<GetResult> {
        self.pass(key).await?;
        self.store.get_opts(key, options).await
    }

    async fn get_ranges(&self, key: &Key, ranges: &[Range<u64>]) -> StoreResult<Vec<Bytes>> {
        self.pass(key).await?;
        self.store.get_ranges(key, ranges).await
    }

    fn delete_stream(
        &self,
        keys: BoxStream<'static, StoreResult<Key>>,
    ) -> BoxStream<'static, StoreResult<Key>> {
        let guarded = GuardedStore {
            store: self.store.clone(),
            access: self.access.clone(),
            credentials: self.credentials.clone(),
        };
        let passed = keys.and_then(move |key| {
            let guarded = GuardedStore {
                store: guarded.store.clone(),
                access: guarded.access.clone(),
                credentials: guarded.credentials.clone(),
            };
            async move {
                guarded.pass(&key).await?;
                if guarded.access.lock().unwrap().keeps {
                    Err(StoreError::Generic { store: "guarded", source: "503".into() })
                } else {
                    Ok(key)
                }
            }
        });
        self.store.delete_stream(passed.boxed())
    }

    fn list(&self, prefix: Option<&Key>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Key>) -> StoreResult<ListResult> {
        self.pass(prefix.unwrap()).await?;
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Key, to: &Key, options: CopyOptions) -> StoreResult<()> {
        self.store.copy_opts(from, to, options).await
    }
}

struct GuardedConnector {
    store: Arc<InMemory>,
    access: SharedAccessControl,
    endpoints: Mutex<Vec<StoreEndpoint>>,
}

impl Connector for GuardedConnector {
    fn connect(
        &self,
        endpoint: &StoreEndpoint,
        credentials: AwsCredentialProvider,
    ) -> types::Result<Arc<dyn ObjectStore>> {
        self.endpoints.lock().unwrap().push(endpoint.clone());
        Ok(Arc::new(GuardedStore { store: self.store.clone(), access: self.access.clone(), credentials }))
    }
}

struct Setup {
    bench: Bench,
    fake: FakeCatalog,
    store: Arc<InMemory>,
    access: SharedAccessControl,
    connector: Arc<GuardedConnector>,
}

const CREDENTIALS: &str = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials";
const TABLE: [&str; 5] = [
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces",
    CREDENTIALS,
];

/// Hands out credentials in `storage-credentials`, for an hour.
fn setup() -> Setup {
    setup_with(|access, location| {
        let right = json!({ "prefix": location, "config": access.make(location, HOUR, true) });
        let wide = json!({ "prefix": "s3://bucket", "config": { "s3.access-key-id": "no", "s3.secret-access-key": "no" } });
        (json!({ "s3.endpoint": "http://there" }), json!([wide, right]))
    })
}

fn setup_with(vend: impl Fn(&mut AccessControl, &str) -> (Json, Json) + Send + 'static) -> Setup {
    let fake = FakeCatalog::default();
    // The clock is that of the simulated machine, which is created with the bench.
    let mut bench = Bench::new(small());
    let (store, clock) = (Arc::new(InMemory::new()), bench.sim.env().clock);
    let keys = BTreeMap::new();
    let access =
        AccessControl { clock, keys, made: 0, refused: 0, is_careless: false, keeps: false, probes: 0 };
    let access = Arc::new(Mutex::new(access));
    let connector = Arc::new(GuardedConnector {
        store: store.clone(),
        access: access.clone(),
        endpoints: Mutex::default(),
    });
    let objects =
        Objects::with_connector(connector.clone(), "lake", URI.into(), Duration::from_secs(10), "database")
            .unwrap();
    let Options { objects, warehouse, location, .. } = Options::remote(objects);
    let options =
        Options { objects, warehouse, location, catalog: Some(catalog_in(&fake, "database")), ..small() };
    bench.materializer = super::super::support::materializer(options);
    let shared = access.clone();
    fake.vends(Box::new(move |location| Ok(vend(&mut shared.lock().unwrap(), location))));
    Setup { bench, fake, store, access, connector }
}

impl Setup {
    /// Lands everything, and compares the rows that the catalog's readers find.
    fn land(&mut self) {
        let lake = self.bench.land();
        let told = self.fake.metadata("main.t").unwrap();
        assert_eq!(
            read_with_metadata(&lake.store, &lake.dir, told).unwrap(),
            rows_of(&self.bench.snapshot()).unwrap()
        );
    }

    fn after(&mut self, time: Duration) -> &mut Self {
        self.bench.sim.clock.advance(time);
        self
    }

    fn made(&self) -> u64 {
        self.access.lock().unwrap().made
    }

    fn refused(&self) -> u64 {
        self.access.lock().unwrap().refused
    }

    fn names(&self) -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let all = self.store.list(None).map_ok(|meta| meta.location.to_string()).try_collect();
        runtime.block_on(all).unwrap()
    }

    fn drop_table(&self) -> types::Result<()> {
        let materializer: &dyn table::materializer::Materializer = &*self.bench.materializer;
        materializer.dropped(&self.bench.place())
    }
}

#[test]
fn a_table_lands_with_credentials_that_come_with_it() {
    let _limit = testkit::limit(120);
    for form in 0..3 {
        let mut setup = setup_with(move |access, location| match form {
            // Credentials for the whole table, and none for parts of the store that apply.
            0 => (access.make(location, HOUR, true), json!([{ "prefix": "s3://other", "config": {} }])),
            // No expiry is told.
            1 => (json!({}), json!([{ "prefix": location, "config": access.make(location, HOUR, false) }])),
            _ => (json!({}), json!([{ "prefix": location, "config": access.make(location, HOUR, true) }])),
        });
        if form == 2 {
            setup.fake.offers(&TABLE);
        }
        for step in 0..crashes::STEPS {
            crashes::changes(&mut setup.bench, step, &[0]);
            setup.land();
            if step % 5 == 4 {
                setup.bench.restart();
                assert!(setup.bench.position.is_some());
            }
            // More than an hour in all.
            setup.after(Duration::from_secs(600));
        }
        setup.after(2 * HOUR).bench.delete([22]);
        assert!(setup.bench.erase().unwrap().files_removed > 0);
        setup.land();
        assert_eq!(setup.bench.lake().unnamed_files().unwrap().len(), 0);
        let asked = setup.fake.log();
        let of = |what: &str| asked.iter().filter(|line| line.ends_with(what)).count();
        assert!(of("tables/t, with credentials") > 0 && of("tables, with credentials") == 1, "{asked:?}");
        assert_eq!(of("t/credentials, with credentials") > 0, form == 2, "{asked:?}");
        assert!(asked.iter().all(|line| !line.starts_with("POST p/namespaces/main/tables/t,")), "{asked:?}");
        // The catalog tells which database owns the table, so that no object marks it.
        let names = setup.names();
        assert!(names.iter().all(|name| name.starts_with("lake/main/t-")), "{names:?}");
        assert!(names.iter().all(|name| !name.contains("polynya-")), "{names:?}");
        setup.drop_table().unwrap();
        assert!(setup.fake.metadata("main.t").is_none());
        assert_eq!(setup.names(), [""; 0]);
    }
}

#[test]
fn the_store_is_reached_at_the_endpoint_that_the_catalog_names() {
    let _limit = testkit::limit(60);
    let mut setup = setup();
    setup.bench.keys(0..10);
    setup.land();
    let endpoints = setup.connector.endpoints.lock().unwrap();
    assert_eq!(
        endpoints[0],
        StoreEndpoint { endpoint: Some("http://there".into()), ..StoreEndpoint::default() }
    );
    assert_eq!(setup.access.lock().unwrap().refused, 0, "those of the longest prefix, before others");
}

/// Credentials expire between two commits, and new ones are there in time.
#[test]
fn commits_continue_when_credentials_expire() {
    let _limit = testkit::limit(120);
    let mut setup = setup();
    for n in 0..12 {
        setup.bench.keys(10 * n..10 * n + 10);
        setup.land();
        setup.after(HOUR * 2 / 5);
    }
    assert!(
        (4..=14).contains(&setup.made()),
        "{} in 12 commits, each some minutes after another",
        setup.made()
    );
    // No credentials are requested for a day.
    setup.after(24 * HOUR).bench.keys(200..210);
    setup.land();
    assert_eq!(setup.refused(), 0, "none was used beyond its end");
}

#[test]
fn credentials_that_the_store_refuses_are_replaced() {
    let _limit = testkit::limit(60);
    for has_ended in [true, false] {
        // No expiry is told.
        let mut setup = setup_with(|access, location| (access.make(location, HOUR / 2, false), Json::Null));
        setup.bench.keys(0..10);
        setup.land();
        for n in 1..4 {
            if has_ended {
                setup.after(HOUR * 2 / 3);
            } else {
                setup.after(Duration::from_secs(60));
                setup.access.lock().unwrap().keys.clear();
            }
            setup.bench.keys(10 * n..10 * n + 10);
            setup.bench.try_land().unwrap();
            setup.land();
        }
        assert_eq!((setup.refused(), setup.made()), (3, 4), "ended: {has_ended}");
    }
}

#[test]
fn a_catalog_without_new_credentials_stops_nothing_before_the_old_ones_expire() {
    let _limit = testkit::limit(60);
    let mut setup = setup();
    setup.bench.keys(0..10);
    setup.land();
    setup.fake.vends(Box::new(|_| Err(503)));
    // New credentials are due, and none are available.
    for n in 1..5 {
        setup.after(Duration::from_secs(14 * 60)).bench.keys(10 * n..10 * n + 10);
        setup.land();
    }
    setup.after(HOUR / 2).bench.keys(100..110);
    for _ in 0..3 {
        let error = setup.bench.try_land().map(drop).unwrap_err();
        assert_eq!(error.kind(), Kind::Io, "{error}");
        let said = format!("{error} {error:?}");
        assert!(said.contains("have expired") && said.contains("no credentials today"), "{said}");
        assert!(!said.contains("hush") && !said.contains("token-"), "{said}");
    }
    // The table lands again by itself once the catalog hands out credentials.
    let access = setup.access.clone();
    setup
        .fake
        .vends(Box::new(move |location| Ok((access.lock().unwrap().make(location, HOUR, true), Json::Null))));
    setup.bench.try_land().unwrap();
    setup.land();
}

#[test]
fn an_error_of_the_store_shows_no_secret() {
    let _limit = testkit::limit(60);
    for is_known in [true, false] {
        let mut setup =
            setup_with(move |access, location| (access.make(location, HOUR, is_known), Json::Null));
        setup.bench.keys(0..10);
        setup.land();
        // Both the current and the next credentials are invalid, and young.
        let access = setup.access.clone();
        setup.fake.vends(Box::new(move |location| {
            let mut access = access.lock().unwrap();
            let told = access.make(location, HOUR, true);
            access.keys.clear();
            Ok((told, Json::Null))
        }));
        setup.access.lock().unwrap().keys.clear();
        setup.after(Duration::from_secs(60)).bench.keys(10..20);
        let made = setup.made();
        let error = setup.bench.try_land().map(drop).unwrap_err();
        let said = format!("{error} {error:?} {:?}", setup.bench.lake());
        assert!(said.contains("InvalidAccessKeyId (not shown)"), "{said}");
        assert!(!said.contains("hush") && !said.contains("token-"), "{said}");
        assert!(error.hint_text().unwrap().contains("the catalog handed out"), "{error}");
        assert_eq!(setup.made(), made + 1, "young ones are not asked for again and again");
    }
}

#[test]
fn a_table_without_credentials_does_not_land_and_says_why() {
    let _limit = testkit::limit(60);
    let mut setup = setup_with(|_, _| (json!({ "s3.remote-signing-enabled": "true" }), Json::Null));
    setup.bench.keys(0..10);
    for _ in 0..3 {
        let error = setup.bench.try_land().map(drop).unwrap_err();
        assert_eq!(error.kind(), Kind::Forbidden, "{error}");
        assert!(error.to_string().contains("signs each request itself"), "{error}");
    }
    assert_eq!(setup.names(), [""; 0]);
    let access = setup.access.clone();
    setup
        .fake
        .vends(Box::new(move |location| Ok((access.lock().unwrap().make(location, HOUR, true), Json::Null))));
    setup.bench.try_land().unwrap();
    setup.land();
}

/// The store is tested once for each process, below the first table's location.
#[test]
fn a_store_is_tried_before_the_first_commit() {
    let _limit = testkit::limit(60);
    let mut setup = setup();
    setup.access.lock().unwrap().is_careless = true;
    setup.bench.keys(0..10);
    let error = setup.bench.try_land().map(drop).unwrap_err();
    assert!(error.to_string().contains("If-None-Match"), "{error}");
    assert_eq!(setup.names(), [""; 0]);
    setup.access.lock().unwrap().is_careless = false;
    setup.land();
    let probes = setup.access.lock().unwrap().probes;
    setup.fake.drop_table("main.t");
    setup.bench.keys(10..20);
    // The table lands again, with other credentials.
    let mut tries = 0;
    while setup.bench.try_land().is_err() {
        tries += 1;
        assert!(tries < 3);
    }
    setup.land();
    assert_eq!(setup.access.lock().unwrap().probes, probes);
}

/// Files are removed while there are credentials for them. A removal that fails is completed by the next try.
#[test]
fn a_dropped_table_loses_its_files_though_the_first_try_fails() {
    let _limit = testkit::limit(60);
    for fails in ["store", "drop", "lost"] {
        let mut setup = setup();
        setup.bench.keys(0..10);
        setup.land();
        match fails {
            "store" => setup.access.lock().unwrap().keeps = true,
            "drop" => setup.fake.fail(2, false, Fate::Before(503)),
            _ => setup.fake.fail(2, false, Fate::Lost),
        }
        setup.after(2 * HOUR);
        assert!(setup.drop_table().is_err(), "{fails}");
        assert_eq!(setup.fake.metadata("main.t").is_some(), fails != "lost", "{fails}");
        setup.access.lock().unwrap().keeps = false;
        setup.fake.works_again();
        setup.drop_table().unwrap();
        assert!(setup.fake.metadata("main.t").is_none());
        assert_eq!(setup.names(), [""; 0], "{fails}");
        assert!(setup.bench.sim.env().disk.list(&setup.bench.place().dir).unwrap().is_empty());
    }
}

/// A table that is not in the catalog any more has no credentials, and it may be there under another name.
#[test]
fn a_table_that_was_dropped_there_keeps_its_files() {
    let _limit = testkit::limit(60);
    let mut setup = setup();
    setup.bench.keys(0..10);
    setup.land();
    let before = setup.names();
    setup.fake.drop_table("main.t");
    setup.drop_table().unwrap();
    assert_eq!(setup.names(), before);
    assert!(setup.bench.sim.env().disk.list(&setup.bench.place().dir).unwrap().is_empty());
}

/// Another table took the name in the catalog; its credentials are not used for this one's files.
#[test]
fn credentials_of_another_table_are_not_used() {
    let _limit = testkit::limit(60);
    let mut setup = setup();
    setup.bench.keys(0..10);
    setup.land();
    let old = setup.bench.lake();
    setup.fake.drop_table("main.t");
    setup.bench.keys(10..20);
    while setup.bench.try_land().is_err() {}
    setup.land();
    let made = setup.made();
    setup.after(2 * HOUR);
    let error = old.store.list(&old.dir.join("data")).unwrap_err();
    assert!(error.to_string().contains("another table by now"), "{error}");
    // The new credentials are for the other table. The store got no call with them.
    assert_eq!((setup.made(), setup.refused()), (made + 1, 0));
}

#[test]
fn a_server_with_a_key_requests_no_credentials() {
    let _limit = testkit::limit(60);
    let (fake, store) = (FakeCatalog::default(), Arc::new(Flaky::default()));
    fake.vends(Box::new(|_| panic!("nobody asks")));
    let options = Options { catalog: Some(catalog_in(&fake, "database")), ..remote::options_in(&store) };
    let mut bench = Bench::new(options);
    bench.keys(0..10);
    bench.land();
    bench.restart();
    bench.keys(10..20);
    bench.land();
    let materializer: &dyn table::materializer::Materializer = &*bench.materializer;
    materializer.dropped(&bench.place()).unwrap();
    assert!(fake.log().iter().all(|line| !line.contains("with credentials")));
}
