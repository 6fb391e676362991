//! The end of a file in an object store, where Parquet has its footer.

use std::io::{self, Read};
use std::path::PathBuf;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result as Parquet};
use parquet::file::reader::{ChunkReader, Length};
use types::{Error, Result};

use crate::store::Store;

/// What is asked for at first: most footers are smaller.
const TAIL_BYTES: u64 = 64 << 10;

pub(super) struct Tail {
    store: Store,
    path: PathBuf,
    len: u64,
    /// Where in the file `bytes` begin.
    start: u64,
    bytes: Bytes,
}

impl Tail {
    /// `len` is what the manifest says.
    pub fn open(store: &Store, path: PathBuf, len: u64) -> Result<Tail> {
        let start = len.saturating_sub(TAIL_BYTES);
        // One byte more than there should be, so that a longer file is found out.
        let bytes = store.read_range(&path, start, len - start + 1)?;
        if bytes.len() as u64 != len - start {
            return Err(Error::damaged("a data file is not as long as its manifest says"));
        }
        Ok(Tail { store: store.clone(), path, len, start, bytes })
    }
}

impl Length for Tail {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for Tail {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> Parquet<Box<dyn Read>> {
        let bytes = self.get_bytes(start, self.len.saturating_sub(start) as usize)?;
        Ok(Box::new(io::Cursor::new(bytes)))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Parquet<Bytes> {
        let end = start.checked_add(length as u64).filter(|end| *end <= self.len);
        let end = end.ok_or_else(|| ParquetError::EOF("a file ends before what its footer names".into()))?;
        if start >= self.start {
            return Ok(self.bytes.slice((start - self.start) as usize..(end - self.start) as usize));
        }
        let bytes = self.store.read_range(&self.path, start, length as u64);
        let bytes = bytes.map_err(|error| ParquetError::External(Box::new(error)))?;
        match bytes.len() == length {
            true => Ok(bytes),
            false => Err(ParquetError::EOF("a file became shorter".into())),
        }
    }
}
