//! Checksums of a file's bytes, kept apart from the file. A manifest holds those of the data files that it names, a
//! manifest list those of its manifests, and a snapshot's summary that of its manifest list. Each is of the bytes that were
//! written.
//!
//! A data file has one checksum for each [`CHUNK_BYTES`], so that a reader of few rows checks only the chunks it reads.
//! They cover the whole file, page headers and footer included; Parquet's own page checksums leave those out.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use types::{Error, Result};

/// Bytes covered by one checksum of a data file. A change of this size needs a new [`KEY`].
pub const CHUNK_BYTES: u64 = 1 << 20;
/// Key of the checksums in the Avro headers of manifests and manifest lists.
pub const KEY: &str = "polynya.crc32c-of-mib";
/// Key of a manifest list's checksum in the summary of its snapshot.
pub const LIST_KEY: &str = "polynya.manifest-list-crc32c";

/// The CRC-32C of each chunk of a file. It also remembers the chunks that this process has compared already.
#[derive(Debug)]
pub struct Checksums {
    chunks: Box<[u32]>,
    /// One bit per chunk, set once the chunk was compared successfully.
    compared: Box<[AtomicU64]>,
}

impl PartialEq for Checksums {
    fn eq(&self, other: &Self) -> bool {
        self.chunks == other.chunks
    }
}

impl Checksums {
    fn new(chunks: Vec<u32>) -> Checksums {
        let compared = (0..chunks.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Checksums { chunks: chunks.into(), compared }
    }

    pub fn of(bytes: &[u8]) -> Checksums {
        Checksums::new(bytes.chunks(CHUNK_BYTES as usize).map(crc32c::crc32c).collect())
    }

    /// Compares a whole file, chunks that were compared before included. Fails with `Damaged` if its length or any chunk
    /// differs.
    pub fn compare(&self, bytes: &[u8]) -> Result<()> {
        if bytes.len().div_ceil(CHUNK_BYTES as usize) != self.chunks.len() {
            return Err(Error::damaged("a file of the lake is not as long as it was when it was written"));
        }
        let mut chunks = bytes.chunks(CHUNK_BYTES as usize);
        (0..).zip(&mut chunks).try_for_each(|(nth, chunk)| self.compare_chunk(nth, chunk))
    }

    /// Compares one chunk. Fails with `Damaged` if it differs.
    pub fn compare_chunk(&self, nth: u64, chunk: &[u8]) -> Result<()> {
        let found = crc32c::crc32c(chunk);
        match self.chunks.get(nth as usize) {
            Some(expected) if *expected == found => Ok(()),
            expected => {
                let begin = nth * CHUNK_BYTES;
                let end = begin + chunk.len() as u64;
                let expected = expected.map_or("none".to_owned(), |crc| format!("{crc:08x}"));
                Err(Error::damaged(format!(
                    "a file of the lake is not what was written: the checksum of its bytes {begin} to {end} was \
                     {expected}, and is {found:08x}"
                ))
                .hint("put the file back from a copy of the lake; `polynya lake verify` names all such files"))
            }
        }
    }

    /// Compares the chunks of a mapped file that overlap a range, each successfully at most once in the life of this
    /// process.
    pub fn compare_once(&self, bytes: &[u8], range: Range<u64>) -> Result<()> {
        for nth in range.start / CHUNK_BYTES..range.end.div_ceil(CHUNK_BYTES) {
            let (word, bit) = (self.compared.get((nth / 64) as usize), 1u64 << (nth % 64));
            if word.is_some_and(|word| word.load(Relaxed) & bit != 0) {
                continue;
            }
            let begin = (nth * CHUNK_BYTES).min(bytes.len() as u64) as usize;
            let end = ((nth + 1) * CHUNK_BYTES).min(bytes.len() as u64) as usize;
            self.compare_chunk(nth, &bytes[begin..end])?;
            if let Some(word) = word {
                word.fetch_or(bit, Relaxed);
            }
        }
        Ok(())
    }

    fn to_text(&self) -> String {
        self.chunks.iter().map(|crc| format!("{crc:08x}")).collect()
    }

    /// Parses eight hex digits per chunk. Returns `None` if the text is empty or malformed.
    fn parse(text: &str) -> Option<Checksums> {
        let chunks: Option<Vec<u32>> = (0..text.len())
            .step_by(8)
            .map(|at| u32::from_str_radix(text.get(at..at + 8)?, 16).ok())
            .collect();
        chunks.filter(|chunks| !chunks.is_empty()).map(Checksums::new)
    }
}

/// Formats the checksums of a manifest's files for its header, in the order of its entries. An unknown one becomes an empty
/// text.
pub fn all_to_text<'a>(all: impl Iterator<Item = Option<&'a Checksums>>) -> String {
    let texts: Vec<String> = all.map(|of| of.map_or(String::new(), Checksums::to_text)).collect();
    texts.join(",")
}

