//! `BACKUP`: the contents of a backup, one line each, with a checksum of the whole.
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
//!
//! Format 2 has `LAKE` among the files: the backup lacks rows that only the lake has, and `LAKE` describes them.
//!
//! In format 3 each line has the file's hash before its path, and the file is stored under a name that contains the hash,
//! `tables/1/3.0f3a….arrow`. Several backups may be sent to one place at once, so a name never stands for two contents.

use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

use types::{Error, Kind, Lsn, Micros, Result, TableId};
use vfs::Env;

use super::MANIFEST_NAME;
use super::copy::{CreatedFiles, write_file};
use super::file_sum::FileSum;
use super::store::{BackupSource, read_whole};
use crate::open::{canonical, is_segment_file};

pub(crate) const NAME: &str = "BACKUP";
const TEMPORARY: &str = "BACKUP.tmp";
const HEAD: &str = "polynya backup ";
/// Files have their own names, and hold all rows.
const PLAIN: u32 = 1;
/// Like [`PLAIN`], but the backup lacks rows that only the lake has, and describes them.
const WITH_LAKE: u32 = 2;
/// Files have names with their hashes in them; here, too, rows may be in the lake only.
const NAMED_BY_CONTENT: u32 = 3;
/// Name of the file that describes, for people, the rows that only the lake has.
pub(crate) const LAKE: &str = "LAKE";
/// Bytes of a marker at most: enough for ten million files.
const BYTES_MAX: u64 = 1 << 30;

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedFile {
    /// Path below the backup's folder.
    pub path: PathBuf,
    pub sum: FileSum,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub lsn: Lsn,
    pub time: Micros,
    pub tables: u64,
    pub rows: u64,
    /// Id of the archive in which the log goes on after the backup.
    pub archive: Option<u64>,
    /// True if files have names with their hashes in them.
    pub is_named_by_content: bool,
    pub files: Vec<ListedFile>,
}

impl ListedFile {
    /// The name with the hash in it: `tables/1/3.0f3a….arrow`.
    pub fn name_by_content(&self) -> String {
        let plain = self.plain_name();
        let (stem, ending) = plain.split_at(plain.rfind('.').unwrap_or(plain.len()));
        format!("{stem}.{:032x}{ending}", self.sum.hash.unwrap_or_default())
    }

    fn plain_name(&self) -> String {
        self.path.display().to_string()
    }
}

/// Returns true for a name that [`ListedFile::name_by_content`] gives. Names accepted by [`is_backup_file`] are not such names.
pub(crate) fn is_content_name(name: &str) -> bool {
    let mut parts = name.splitn(3, '.');
    let (Some(stem), Some(hash), ending) = (parts.next(), parts.next(), parts.next()) else { return false };
    let is_hash = hash.len() == 32 && hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    is_hash && is_backup_file(Path::new(&ending.map_or(stem.to_owned(), |ending| format!("{stem}.{ending}"))))
}

impl Marker {
    /// The name under which a file is stored.
    pub fn name_of(&self, file: &ListedFile) -> String {
        if self.is_named_by_content { file.name_by_content() } else { file.plain_name() }
    }

    /// The file that describes rows that only the lake has, if there are any.
    pub fn lake(&self) -> Option<&ListedFile> {
        self.files.iter().find(|file| file.path == Path::new(LAKE))
    }

    /// The oldest format that can hold it.
    fn version(&self) -> u32 {
        match (self.is_named_by_content, self.lake()) {
            (true, _) => NAMED_BY_CONTENT,
            (false, Some(_)) => WITH_LAKE,
            (false, None) => PLAIN,
        }
    }

    pub fn encode(&self) -> String {
        let version = self.version();
        let mut text = format!(
            "{HEAD}{version}\nlsn {}\ntime {}\ntables {}\nrows {}\n",
            self.lsn, self.time, self.tables, self.rows
        );
        // Writing to a string cannot fail.
        if let Some(archive) = self.archive {
            let _ = writeln!(text, "archive {archive:016x}");
        }
        for file in &self.files {
            let FileSum { crc, bytes, hash } = file.sum;
            let hash = hash.filter(|_| self.is_named_by_content).map(|hash| format!("{hash:032x} "));
            let path = file.path.display();
            let _ = writeln!(text, "file {crc:08x} {bytes} {}{path}", hash.unwrap_or_default());
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
        if version > NAMED_BY_CONTENT {
            return Err(Error::new(
                Kind::Newer,
                format!("the backup has format {version}, this program knows {NAMED_BY_CONTENT}"),
            )
            .hint("restore it with the newer Polynya that took it"));
        }
        let end = text.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1);
        let (body, last) = text.split_at(end);
        let crc = last.strip_prefix("crc ").and_then(|crc| u32::from_str_radix(crc.trim_end(), 16).ok());
        if crc != Some(crc32c::crc32c(body.as_bytes())) {
            return Err(damaged("does not match its checksum"));
        }
        let mut marker = Marker {
            lsn: Lsn(0),
            time: 0,
            tables: 0,
            rows: 0,
            archive: None,
            is_named_by_content: version == NAMED_BY_CONTENT,
            files: Vec::new(),
        };
        for line in body.lines().skip(1) {
            let wrong = || damaged("holds a line that makes no sense").with("line", line);
            let (word, rest) = line.split_once(' ').ok_or_else(wrong)?;
            match word {
                "lsn" => marker.lsn = Lsn(rest.parse().map_err(|_| wrong())?),
                "time" => marker.time = rest.parse().map_err(|_| wrong())?,
                "tables" => marker.tables = rest.parse().map_err(|_| wrong())?,
                "rows" => marker.rows = rest.parse().map_err(|_| wrong())?,
                "archive" => marker.archive = Some(u64::from_str_radix(rest, 16).map_err(|_| wrong())?),
                "file" => marker.files.push(file(rest, marker.is_named_by_content).ok_or_else(wrong)?),
                _ => return Err(wrong()),
            }
        }
        Ok(marker)
    }

