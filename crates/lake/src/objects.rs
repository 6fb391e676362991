//! Files of a warehouse or a backup in an object store: S3 and compatible ones.
//!
//! Object names replace directories and renames: a file appears completely under its final name, or not at all. A file that
//! must not replace another one is put on the condition that no object has its name (`If-None-Match: *`). This makes a commit
//! atomic between machines (K1). [`Objects::ensure_usable`] detects a store that ignores the condition, and refuses it.
//!
//! Every call ends within [`Options::call_max`] and reports its outcome. If the response to a conditional put is lost, the
//! object is read back: the put succeeded if the object has our bytes.
//!
//! Without a key of our own ([`Objects::without_key`]), a catalog hands out credentials for one table each. `of_table` derives
//! a store for the table's directory from the warehouse's, and nothing else can be reached. `vended` caches the credentials.
//!
//! The interface is synchronous; a small runtime of its own runs the network. This is an exception to `vfs`, which covers only
//! this machine's files.

mod call;
mod connect;
mod starts;
#[cfg(test)]
pub(crate) mod tests;
mod vended;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path as Key;
use object_store::{
    GetOptions, GetRange, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};
use tokio::runtime::Runtime;
use types::{Error, Kind, Result};
use vfs::Env;

use call::is_missing;
pub use call::{is_ended, is_refused};
pub use connect::Options;
pub(crate) use connect::{Connector, StoreEndpoint};
use starts::Start;
pub(crate) use vended::{Credential, Vendor};
use vended::{CredentialCache, Provider};

/// Bytes of a part of a multipart upload. S3 takes none below 5 MiB, except for the last.
pub const PART_BYTES: usize = 8 << 20;
/// Number of times that a put is tried if its outcome is unknown.
const UNKNOWN_TRIES: usize = 3;
/// The beginning of the name of the object that tests conditional puts.
const PROBE: &str = "polynya-probe";

/// The purpose of a place in a store. Each place belongs to one database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Warehouse,
    Backup,
}

impl Purpose {
    /// Returns the name of the object that tells which database owns the place.
    pub fn mark(self) -> &'static str {
        match self {
            Purpose::Warehouse => "polynya-warehouse.json",
            Purpose::Backup => "polynya-backup.json",
        }
    }
}

/// A place in an object store. Object names are relative to it.
#[derive(Clone)]
pub struct Objects {
    network: Arc<Network>,
    client: Client,
    prefix: Key,
    /// The place in Iceberg's form, `s3://bucket/prefix`.
    uri: String,
    call_max: Duration,
    /// The id of the database that is to own the place.
    owner: Arc<str>,
    purpose: Purpose,
    /// True once the checks of [`Objects::ensure_usable`] have passed.
    is_sure: Arc<AtomicBool>,
    /// This process's start in the warehouse; unused for other purposes.
    start: Arc<Start>,
}

#[derive(Clone)]
enum Client {
    Own(Arc<dyn ObjectStore>),
    /// There is no client: tables have credentials, and this makes their clients.
    Keyless(Arc<dyn Connector>),
    PerTable(Arc<TableClient>),
}

/// The client for one table's directory; `dir` is relative to the prefix.
struct TableClient {
    client: Arc<dyn ObjectStore>,
    vended: Arc<CredentialCache>,
    dir: String,
}

/// The runtime that runs the calls. It is shut down without waiting, because it may be dropped in any thread.
struct Network(Option<Runtime>);

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.uri)
    }
}

/// An object or a directory in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The name, relative to the listed directory.
    pub name: String,
    pub bytes: u64,
    pub is_dir: bool,
}

impl Objects {
    /// Opens a place in any store. `uri` is its name in Iceberg's metadata, `owner` the id of the database that writes there.
    pub fn new(
        client: Arc<dyn ObjectStore>,
        prefix: &str,
        uri: String,
        call_max: Duration,
        owner: &str,
    ) -> Result<Objects> {
        Objects::with(Client::Own(client), prefix, uri, call_max, owner)
    }

    /// Opens a place without a key. Credentials are handed out for each table, and `connect` creates clients with them.
    pub(crate) fn with_connector(
        connect: Arc<dyn Connector>,
        prefix: &str,
        uri: String,
        call_max: Duration,
        owner: &str,
    ) -> Result<Objects> {
        Objects::with(Client::Keyless(connect), prefix, uri, call_max, owner)
    }