/// Parses the checksums of a manifest's files, the inverse of [`all_to_text`]. The iterator never ends: it continues with
/// `None`. `text` is `None` for a manifest of another program or of an older version of this one.
pub fn parse_all(text: Option<&[u8]>) -> impl Iterator<Item = Option<Checksums>> {
    let text = text.and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
    text.split(',').map(Checksums::parse).chain(std::iter::repeat_with(|| None))
}

/// Returns the checksum of a manifest or manifest list, as text.
pub fn text_of(bytes: &[u8]) -> String {
    format!("{:08x}", crc32c::crc32c(bytes))
}

/// Compares a manifest or manifest list with the checksum that was recorded when it was written. Without one it passes.
pub fn compare_text(bytes: &[u8], expected: Option<&str>) -> Result<()> {
    let found = text_of(bytes);
    match expected {
        Some(expected) if expected != found => Err(Error::damaged(format!(
            "a file of the lake is not what was written: its checksum was {expected}, and is {found}"
        ))
        .hint("put the file back from a copy of the lake")),
        _ => Ok(()),
    }
}

/// Computes the checksums of a file while it is written.
#[derive(Debug, Default)]
pub struct Builder {
    chunks: Vec<u32>,
    crc: u32,
    /// Bytes of the chunk that is not full yet.
    filled: u64,
}

impl Builder {
    pub fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let len = bytes.len().min((CHUNK_BYTES - self.filled) as usize);
            let (now, rest) = bytes.split_at(len);
            self.crc = crc32c::crc32c_append(self.crc, now);
            self.filled += len as u64;
            if self.filled == CHUNK_BYTES {
                self.end_chunk();
            }
            bytes = rest;
        }
    }

    fn end_chunk(&mut self) {
        self.chunks.push(std::mem::take(&mut self.crc));
        self.filled = 0;
    }

    pub fn finish(&mut self) -> Checksums {
        if self.filled > 0 {
            self.end_chunk();
        }
        Checksums::new(std::mem::take(&mut self.chunks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes() -> Vec<u8> {
        (0..5 * CHUNK_BYTES / 2).map(|n| (n * 31 % 251) as u8).collect()
    }

    #[test]
    fn checksums_are_the_same_in_whatever_pieces_a_file_is_written_and_survive_being_written_as_text() {
        let bytes = bytes();
        let mut builder = Builder::default();
        bytes.chunks(777_777).for_each(|piece| builder.add(piece));
        let checksums = builder.finish();
        assert_eq!(checksums, Checksums::of(&bytes));
        let text = all_to_text([None, Some(&checksums), None].into_iter());
        let read: Vec<_> = parse_all(Some(text.as_bytes())).take(4).collect();
        assert_eq!(read, [None, Some(checksums), None, None]);
        assert_eq!(parse_all(None).next(), Some(None));
    }

    #[test]
    fn a_changed_bit_is_found_by_whoever_reads_its_chunk_first_and_by_nobody_who_reads_others() {
        let mut bytes = bytes();
        let checksums = Checksums::of(&bytes);
        checksums.compare(&bytes).unwrap();
        checksums.compare_once(&bytes, 0..10).unwrap();
        bytes[CHUNK_BYTES as usize + 5] ^= 4;
        checksums.compare_once(&bytes, 0..CHUNK_BYTES).unwrap();
        checksums.compare_once(&bytes, 2 * CHUNK_BYTES..bytes.len() as u64).unwrap();
        for _ in 0..2 {
            let error = checksums.compare_once(&bytes, CHUNK_BYTES - 1..CHUNK_BYTES + 1).unwrap_err();
            assert_eq!(error.kind(), types::Kind::Damaged);
        }
        assert!(checksums.compare(&bytes).is_err());
        bytes.truncate(CHUNK_BYTES as usize);
        assert!(checksums.compare(&bytes).is_err(), "a file that was cut where a chunk ends");
    }
}
