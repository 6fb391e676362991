//! Reads a data file for Parquet's reader: mapped, or in ranges from an object store, which are cached.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use iceberg::checksums::{CHUNK_BYTES, Checksums};
use iceberg::manifest::DataFile;
use parquet::errors::{ParquetError, Result as Parquet};
use parquet::file::reader::{ChunkReader, Length};
use types::{Error, Result};

use crate::read_cache::{CacheKey, CachedPart, CachedValue, ReadCache};
use crate::store::Store;

/// Bytes of one request to a store. The columns of a part are close to each other. Each such range has a checksum.
const RANGE_BYTES: u64 = CHUNK_BYTES;

/// Duration of a failed request from which the store counts as unavailable, and the longest pause after it.
const SLOW_ANSWER: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct FileBytes {
    location: FileLocation,
    len: u64,
    /// Checksums of the file, if they are known.
    checksums: Option<Arc<Checksums>>,
    /// The cause of a failed read, which Parquet's own errors do not preserve.
    failed: Arc<OnceLock<Error>>,
}

#[derive(Clone)]
enum FileLocation {
    Mapped(Bytes),
    Remote { store: Store, path: PathBuf, name: Arc<str>, cache: Arc<ReadCache> },
}

impl FileBytes {
    /// Opens a data file; `file` is its manifest entry.
    pub fn open(
        store: &Store,
        path: PathBuf,
        name: &Arc<str>,
        file: &DataFile,
        cache: &Arc<ReadCache>,
    ) -> Result<FileBytes> {
        let location = if store.is_remote() {
            FileLocation::Remote { store: store.clone(), path, name: name.clone(), cache: cache.clone() }
        } else {
            FileLocation::Mapped(store.read(&path)?)
        };
        if let FileLocation::Mapped(bytes) = &location
            && bytes.len() as u64 != file.bytes
        {
            return Err(Error::damaged("a data file is not as long as its manifest says"));
        }
        Ok(FileBytes { location, len: file.bytes, checksums: file.checksums.clone(), failed: Arc::default() })
    }

    /// Returns the cause of an error of Parquet's reader.
    pub fn cause(&self, error: &dyn std::fmt::Display) -> Error {
        match self.failed.get() {
            Some(cause) => cause.clone(),
            None => Error::damaged(format!("a data file cannot be read: {error}")),
        }
    }

    fn range(&self, start: u64, len: u64) -> Result<Bytes> {
        let end = start.checked_add(len).filter(|end| *end <= self.len);
        let end = end.ok_or_else(|| Error::damaged("a data file ends before what its footer names"))?;
        match &self.location {
            FileLocation::Mapped(bytes) => {
                if let Some(checksums) = &self.checksums {
                    checksums.compare_once(bytes, start..end)?;
                }
                Ok(bytes.slice(start as usize..end as usize))
            }
            FileLocation::Remote { .. } if len == 0 => Ok(Bytes::new()),
            FileLocation::Remote { .. } => {
                let (first, last) = (start / RANGE_BYTES, (end - 1) / RANGE_BYTES);
                let piece = |nth: u64| -> Result<Bytes> {
                    let (begin, bytes) = (nth * RANGE_BYTES, self.fetch_range(nth)?);
                    let from = start.saturating_sub(begin).min(bytes.len() as u64) as usize;
                    let to = (end - begin).min(bytes.len() as u64) as usize;
                    Ok(bytes.slice(from..to.max(from)))
                };
                if first == last {
                    return piece(first);
                }
                let mut all = Vec::with_capacity(len as usize);
                for nth in first..=last {
                    all.extend_from_slice(&piece(nth)?);
                }
                Ok(all.into())
            }
        }
    }

    fn fetch_range(&self, nth: u64) -> Result<Bytes> {
        let FileLocation::Remote { store, path, name, cache } = &self.location else {
            return Err(Error::internal("a range of a mapped file was requested"));
        };
        let key = CacheKey { source: name.clone(), part: CachedPart::Bytes { nth } };
        if let Some(CachedValue::Bytes(bytes)) = cache.get(&key) {
            return Ok(bytes);
        }
        let start = nth * RANGE_BYTES;
        let len = RANGE_BYTES.min(self.len.saturating_sub(start));
        let bytes = request(store, cache, || store.read_range(path, start, len))?;
        if bytes.len() as u64 != len {
            return Err(Error::damaged("a data file is not as long as its manifest says"));
        }
        if let Some(checksums) = &self.checksums {
            checksums.compare_chunk(nth, &bytes)?;
        }
        cache.put(key, CachedValue::Bytes(bytes.clone()));
        Ok(bytes)
    }

    fn range_noting_failure(&self, start: u64, len: u64) -> Parquet<Bytes> {
        self.range(start, len).map_err(|error| {
            let _ = self.failed.set(error.clone());
            ParquetError::External(Box::new(error))
        })
    }
}

/// Makes a request unless the store is in its pause. After one reader waited long in vain, others fail at once for as long,
/// because their threads are needed elsewhere.
fn request<T>(store: &Store, cache: &ReadCache, read: impl FnOnce() -> Result<T>) -> Result<T> {
    let now = || store.env.clock.monotonic();
    let began = now();
    if Duration::from_micros(cache.unavailable_until.load(Relaxed)) > began {
        return Err(Error::io(
            "reading from the lake",
            io::Error::new(io::ErrorKind::TimedOut, "its store did not answer a moment ago"),
        )
        .hint("rows that are on this machine are read as usual; retry when the store is back"));
    }
    cache.requests.fetch_add(1, Relaxed);
    let answer = read();
    let took = now().saturating_sub(began);
    if answer.is_err() && took >= SLOW_ANSWER {
        let until = now() + took.min(PAUSE_MAX);
        cache.unavailable_until.store(until.as_micros() as u64, Relaxed);
    }
    answer
}

impl Length for FileBytes {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for FileBytes {
    type T = SequentialReader;

    fn get_read(&self, start: u64) -> Parquet<SequentialReader> {
        Ok(SequentialReader { file: self.clone(), at: start })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Parquet<Bytes> {
        self.range_noting_failure(start, length as u64)
    }
}

/// Reads a file sequentially from an offset.
pub(crate) struct SequentialReader {
    file: FileBytes,
    at: u64,
}

impl Read for SequentialReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = (buffer.len() as u64).min(self.file.len.saturating_sub(self.at)).min(64 << 10);
        let bytes = self.file.range_noting_failure(self.at, len).map_err(io::Error::other)?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }
}