    /// Makes the folder a backup. Everything else in it is durable.
    pub fn write(&self, env: &Env, dest: &Path, made: &mut CreatedFiles) -> Result<()> {
        let temporary = made.file(dest.join(TEMPORARY));
        let path = made.file(dest.join(NAME));
        write_file(env, &temporary, self.encode().as_bytes())?;
        let rename = || {
            env.disk.rename(&temporary, &path)?;
            env.disk.sync_dir(dest)
        };
        rename().map_err(|e| Error::io(format!("writing {}", path.display()), e))
    }

    /// Reads the marker. Fails with [`Kind::NotFound`] if there is no backup, or only a part of one.
    pub fn read(source: &dyn BackupSource) -> Result<Marker> {
        let bytes = match read_whole(source, NAME, BYTES_MAX) {
            Err(error) if error.kind() == Kind::NotFound => return Err(missing(source)),
            bytes => bytes?,
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| Error::damaged(format!("{NAME} is not text")));
        text.and_then(Marker::decode).map_err(|e| e.with("file", source.display_name(NAME)))
    }
}

/// The error for a place without a marker.
fn missing(source: &dyn BackupSource) -> Error {
    let place = source.display_name("");
    match source.is_begun() {
        Ok(true) => Error::not_found(format!(
            "{place} is not a backup: one was begun there and not finished"
        ))
        .hint(format!("`{NAME}` is missing, which is written last: use another backup, or take it again")),
        _ => Error::not_found(format!("{place} is not a backup"))
            .hint(format!("a place is one once `{NAME}` is in it, which is written last")),
    }
}

/// Parses `9f0c1a2b 4096 tables/1/3.arrow`, or the same with the hash before the path.
fn file(text: &str, has_hash: bool) -> Option<ListedFile> {
    let mut words = text.splitn(if has_hash { 4 } else { 3 }, ' ');
    let crc = u32::from_str_radix(words.next()?, 16).ok()?;
    let bytes = words.next()?.parse().ok()?;
    let hash = if has_hash { Some(u128::from_str_radix(words.next()?, 16).ok()?) } else { None };
    let path = PathBuf::from(words.next()?);
    is_backup_file(&path).then_some(ListedFile { path, sum: FileSum { bytes, crc, hash } })
}

/// Returns true if a backup may hold a file of this name: a restore writes nowhere else.
fn is_backup_file(path: &Path) -> bool {
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
        let sum = FileSum { bytes: 7, crc: 0x00ab_cdef, hash: None };
        let listed = |path: &str| ListedFile { path: path.into(), sum };
        let marker = Marker {
            lsn: Lsn(42),
            time: -5,
            tables: 2,
            rows: 9,
            archive: Some(0xff),
            is_named_by_content: false,
            files: vec![listed("tables/1/3.arrow"), listed("manifest")],
        };
        let mut elsewhere = Marker { is_named_by_content: true, ..marker.clone() };
        elsewhere.files.iter_mut().for_each(|file| file.sum.hash = Some(0x1234_5678_9abc));
        let text = elsewhere.encode();
        assert!(text.starts_with("polynya backup 3\n"), "{text}");
        assert_eq!(Marker::decode(&text).unwrap(), elsewhere);
        let mut lacking = marker.clone();
        lacking.files.insert(0, listed(LAKE));
        let text = lacking.encode();
        assert!(text.starts_with("polynya backup 2\n"), "{text}");
        assert_eq!(Marker::decode(&text).unwrap(), lacking);
        let text = marker.encode();
        assert!(text.starts_with("polynya backup 1\n"), "{text}");
        assert_eq!(Marker::decode(&text).unwrap(), marker);
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let Ok(text) = String::from_utf8(bytes) else { continue };
            // A hexadecimal digit may change its case.
            assert!(Marker::decode(&text).map_or(true, |read| read == marker), "bit {bit}: {text}");
        }
        assert_eq!(Marker::decode("polynya backup 4\n").unwrap_err().kind(), Kind::Newer);
    }

    #[test]
    fn only_names_that_a_backup_has_are_taken() {
        for good in ["manifest", LAKE, "tables/1/3.arrow", "tables/12/4.meta"] {
            assert!(is_backup_file(Path::new(good)), "{good}");
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
            assert!(!is_backup_file(Path::new(bad)), "{bad}");
        }
    }

    #[test]
    fn a_name_by_content_is_the_plain_one_with_the_checksum_in_it() {
        for (path, name) in [
            ("tables/1/3.arrow", "tables/1/3.HASH.arrow"),
            ("manifest", "manifest.HASH"),
            (LAKE, "LAKE.HASH"),
        ] {
            let name = name.replace("HASH", "0000000000000000000000000000abcd");
            let sum = FileSum { bytes: 7, crc: 0, hash: Some(0xabcd) };
            assert_eq!(ListedFile { path: path.into(), sum }.name_by_content(), name);
            assert!(is_content_name(&name) && !is_content_name(path));
        }
        for other in [
            "manifest.0000000000000000000000000000ABCD",
            "tables/1/3.abcd.arrow",
            "main/t/3.0000000000000000000000000000abcd.arrow",
            "BACKUP.0000000000000000000000000000abcd",
            ".",
            "",
        ] {
            assert!(!is_content_name(other), "{other}");
        }
    }
}
