//! The store of a warehouse's files: this machine, or an object store.
//!
//! A path is a local path or the name of an object. In both cases a file is written whole before anything names it. Only
//! the metadata file of a commit can collide with another file of its name: [`Store::publish`].

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use iceberg::checksums::{self, Checksums};
use types::{Error, Kind, Result};
use vfs::{Entry, Env};

use crate::files;
use crate::objects::{Credential, Objects, StoreEndpoint, Upload, Vendor};

/// The files of a warehouse, with the clock and randomness of their writer.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) env: Env,
    objects: Option<Objects>,
}

impl Store {
    pub fn new(env: Env, objects: Option<Objects>) -> Store {
        Store { env, objects }
    }

    /// A store on this machine.
    pub fn local(env: &Env) -> Store {
        Store::new(env.clone(), None)
    }

    pub fn is_remote(&self) -> bool {
        self.objects.is_some()
    }

    /// Returns true if the store is only accessible with credentials that a catalog issues for single tables.
    pub fn lacks_key(&self) -> bool {
        self.objects.as_ref().is_some_and(Objects::lacks_key)
    }

    /// Returns true if its credentials are for one table only.
    pub(crate) fn is_for_table(&self) -> bool {
        self.objects.as_ref().is_some_and(Objects::is_for_table)
    }

    /// Returns this store with credentials for a table's directory.
    pub(crate) fn for_table(
        &self,
        dir: &Path,
        endpoint: &StoreEndpoint,
        first: Credential,
        vendor: Box<dyn Vendor>,
    ) -> Result<Store> {
        let objects =
            self.objects.as_ref().ok_or_else(|| Error::internal("this machine needs no credentials"))?;
        let objects = objects.for_table(&self.env, name(dir)?, endpoint, first, vendor)?;
        Ok(Store { env: self.env.clone(), objects: Some(objects) })
    }

    /// Checks, before the first change, that commits are safe and that no other database writes the warehouse.
    pub fn ensure_usable(&self) -> Result<()> {
        self.objects.as_ref().map_or(Ok(()), |objects| objects.ensure_usable(&self.env))
    }

    /// Checks, before a change to shared files, that no other process has started on the warehouse since.
    pub(crate) fn check_last_start(&self) -> Result<()> {
        self.objects.as_ref().map_or(Ok(()), Objects::check_last_start)
    }

    /// The id of the database that writes here, if several could; `None` for a local store.
    pub fn owner(&self) -> Option<&str> {
        self.objects.as_ref().map(Objects::owner)
    }

    /// Reads a whole file.
    pub fn read(&self, path: &Path) -> Result<Bytes> {
        match &self.objects {
            None => files::read(&self.env, path),
            Some(objects) => objects.get(name(path)?),
        }
    }

    /// Reads `len` bytes of a file from `offset` on, or as many as there are. It may be called from any thread: an object
    /// store does not wait for a runtime of the caller.
    pub fn read_range(&self, path: &Path, offset: u64, len: u64) -> Result<Bytes> {
        match &self.objects {
            None => {
                let bytes = files::read(&self.env, path)?;
                let end = (offset.saturating_add(len)).min(bytes.len() as u64);
                Ok(bytes.slice(offset.min(end) as usize..end as usize))
            }
            Some(objects) => objects.get_range(name(path)?, offset, len),
        }
    }

    /// Returns true if the file exists.
    pub fn exists(&self, path: &Path) -> Result<bool> {
        match &self.objects {
            None => files::exists(&self.env, path),
            Some(objects) => Ok(objects.len(name(path)?)?.is_some()),
        }
    }

    /// Returns the size of a file; 0 if it does not exist.
    pub fn len(&self, path: &Path) -> Result<u64> {
        match &self.objects {
            None => files::len(&self.env, path),
            Some(objects) => Ok(objects.len(name(path)?)?.unwrap_or(0)),
        }
    }

    /// Returns the entries of a directory, sorted; none if it does not exist.
    pub fn list(&self, dir: &Path) -> Result<Vec<Entry>> {
        match &self.objects {
            None => files::list(&self.env, dir),
            Some(objects) => {
                let found = objects.list(name(dir)?)?;
                Ok(found
                    .into_iter()
                    .map(|o| Entry { name: o.name, len: o.bytes, is_dir: o.is_dir })
                    .collect())
            }
        }
    }

    /// Writes a new file under a unique name; durable after [`Store::sync_dir`].
    pub fn write(&self, path: &Path, bytes: Vec<u8>) -> Result<()> {
        match &self.objects {
            None => files::write(&self.env, path, &bytes),
            Some(objects) => objects.put(name(path)?, bytes.into()),
        }
    }

    /// Writes a file, replacing one of the same name. Durable after [`Store::sync_dir`].
    pub fn replace(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        match &self.objects {
            None => files::replace(&self.env, path, bytes),
            Some(objects) => objects.put(name(path)?, Bytes::copy_from_slice(bytes)),
        }
    }