    fn with(client: Client, prefix: &str, uri: String, call_max: Duration, owner: &str) -> Result<Objects> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            // For the resolution of host names, and for requests for credentials.
            .max_blocking_threads(32)
            .thread_name("pn-objects")
            .enable_all()
            .build()
            .map_err(|e| Error::io("starting the thread of the object store", e))?;
        let prefix = Key::parse(prefix.trim_matches('/')).map_err(|e| {
            Error::invalid(format!("`{prefix}` is not a valid prefix in an object store: {e}"))
        })?;
        let is_sure = Arc::default();
        let network = Arc::new(Network(Some(runtime)));
        let purpose = Purpose::Warehouse;
        let (owner, start) = (owner.into(), Arc::default());
        Ok(Objects { network, client, prefix, uri, call_max, owner, purpose, is_sure, start })
    }

    /// Returns the same place for a purpose other than a warehouse.
    #[must_use]
    pub fn used_for(self, purpose: Purpose) -> Objects {
        Objects { purpose, is_sure: Arc::default(), start: Arc::default(), ..self }
    }

    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Returns true if this store has no key: only tables can be reached, with credentials that are handed out for them.
    pub fn lacks_key(&self) -> bool {
        matches!(self.client, Client::Keyless(_))
    }

    /// Returns true if the credentials are handed out for one table.
    pub(crate) fn is_for_table(&self) -> bool {
        matches!(self.client, Client::PerTable(_))
    }

    /// Returns the same place with credentials that are handed out for the table directory `dir`.
    pub(crate) fn for_table(
        &self,
        env: &Env,
        dir: &str,
        endpoint: &StoreEndpoint,
        first: Credential,
        vendor: Box<dyn Vendor>,
    ) -> Result<Objects> {
        let Client::Keyless(connect) = &self.client else {
            return Err(Error::internal("a store with a key of its own is given another one"));
        };
        let vended = CredentialCache::new(vendor, env.clock.clone(), first);
        let client = connect.connect(endpoint, Arc::new(Provider(vended.clone())))?;
        let of_table = TableClient { client, vended, dir: dir.to_owned() };
        Ok(Objects { client: Client::PerTable(Arc::new(of_table)), ..self.clone() })
    }

    fn client(&self) -> Result<&Arc<dyn ObjectStore>> {
        match &self.client {
            Client::Own(client) => Ok(client),
            Client::PerTable(of_table) => Ok(&of_table.client),
            Client::Keyless(_) => Err(Error::new(
                Kind::Forbidden,
                format!("there is no key for {}, only for the tables in the catalog", self.uri),
            )
            .hint("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")),
        }
    }

    fn vended(&self) -> Option<&Arc<CredentialCache>> {
        match &self.client {
            Client::PerTable(of_table) => Some(&of_table.vended),
            Client::Own(_) | Client::Keyless(_) => None,
        }
    }

    /// Checks, before anything is committed, that commits are safe here: that the store honours conditional puts, and that the
    /// place belongs to no other database. These checks run once. Later calls check that no other process has started on this
    /// warehouse since. Without a key the first checks wait for a table's credentials, and the catalog tells which database
    /// owns a table.
    pub fn ensure_usable(&self, env: &Env) -> Result<()> {
        if self.lacks_key() {
            return Ok(());
        }
        if self.is_sure.load(Ordering::Acquire) {
            return self.check_last_start();
        }
        self.check_conditions(env.random.next_u64())?;
        if let Client::Own(_) = self.client {
            self.claim()?;
            if self.purpose == Purpose::Warehouse {
                self.claim_start(env)?;
            }
        }
        self.is_sure.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns the id of the database that writes here.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Marks the place as owned by this database.
    fn claim(&self) -> Result<()> {
        let mark = format!("{{\"database\":\"{}\"}}\n", self.owner);
        let name = self.purpose.mark();
        self.put_if_absent(name, mark.into()).map_err(|error| match (error.kind(), self.purpose) {
            (Kind::Exists, Purpose::Warehouse) => {
                Error::new(Kind::InUse, format!("the warehouse {} belongs to another database", self.uri)).hint(format!(
                    "give each database a prefix of its own; if that one is gone for good, remove the object `{name}` there"
                ))
            }
            (Kind::Exists, Purpose::Backup) => Error::new(
                Kind::InUse,
                format!("a backup of another database was begun in {}", self.uri),
            )
            .hint("give each backup a prefix of its own"),
            _ => error,
        })
    }

    /// Returns true if any database has marked the place.
    pub fn is_marked(&self) -> Result<bool> {
        self.len(self.purpose.mark()).map(|len| len.is_some())
    }

    /// Returns true if `name` is an object that [`Objects::ensure_usable`] writes, or a remainder of one.
    pub fn is_own(&self, name: &str) -> bool {
        name == self.purpose.mark() || name.starts_with(PROBE)
    }

    /// Refuses a store that overwrites an object despite the condition: two servers would overwrite each other's commits there.
    fn check_conditions(&self, unique: u64) -> Result<()> {
        let name = match &self.client {
            Client::PerTable(of_table) => format!("{}/{PROBE}-{unique:016x}", of_table.dir),
            Client::Own(_) | Client::Keyless(_) => format!("{PROBE}-{unique:016x}"),
        };
        let (first, second) = (Bytes::from_static(b"first"), Bytes::from_static(b"second"));
        self.put_if_absent(&name, first.clone())?;
        let again = self.put_if_absent(&name, second);
        let found = self.get(&name);
        // A remaining probe does no harm.
        let _ = self.remove(&name);
        match (again, found) {
            (Err(error), Ok(found)) if error.kind() == Kind::Exists && found == first => Ok(()),
            (Err(error), _) if error.kind() != Kind::Exists => Err(error),
            (_, Err(error)) => Err(error),
            _ => Err(Error::invalid(format!(
                "the object store at {} overwrites objects although the request forbids it (If-None-Match)",
                self.uri
            ))
            .hint(
                "files there would not be safe: use a store with conditional writes, or a folder of this machine",
            )),
        }
    }

    /// Puts a new object. Fails with [`Kind::Exists`] if another object has the name.
    pub fn put_if_absent(&self, name: &str, bytes: Bytes) -> Result<()> {
        let (client, key) = (self.client()?, self.key(name)?);
        let mut tries = 0;
        loop {
            tries += 1;
            let options = || PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            let put = || client.put_opts(&key, PutPayload::from(bytes.clone()), options());
            let failed = match self.call("writing", name, put) {
                Ok(_) => return Ok(()),
                Err(failed) => failed,
            };
            // The put failed, or its response was lost. The object itself tells which.
            match self.get(name) {
                Ok(found) if found == bytes => return Ok(()),
                Ok(_) => {
                    return Err(Error::new(
                        Kind::Exists,
                        format!("there is another {} already", self.uri_of(name)),
                    ));
                }
                Err(error) if is_missing(&error) && !failed.is_final() && tries < UNKNOWN_TRIES => {}
                Err(error) if is_missing(&error) => return Err(failed.into()),
                // The outcome stays unknown.
                Err(_) => return Err(failed.into()),
            }
        }
    }

    /// Puts an object, over an existing one if there is one.
    pub fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        let (client, key) = (self.client()?, self.key(name)?);
        let put = || client.put_opts(&key, PutPayload::from(bytes.clone()), PutOptions::default());
        self.call("writing", name, put).map(drop).map_err(Error::from)
    }

    /// Begins an object that is written sequentially and appears once it is finished.
    pub fn upload(&self, name: &str) -> Result<Upload> {
        let key = self.key(name)?;
        Ok(Upload {
            objects: self.clone(),
            key,
            name: name.to_owned(),
            buffer: Vec::new(),
            parts: None,
            bytes: 0,
        })
    }

    /// Puts an object of any size, over an existing one if there is one. `next` returns its blocks in order, then `None`. An
    /// error of `next` is returned unchanged, and no object appears.
    pub fn put_blocks(&self, name: &str, next: &mut dyn FnMut() -> Result<Option<Vec<u8>>>) -> Result<()> {
        let mut upload = self.upload(name)?;
        while let Some(block) = next()? {
            upload.write(&block)?;
        }
        upload.finish()
    }

    /// Fills `buffer` with the bytes from `offset` on. Fails with [`Kind::Damaged`] if the object is shorter, or gone.
    pub fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<()> {
        let damaged = |what: &str| Error::damaged(what).with("object", self.uri_of(name));
        let bytes = match self.get_range(name, offset, buffer.len() as u64) {
            Err(error) if is_missing(&error) => return Err(damaged("an object is gone")),
            bytes => bytes?,
        };
        if bytes.len() != buffer.len() {
            return Err(damaged("an object is shorter than it was"));
        }
        buffer.copy_from_slice(&bytes);
        Ok(())
    }

    /// Reads the whole object. If it does not exist, the error's source is [`std::io::ErrorKind::NotFound`].
    pub fn get(&self, name: &str) -> Result<Bytes> {
        let (client, key) = (self.client()?, self.key(name)?);
        let get = || async { client.get(&key).await?.bytes().await };
        self.call("reading", name, get).map_err(Error::from)
    }

    /// Reads `len` bytes from `offset` on, or fewer if the object ends before.
    pub fn get_range(&self, name: &str, offset: u64, len: u64) -> Result<Bytes> {
        let (client, key) = (self.client()?, self.key(name)?);
        let options =
            GetOptions { range: Some(GetRange::Bounded(offset..offset + len)), ..GetOptions::default() };
        let get = || {
            let (client, key, options) = (client.clone(), key.clone(), options.clone());
            async move { client.get_opts(&key, options).await?.bytes().await }
        };
        self.call_from_anywhere("reading", name, get).map_err(Error::from)
    }

    /// Returns the length of an object in bytes; `None` if it does not exist.
    pub fn len(&self, name: &str) -> Result<Option<u64>> {
        let (client, key) = (self.client()?, self.key(name)?);
        match self.call("looking for", name, || client.head(&key)) {
            Ok(meta) => Ok(Some(meta.size)),
            Err(failed) if failed.is_missing() => Ok(None),
            Err(failed) => Err(failed.into()),
        }
    }

    /// Removes an object if it exists.
    pub fn remove(&self, name: &str) -> Result<()> {
        let (client, key) = (self.client()?, self.key(name)?);
        match self.call("removing", name, || client.delete(&key)) {
            Ok(()) => Ok(()),
            Err(failed) if failed.is_missing() => Ok(()),
            Err(failed) => Err(failed.into()),
        }
    }

    /// Lists the objects and directories directly below a directory, by name. The list is empty if there is no such directory.
    pub fn list(&self, dir: &str) -> Result<Vec<Object>> {
        let (client, key) = (self.client()?, self.key(dir)?);
        let list = || client.list_with_delimiter(Some(&key));
        let found = self.call("listing", dir, list).map_err(Error::from)?;
        let last = |key: &Key| key.filename().unwrap_or_default().to_owned();
        let dirs = found.common_prefixes.iter().map(|key| Object { name: last(key), bytes: 0, is_dir: true });
        let files = found.objects.iter().map(|meta| Object {
            name: last(&meta.location),
            bytes: meta.size,
            is_dir: false,
        });
        let mut all: Vec<Object> = dirs.chain(files).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Returns the names of all objects below a directory, at any depth.
    pub fn list_all(&self, dir: &str) -> Result<Vec<String>> {
        let (client, key) = (self.client()?, self.key(dir)?);
        let list = || client.list(Some(&key)).map_ok(|meta| meta.location).try_collect::<Vec<Key>>();
        let found = self.call("listing", dir, list).map_err(Error::from)?;
        let below = |found: &Key| {
            let parts: Vec<_> =
                found.prefix_match(&self.prefix)?.map(|part| part.as_ref().to_owned()).collect();
            Some(parts.join("/"))
        };
        Ok(found.iter().filter_map(below).collect())
    }

    fn key(&self, name: &str) -> Result<Key> {
        let relative = Key::parse(name)
            .map_err(|e| Error::invalid(format!("`{name}` is not a valid name of an object: {e}")))?;
        Ok(self.prefix.parts().chain(relative.parts()).collect())
    }

    /// Returns an object's full name for messages; "" is the place itself.
    pub fn uri_of(&self, name: &str) -> String {
        if name.is_empty() { self.uri.clone() } else { format!("{}/{name}", self.uri) }
    }
}

