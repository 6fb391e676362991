//! `BACKUP`: what a backup holds, one line each, with a checksum of the whole.
//!
//! ```text
//! polynya backup 1
//! lsn 42
//! time 1763778000000000
//! tables 3
//! rows 1000
//! archive 00d1c5f0a3b2e491        the archive of its log, if it had one
//! file 9f0c1a2b 4096 tables/1/3.arrow
//! …
//! crc 12ab34cd                    of all lines before
//! ```

use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

use types::{Error, Kind, Lsn, Micros, Result, TableId};
use vfs::{Access, Env};

use super::MANIFEST_NAME;
use super::copy::{Made, write_file};
use crate::open::{canonical, is_segment_file};

pub(crate) const NAME: &str = "BACKUP";
const TEMPORARY: &str = "BACKUP.tmp";
const HEAD: &str = "polynya backup ";
/// 2: it lacks rows that are in the lake alone, and says which.
const VERSION: u32 = 2;
/// Says what is in the lake alone, for people.
pub(crate) const LAKE: &str = "LAKE";

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Below the backup's folder.
    pub path: PathBuf,
    pub bytes: u64,
    pub crc: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub lsn: Lsn,
    pub time: Micros,
    pub tables: u64,
    pub rows: u64,
    /// Which archive's log files go on from here.
    pub archive: Option<u64>,
    pub files: Vec<Listed>,
}

impl Marker {
    fn encode(&self) -> String {
        // As old as it can be.
        let version = 1 + u32::from(self.files.iter().any(|file| file.path == Path::new(LAKE)));
        let mut text = format!(
            "{HEAD}{version}\nlsn {}\ntime {}\ntables {}\nrows {}\n",
            self.lsn, self.time, self.tables, self.rows
        );
        // Writing to a string cannot fail.
        if let Some(archive) = self.archive {
            let _ = writeln!(text, "archive {archive:016x}");
        }
        for file in &self.files {
            let _ = writeln!(text, "file {:08x} {} {}", file.crc, file.bytes, file.path.display());
        }
        let crc = crc32c::crc32c(text.as_bytes());
        let _ = writeln!(text, "crc {crc:08x}");
        text
    }

    fn decode(text: &str) -> Result<Marker> {
        let damaged = |what: &str| Error::damaged(format!("{NAME} {what}"));
        let version = text.strip_prefix(HEAD).and_then(|rest| rest.lines().next());
        let version: u32 =
            version.and_then(|v| v.parse().ok()).ok_or_else(|| damaged("does not begin as one"))?;
        if version > VERSION {
            return Err(Error::new(
                Kind::Newer,
                format!("the backup has format {version}, this program knows {VERSION}"),
            )
            .hint("restore it with the newer Polynya that took it"));
        }
        let end = text.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1);
        let (body, last) = text.split_at(end);
        let crc = last.strip_prefix("crc ").and_then(|crc| u32::from_str_radix(crc.trim_end(), 16).ok());
        if crc != Some(crc32c::crc32c(body.as_bytes())) {
            return Err(damaged("does not match its checksum"));
        }
        let mut marker =
            Marker { lsn: Lsn(0), time: 0, tables: 0, rows: 0, archive: None, files: Vec::new() };
        for line in body.lines().skip(1) {
            let wrong = || damaged("holds a line that makes no sense").with("line", line);
            let (word, rest) = line.split_once(' ').ok_or_else(wrong)?;
            match word {
                "lsn" => marker.lsn = Lsn(rest.parse().map_err(|_| wrong())?),
                "time" => marker.time = rest.parse().map_err(|_| wrong())?,
                "tables" => marker.tables = rest.parse().map_err(|_| wrong())?,
                "rows" => marker.rows = rest.parse().map_err(|_| wrong())?,
                "archive" => marker.archive = Some(u64::from_str_radix(rest, 16).map_err(|_| wrong())?),
                "file" => marker.files.push(file(rest).ok_or_else(wrong)?),
                _ => return Err(wrong()),
            }
        }
        Ok(marker)
    }

    /// Makes the folder a backup: everything else in it is durable.
    pub fn write(&self, env: &Env, dest: &Path, made: &mut Made) -> Result<()> {
        let temporary = made.file(dest.join(TEMPORARY));
        let path = made.file(dest.join(NAME));
        write_file(env, &temporary, self.encode().as_bytes())?;
        let rename = || {
            env.disk.rename(&temporary, &path)?;
            env.disk.sync_dir(dest)
        };
        rename().map_err(|e| Error::io(format!("writing {}", path.display()), e))
    }

    /// [`Kind::NotFound`] if the folder is no backup, or only a part of one.
    pub fn read(env: &Env, dir: &Path) -> Result<Marker> {
        let path = dir.join(NAME);
        let failed = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => Error::not_found(format!("{} is no backup", dir.display()))
                .hint("a folder is one once `BACKUP` is in it, which is written last"),
            _ => Error::io(format!("reading {}", path.display()), e),
        };
        let file = env.disk.open(&path, Access::Read).map_err(failed)?;
        let mut bytes = vec![0; file.len().map_err(failed)? as usize];
        file.read_at(&mut bytes, 0).map_err(failed)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| Error::damaged(format!("{NAME} is no text")));
        text.and_then(Marker::decode).map_err(|e| e.with("file", path.display()))
    }
}

/// `9f0c1a2b 4096 tables/1/3.arrow`
fn file(text: &str) -> Option<Listed> {
    let mut words = text.splitn(3, ' ');
    let crc = u32::from_str_radix(words.next()?, 16).ok()?;
    let bytes = words.next()?.parse().ok()?;
    let path = PathBuf::from(words.next()?);
    is_ours(&path).then_some(Listed { path, bytes, crc })
}

/// Whether a backup may hold a file of this name: nothing is ever written elsewhere.
fn is_ours(path: &Path) -> bool {
    let parts: Vec<&str> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(part) => part.to_str(),
            _ => Some(""),
        })
        .collect();
    match parts[..] {
        [name] => name == MANIFEST_NAME || name == LAKE,
        ["tables", table, name] => {
            canonical::<u32>(table).map(TableId).is_some() && is_segment_file(name) && !name.ends_with(".tmp")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_back_and_any_flipped_bit_is_noticed() {
        let listed = |path: &str| Listed { path: path.into(), bytes: 7, crc: 0x00ab_cdef };
        let marker = Marker {
            lsn: Lsn(42),
            time: -5,
            tables: 2,
            rows: 9,
            archive: Some(0xff),
            files: vec![listed("tables/1/3.arrow"), listed("manifest")],
        };
        let text = marker.encode();
        assert_eq!(Marker::decode(&text).unwrap(), marker);
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let Ok(text) = String::from_utf8(bytes) else { continue };
            // The case of a hexadecimal digit is nobody's business.
            assert!(Marker::decode(&text).map_or(true, |read| read == marker), "bit {bit}: {text}");
        }
        assert_eq!(Marker::decode("polynya backup 3\n").unwrap_err().kind(), Kind::Newer);
    }

    #[test]
    fn only_names_that_a_backup_has_are_taken() {
        for good in ["manifest", "tables/1/3.arrow", "tables/12/4.meta"] {
            assert!(is_ours(Path::new(good)), "{good}");
        }
        for bad in [
            "../x",
            "/etc/passwd",
            "tables/../1/3.arrow",
            "tables/1/../../3.arrow",
            "tables/01/3.arrow",
            "log/x",
            "tables/1/3.arrow.tmp",
            "/tables/1/3.arrow",
            "LOCK",
        ] {
            assert!(!is_ours(Path::new(bad)), "{bad}");
        }
    }
}