    /// Makes a file appear, whole and durable, which is the essence of a commit. `at_risk` is called last before the file
    /// may appear: from then on it may exist, whatever error is returned. Fails with [`Kind::Exists`] if another file has
    /// the name. Fails with [`Kind::InUse`] if another server has started on the warehouse since, which only an object
    /// store detects; elsewhere the directory's lock keeps others away.
    pub fn publish(&self, path: &Path, bytes: Vec<u8>, at_risk: impl FnOnce() -> Result<()>) -> Result<()> {
        let Some(objects) = &self.objects else {
            let (env, dir) = (&self.env, path.parent().unwrap_or(Path::new("")));
            let temporary = files::temporary(path);
            files::remove(env, &temporary)?;
            let written = files::write(env, &temporary, &bytes).and_then(|()| files::sync_dir(env, dir));
            if let Err(error) = written.and_then(|()| at_risk()) {
                // A leftover temporary file is harmless.
                let _ = files::remove(env, &temporary);
                return Err(error);
            }
            env.disk.rename(&temporary, path).map_err(files::io_error("naming", path))?;
            return files::sync_dir(env, dir);
        };
        let name = name(path)?;
        objects.check_last_start()?;
        at_risk()?;
        objects.put_if_absent(name, bytes.into()).map_err(|error| match error.kind() {
            Kind::Exists => error.hint("does another server write this warehouse? each needs one of its own"),
            _ => error,
        })
    }

    /// Removes a file if it exists.
    pub fn remove(&self, path: &Path) -> Result<()> {
        match &self.objects {
            None => files::remove(&self.env, path),
            Some(objects) => objects.remove(name(path)?),
        }
    }

    /// Creates a directory and its missing parents below `base`, with durable names.
    pub fn make_dir(&self, base: &Path, dir: &Path) -> Result<()> {
        match &self.objects {
            None => files::make_dir(&self.env, base, dir),
            Some(_) => Ok(()),
        }
    }

    /// Removes a directory if it is empty.
    pub fn remove_dir(&self, dir: &Path) -> Result<()> {
        if self.objects.is_none() && files::exists(&self.env, dir)? {
            // The removal fails, and is meant to, if other programs have files in it.
            let _ = self.env.disk.remove_dir(dir);
        }
        Ok(())
    }

    /// Makes the names in a directory durable.
    pub fn sync_dir(&self, dir: &Path) -> Result<()> {
        match &self.objects {
            None => files::sync_dir(&self.env, dir),
            Some(_) => Ok(()),
        }
    }

    /// Makes the content of a file of another program durable; its name is durable after [`Store::sync_dir`].
    pub fn sync(&self, path: &Path) -> Result<()> {
        match &self.objects {
            None => files::sync(&self.env, path),
            Some(_) => Ok(()),
        }
    }

    /// Creates a file that is written from front to back, under a unique name.
    pub fn sink(&self, path: PathBuf) -> Result<Sink> {
        let to = match &self.objects {
            None => SinkTarget::File(files::Sink::create(&self.env, path)?),
            Some(objects) => SinkTarget::Object(Some(objects.upload(name(&path)?)?)),
        };
        Ok(Sink { to, len: 0, checksums: checksums::Builder::default() })
    }
}

/// Returns the id by which a warehouse elsewhere identifies a database. It is kept in the data directory, and created by
/// the first call.
pub fn database_id(env: &Env, dir: &Path) -> Result<String> {
    let path = dir.join(DATABASE_ID);
    if files::exists(env, &path)? {
        let bytes = files::read(env, &path)?;
        let id = std::str::from_utf8(&bytes).map(str::trim).ok().filter(|id| !id.is_empty());
        return id.map(str::to_owned).ok_or_else(|| {
            Error::damaged(format!("{} has no database id", path.display()))
                .hint("put it back: the object polynya-warehouse.json in the warehouse names the same id")
        });
    }
    let id = crate::create::uuid(env);
    files::replace(env, &path, format!("{id}\n").as_bytes())?;
    files::sync_dir(env, dir)?;
    Ok(id)
}

/// Name of the file with the id, in the data directory.
const DATABASE_ID: &str = "database-id";

fn name(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::invalid(format!("`{}` is not a valid object name", path.display())))
}

/// A file that is being written.
pub struct Sink {
    to: SinkTarget,
    len: u64,
    checksums: checksums::Builder,
}

enum SinkTarget {
    File(files::Sink),
    /// An upload; `None` once it is finished.
    Object(Option<Upload>),
}

impl Sink {
    /// Number of bytes written so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Makes the content durable, but not the directory entry, and returns its checksums.
    pub fn finish(&mut self) -> Result<Checksums> {
        match &mut self.to {
            SinkTarget::File(sink) => sink.finish()?,
            SinkTarget::Object(upload) => upload.take().map_or(Ok(()), Upload::finish)?,
        }
        Ok(self.checksums.finish())
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.to {
            SinkTarget::File(sink) => sink.write_all(bytes)?,
            SinkTarget::Object(Some(upload)) => upload.write(bytes).map_err(io::Error::other)?,
            SinkTarget::Object(None) => return Err(io::Error::other("the object is finished")),
        }
        self.len += bytes.len() as u64;
        self.checksums.add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