/// An object that is being written. It never appears if it is dropped before it is finished.
pub struct Upload {
    objects: Objects,
    key: Key,
    name: String,
    buffer: Vec<u8>,
    /// The multipart upload, once the object is larger than one part.
    parts: Option<Box<dyn MultipartUpload>>,
    bytes: u64,
}

impl Upload {
    /// Returns the number of bytes written so far.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        self.bytes += bytes.len() as u64;
        if self.buffer.len() >= PART_BYTES { self.put_part() } else { Ok(()) }
    }

    fn put_part(&mut self) -> Result<()> {
        if self.parts.is_none() {
            let client = self.objects.client()?;
            let begin = || client.put_multipart(&self.key);
            self.parts = Some(self.objects.call("writing", &self.name, begin)?);
        }
        let Some(parts) = &mut self.parts else { return Err(Error::internal("an upload was just begun")) };
        let part = parts.put_part(PutPayload::from(std::mem::take(&mut self.buffer)));
        self.objects.call_once("writing", &self.name, part).map_err(Error::from)
    }

    /// Makes the object appear, complete and durable. No other process may write this name.
    pub fn finish(mut self) -> Result<()> {
        if self.parts.is_none() {
            let bytes = Bytes::from(std::mem::take(&mut self.buffer));
            return self.objects.put(&self.name, bytes);
        }
        if !self.buffer.is_empty() {
            self.put_part()?;
        }
        let Some(mut parts) = self.parts.take() else { return Ok(()) };
        let outcome = self.objects.call_once("writing", &self.name, parts.complete());
        let Err(failed) = outcome else { return Ok(()) };
        // The response may have been lost, and an upload cannot be completed twice.
        if self.objects.len(&self.name)? == Some(self.bytes) {
            return Ok(());
        }
        let _ = self.objects.call_once("giving up", &self.name, parts.abort());
        Err(failed.into())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // Uploaded parts occupy space until the upload is aborted. If that fails, the store's lifecycle rules remove them.
        if let Some(mut parts) = self.parts.take() {
            let _ = self.objects.call_once("giving up", &self.name, parts.abort());
        }
    }
}
