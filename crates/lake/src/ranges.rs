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

use crate::kept::{Kept, Key, Part, Slots};
use crate::store::Store;

/// Bytes of one request to a store. The columns of a part are close to each other. Each such range has a checksum.
const PIECE_BYTES: u64 = CHUNK_BYTES;

/// Duration of a failed request from which the store counts as unavailable, and the longest pause after it.
const LONG: Duration = Duration::from_secs(1);
const AWAY_MAX: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct FileBytes {
    source: Source,
    len: u64,
    /// Checksums of the file, if they are known.
    checksums: Option<Arc<Checksums>>,
    /// The cause of a failed read, which Parquet's own errors do not preserve.
    failed: Arc<OnceLock<Error>>,
}

#[derive(Clone)]
enum Source {
    Mapped(Bytes),
    Elsewhere { store: Store, path: PathBuf, of: Arc<str>, slots: Arc<Slots> },
}

impl FileBytes {
    /// Opens a data file; `file` is its manifest entry.
    pub fn open(
        store: &Store,
        path: PathBuf,
        of: &Arc<str>,
        file: &DataFile,
        slots: &Arc<Slots>,
    ) -> Result<FileBytes> {
        let source = match store.is_remote() {
            false => Source::Mapped(store.read(&path)?),
            true => Source::Elsewhere { store: store.clone(), path, of: of.clone(), slots: slots.clone() },
        };
        if let Source::Mapped(bytes) = &source
            && bytes.len() as u64 != file.bytes
        {
            return Err(Error::damaged("a data file is not as long as its manifest says"));
        }
        Ok(FileBytes { source, len: file.bytes, checksums: file.checksums.clone(), failed: Arc::default() })
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
        match &self.source {
            Source::Mapped(bytes) => {
                if let Some(checksums) = &self.checksums {
                    checksums.compare_once(bytes, start..end)?;
                }
                Ok(bytes.slice(start as usize..end as usize))
            }
            Source::Elsewhere { .. } if len == 0 => Ok(Bytes::new()),
            Source::Elsewhere { .. } => {
                let (first, last) = (start / PIECE_BYTES, (end - 1) / PIECE_BYTES);
                let piece = |nth: u64| -> Result<Bytes> {
                    let (begin, bytes) = (nth * PIECE_BYTES, self.piece(nth)?);
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

    fn piece(&self, nth: u64) -> Result<Bytes> {
        let Source::Elsewhere { store, path, of, slots } = &self.source else {
            return Err(Error::internal("a piece of a mapped file was asked for"));
        };
        let key = Key { of: of.clone(), part: Part::Bytes { nth } };
        if let Some(Kept::Bytes(bytes)) = slots.get(&key) {
            return Ok(bytes);
        }
        let start = nth * PIECE_BYTES;
        let len = PIECE_BYTES.min(self.len.saturating_sub(start));
        let bytes = asked(store, slots, || store.read_range(path, start, len))?;
        if bytes.len() as u64 != len {
            return Err(Error::damaged("a data file is not as long as its manifest says"));
        }
        if let Some(checksums) = &self.checksums {
            checksums.compare_chunk(nth, &bytes)?;
        }
        slots.put(key, Kept::Bytes(bytes.clone()));
        Ok(bytes)
    }

    fn noted(&self, start: u64, len: u64) -> Parquet<Bytes> {
        self.range(start, len).map_err(|error| {
            let _ = self.failed.set(error.clone());
            ParquetError::External(Box::new(error))
        })
    }
}

/// Makes a request unless the store is in its pause. After one reader waited long in vain, others fail at once for as long,
/// because their threads are needed elsewhere.
fn asked<T>(store: &Store, slots: &Slots, ask: impl FnOnce() -> Result<T>) -> Result<T> {
    let now = || store.env.clock.monotonic();
    let began = now();
    if Duration::from_micros(slots.away_until.load(Relaxed)) > began {
        return Err(Error::io(
            "reading from the lake",
            io::Error::new(io::ErrorKind::TimedOut, "its store did not answer a moment ago"),
        )
        .hint("rows that are on this machine are read as ever; retry when the store is back"));
    }
    slots.requests.fetch_add(1, Relaxed);
    let answer = ask();
    let took = now().saturating_sub(began);
    if answer.is_err() && took >= LONG {
        let until = now() + took.min(AWAY_MAX);
        slots.away_until.store(until.as_micros() as u64, Relaxed);
    }
    answer
}

impl Length for FileBytes {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for FileBytes {
    type T = Reading;

    fn get_read(&self, start: u64) -> Parquet<Reading> {
        Ok(Reading { file: self.clone(), at: start })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Parquet<Bytes> {
        self.noted(start, length as u64)
    }
}

/// Reads a file sequentially from an offset.
pub(crate) struct Reading {
    file: FileBytes,
    at: u64,
}

impl Read for Reading {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = (buffer.len() as u64).min(self.file.len.saturating_sub(self.at)).min(64 << 10);
        let bytes = self.file.noted(self.at, len).map_err(io::Error::other)?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }
}
