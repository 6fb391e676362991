//! The input of COPY FROM: a stream or a file, read from the beginning to the end.

use std::io::{self, Read};
use std::sync::Arc;

use types::{Error, Kind, Result};
pub use wire::csv::failed;

/// The bytes of a file. The end of a stream must be the end of the file: a stream that broke off has to return an error.
pub enum Input {
    Stream(Box<dyn Read + Send>),
    /// A file that can be read at any offset, which Parquet needs.
    File(Arc<dyn vfs::File>),
}

impl Input {
    pub(super) fn reader(self) -> Result<RowLimitedReader> {
        let inner: Box<dyn Read + Send> = match self {
            Input::Stream(stream) => stream,
            Input::File(file) => Box::new(FileReader::whole(file).map_err(failed)?),
        };
        Ok(RowLimitedReader { inner, left: ROW_BYTES_MAX })
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Input::Stream(_) => "a stream",
            Input::File(_) => "a file",
        })
    }
}

/// Bytes of the longest row of a text format.
const ROW_BYTES_MAX: usize = 64 << 20;

/// A reader that fails after [`ROW_BYTES_MAX`] bytes without a call of [`RowLimitedReader::row_was_read`].
pub(super) struct RowLimitedReader {
    inner: Box<dyn Read + Send>,
    left: usize,
}

impl RowLimitedReader {
    pub fn row_was_read(&mut self) {
        self.left = ROW_BYTES_MAX;
    }
}

impl Read for RowLimitedReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !bytes.is_empty() {
            return Err(io::Error::other(too_long()));
        }
        let most = bytes.len().min(self.left);
        let count = self.inner.read(&mut bytes[..most])?;
        self.left -= count;
        Ok(count)
    }
}

fn too_long() -> Error {
    Error::new(Kind::TooLarge, format!("a row of more than {} MiB", ROW_BYTES_MAX >> 20))
        .hint("is a quote or a bracket not closed?")
}

/// A sequential reader of a file from `at` up to `len`.
pub(super) struct FileReader {
    pub file: Arc<dyn vfs::File>,
    pub at: u64,
    pub len: u64,
}

impl FileReader {
    pub fn whole(file: Arc<dyn vfs::File>) -> io::Result<Self> {
        let len = file.len()?;
        Ok(FileReader { file, at: 0, len })
    }
}

impl Read for FileReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.len.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let count = left.min(bytes.len());
        self.file.read_at(&mut bytes[..count], self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
