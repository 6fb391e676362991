//! Damage to single files, as a failing disk, a person or a wrong restore causes it.

use std::fmt;
use std::io::IoSlice;
use std::path::{Path, PathBuf};

use vfs::{Access, Disk};

use crate::{SECTOR_BYTES, SimDisk};

/// One change to a file.
#[derive(Clone, PartialEq, Eq)]
pub enum FileChange {
    /// Flips one bit of the byte at `offset`. The offset alone determines which bit.
    FlipBit {
        offset: u64,
    },
    /// Cuts the file to `len` bytes.
    CutTo {
        len: u64,
    },
    /// Overwrites the first `bytes` bytes with zeros.
    ZeroStart {
        bytes: u64,
    },
    Delete,
    /// Replaces the file's bytes with those of an earlier time.
    OlderCopy(Vec<u8>),
}

impl fmt::Debug for FileChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileChange::FlipBit { offset } => write!(f, "with a bit of byte {offset} flipped"),
            FileChange::CutTo { len } => write!(f, "cut to {len} bytes"),
            FileChange::ZeroStart { bytes } => write!(f, "with its first {bytes} bytes zero"),
            FileChange::Delete => f.write_str("deleted"),
            FileChange::OlderCopy(bytes) => write!(f, "replaced by an older copy of {} bytes", bytes.len()),
        }
    }
}

impl FileChange {
    /// Returns one of `parts` disjoint sets of changes to try on a file with these bytes. All sets together flip a bit
    /// in every byte and cut the file at every sector. `older` is an earlier content of the file. Changes that exist
    /// only once are in part 0.
    pub fn part(bytes: &[u8], older: Option<&[u8]>, part: usize, parts: usize) -> Vec<FileChange> {
        let len = bytes.len() as u64;
        let in_part = |step: usize| (0..len).step_by(step).skip(part).step_by(parts);
        let flips = in_part(1).map(|offset| FileChange::FlipBit { offset });
        let cuts = in_part(SECTOR_BYTES as usize).map(|len| FileChange::CutTo { len });
        let older = older.filter(|older| *older != bytes).map(|older| FileChange::OlderCopy(older.to_vec()));
        let single =
            [FileChange::ZeroStart { bytes: len.min(4096) }, FileChange::Delete].into_iter().chain(older);
        flips.chain(cuts).chain(single.filter(|_| part == 0)).collect()
    }
}

impl SimDisk {
    /// Applies a change to the file at `path`, which must exist.
    pub fn change(&self, path: &Path, change: &FileChange) {
        let open = || self.open(path, Access::ReadWrite).expect("a file to change");
        match change {
            FileChange::FlipBit { offset } => {
                let byte = self.contents(path).expect("a file to damage")[*offset as usize];
                // A hash of the offset selects one of the eight bits.
                let bit = offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61;
                open().write_at(&[IoSlice::new(&[byte ^ 1 << bit])], *offset).expect("flipping a bit");
            }
            FileChange::CutTo { len } => open().set_len(*len).expect("cutting a file"),
            FileChange::ZeroStart { bytes } => {
                let zeros = vec![0; *bytes as usize];
                open().write_at(&[IoSlice::new(&zeros)], 0).expect("writing zeros");
            }
            FileChange::Delete => self.remove(path).expect("a file to delete"),
            FileChange::OlderCopy(bytes) => {
                let file = open();
                file.set_len(0)
                    .and_then(|()| file.write_at(&[IoSlice::new(bytes)], 0))
                    .expect("writing a file");
            }
        }
    }

    /// Returns all files with their bytes, sorted by path. Does not count as a call.
    pub fn files_with_contents(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let with_bytes = |path: PathBuf| self.contents(&path).map(|bytes| (path, bytes));
        self.files().into_iter().filter_map(with_bytes).collect()
    }
}
