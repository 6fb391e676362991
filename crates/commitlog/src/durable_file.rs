//! The file `durable`: the highest lsn that was ever durable, stored beside the log files.
//!
//! A frame proves that those before it were durable. Nothing in a log file proves it of the last frame, nor that the file existed
//! at all. This file does. The syncer overwrites it after each sync, so that recovery can distinguish a newest log file that was
//! damaged, cut short, deleted or replaced by an older copy from a log that ended there.
//!
//! It is written after the sync that it reports and is never synced itself, so after a power failure it may be behind, but it is
//! never ahead. It fits into one sector, so a write is never torn. Without a readable durable file, recovery relies on the frames
//! alone, as in directories of earlier versions.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use types::Lsn;
use vfs::{Access, Env, File};

pub(crate) const NAME: &str = "durable";
const MAGIC: &[u8; 8] = b"PLYNYDUR";
const VERSION: u32 = 1;
const BYTES: usize = 24;

/// The open file, written by the syncer.
#[derive(Debug)]
pub(crate) struct DurableFile {
    file: Arc<dyn File>,
    /// The lsn that the file holds, or that was last written to it.
    written: AtomicU64,
}

impl DurableFile {
    /// Opens the file in `dir`, or creates it; its name becomes durable with the next sync of the directory.
    pub(crate) fn open(env: &Env, dir: &Path, durable: Lsn) -> io::Result<DurableFile> {
        let path = dir.join(NAME);
        let file = match env.disk.open(&path, Access::ReadWrite) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => env.disk.create(&path)?,
            opened => opened?,
        };
        // Space is taken now, so that no later write can fail for lack of it.
        file.allocate(BYTES as u64)?;
        file.write_at(&[IoSlice::new(&to_bytes(durable))], 0)?;
        file.sync()?;
        Ok(DurableFile { file, written: AtomicU64::new(durable.0) })
    }

    /// Records that everything up to `durable` is durable. A failure loses evidence but no data, so it is not reported: a disk
    /// that cannot write here cannot write the log either.
    pub(crate) fn note(&self, durable: Lsn) {
        if self.written.swap(durable.0, Ordering::Relaxed) < durable.0 {
            let _ = self.file.write_at(&[IoSlice::new(&to_bytes(durable))], 0);
        }
    }
}

/// Returns the lsn that the file in `dir` proves to have been durable; 0 without a readable file.
pub(crate) fn read(env: &Env, dir: &Path) -> Lsn {
    let read = || -> io::Result<Lsn> {
        let file = env.disk.open(&dir.join(NAME), Access::Read)?;
        let mut bytes = [0; BYTES];
        file.read_at(&mut bytes, 0)?;
        Ok(from_bytes(&bytes).unwrap_or(Lsn(0)))
    };
    read().unwrap_or(Lsn(0))
}

fn to_bytes(durable: Lsn) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[0..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&durable.0.to_le_bytes());
    let crc = crc(&bytes);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn from_bytes(bytes: &[u8; BYTES]) -> Option<Lsn> {
    let is_ours = bytes.starts_with(MAGIC)
        && bytes[8..12] == VERSION.to_le_bytes()
        && bytes[12..16] == crc(bytes).to_le_bytes();
    let mut durable = [0; 8];
    durable.copy_from_slice(&bytes[16..24]);
    is_ours.then_some(Lsn(u64::from_le_bytes(durable)))
}

/// Checksum of all bytes except the four that hold it.
fn crc(bytes: &[u8; BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_durable_file_with_any_bit_flipped_vouches_for_nothing() {
        let bytes = to_bytes(Lsn(0x1234_5678));
        assert_eq!(from_bytes(&bytes), Some(Lsn(0x1234_5678)));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(from_bytes(&bad), None, "bit {bit}");
        }
    }
}
