//! Finds the position at which an earlier run of the same file into the same table stopped.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use http::Method;
use serde::{Deserialize, Serialize};
use types::{Error, Kind, Result, name};

use crate::client::{HttpClient, escaped};
use crate::control::{Position, StoredPosition};

/// Bytes at a file's beginning whose hash tells it from another file of the same name.
const HEAD_BYTES: u64 = 4096;

/// A table's own name, and the name by which the user called it.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedTable {
    /// The table's name without the default namespace. A missing table will be created under this name.
    pub name: String,
    /// The name as the user typed it.
    pub typed: String,
}

impl ResolvedTable {
    /// `described` is the server's description of the table, if it exists.
    pub fn new(typed: &str, described: Option<&serde_json::Value>) -> Result<Self> {
        let full_name = name::full_table_name(typed)?;
        let own = described.and_then(|described| described["name"].as_str());
        let name = own.unwrap_or(name::short_table_name(&full_name)).to_owned();
        Ok(ResolvedTable { name, typed: typed.to_owned() })
    }

    /// Requests the table's description and takes its name from it.
    pub async fn find(control: &mut HttpClient, typed: &str) -> Result<Self> {
        match control.json(Method::GET, &format!("/tables/{}", escaped(typed)), None).await {
            Ok(described) => ResolvedTable::new(typed, Some(&described)),
            Err(error) if error.kind() == Kind::NotFound => ResolvedTable::new(typed, None),
            Err(error) => Err(error),
        }
    }
}

/// The kind of a file's content, which decides how a changed file is recognised.
#[derive(Clone, Debug)]
pub enum SourceKind<'a> {
    /// A plain file of this many bytes. Positions are bytes of the file, so a shorter file is another one.
    Plain(u64),
    /// A packed file. Positions are bytes of its unpacked content.
    Packed,
    /// A Parquet file, which is written once; with the old and new names of the columns to rename.
    Parquet(&'a [(String, String)]),
}

/// The position from which an ingestion continues, and the id under which it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumePoint {
    /// Hash of the file's path and the table's name.
    pub id: String,
    /// Position at which to continue.
    pub position: Position,
    /// Set if the file starts from its beginning: the version of the stored position, which is to be replaced.
    pub restart_version: Option<u64>,
}

impl ResumePoint {
    /// Requests the stored position. A file whose first bytes changed is another one, such as a rotated log, and starts from
    /// its beginning. A changed Parquet file is refused with [`Kind::Conflict`], because it is unknown which of its rows are
    /// in the table already.
    pub async fn find(
        control: &mut HttpClient,
        file: &Path,
        table: &ResolvedTable,
        content: SourceKind<'_>,
        again: bool,
    ) -> Result<Self> {
        let absolute = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        let (id, StoredPosition { position: known, version }) =
            stored_position(control, absolute.as_os_str().as_encoded_bytes(), table).await?;
        let identity = match content {
            SourceKind::Parquet(renames) => Some(ParquetIdentity::of(file, renames)?),
            _ => None,
        };
        if let Some(known) = known.filter(|_| !again) {
            let same = head(file, u64::try_from(known.head_len).unwrap_or(0))?.0 == known.head;
            let grown = match content {
                SourceKind::Plain(len) => len as i64 >= known.position,
                _ => true,
            };
            if let Some(identity) = &identity {
                identity.check(&known, same)?;
            }
            if same && grown {
                let shape = known.shape.clone().or(identity.map(|identity| identity.to_text()));
                return Ok(ResumePoint { id, position: Position { shape, ..known }, restart_version: None });
            }
        }
        let (head, head_len) = head(file, HEAD_BYTES)?;
        let position = Position {
            file: file.display().to_string(),
            table: table.name.clone(),
            head,
            head_len: head_len as i64,
            shape: identity.map(|identity| identity.to_text()),
            ..Position::default()
        };
        Ok(ResumePoint { id, position, restart_version: Some(version) })
    }
}

/// Returns the stored position of a source, and its id. If none of the source's ids has a position, returns the first id.
pub async fn stored_position(
    control: &mut HttpClient,
    source: &[u8],
    table: &ResolvedTable,
) -> Result<(String, StoredPosition)> {
    let mut first = None;
    for id in ids(source, table) {
        let stored = control.json(Method::GET, &format!("/ingests/{id}"), None).await?;
        let stored: StoredPosition = serde_json::from_value(stored)
            .map_err(|error| Error::internal("a file's position cannot be read").caused_by(error))?;
        if stored.position.is_some() {
            return Ok((id, stored));
        }
        first.get_or_insert((id, stored));
    }
    first.ok_or_else(|| Error::internal("a file without an id"))
}

/// Returns the ids that a source may have: first the id by the table's own name, then those of earlier versions, which
/// used the name as it was typed.
fn ids(source: &[u8], table: &ResolvedTable) -> Vec<String> {
    let full_name = name::qualified(&table.name);
    let mut ids: Vec<String> = Vec::with_capacity(3);
    for name in [&*table.name, &*full_name, &*table.typed] {
        let id = id_of(source, name);
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    ids
}

fn id_of(source: &[u8], table: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(source);
    hasher.update(&[0]);
    hasher.update(table.as_bytes());
    hasher.finalize().to_hex()[..24].to_owned()
}

/// The identity of a Parquet file, and the names under which its columns are stored. It is kept in `Position::shape`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ParquetIdentity {
    bytes: u64,
    /// Hash of the footer, which contains the offsets of all column chunks, and usually the minimum and maximum of each.
    foot: String,
    renames: Vec<(String, String)>,
}

impl ParquetIdentity {
    /// Reads the identity of a file. Works for any bytes, even if they are not Parquet.
    fn of(file: &Path, renames: &[(String, String)]) -> Result<ParquetIdentity> {
        let failed = |error| Error::io(format!("reading {}", file.display()), error);
        let mut open = File::open(file).map_err(failed)?;
        let bytes = open.metadata().map_err(failed)?.len();
        // A Parquet file ends with the footer, the footer's length in four bytes, and `PAR1`.
        let mut end = [0; 8];
        if bytes >= 8 {
            open.seek(SeekFrom::End(-8)).and_then(|_| open.read_exact(&mut end)).map_err(failed)?;
        }
        let [a, b, c, d, ..] = end;
        let foot_len = (u64::from(u32::from_le_bytes([a, b, c, d])) + 8).min(bytes);
        open.seek(SeekFrom::Start(bytes - foot_len)).map_err(failed)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(open.take(foot_len)).map_err(failed)?;
        Ok(ParquetIdentity { bytes, foot: hasher.finalize().to_hex().to_string(), renames: renames.to_vec() })
    }

    fn to_text(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Fails with `conflict` if an earlier run read another file, or stored the columns under other names. A position of an
    /// earlier version has no identity, and is compared by the file's head only.
    fn check(&self, known: &Position, has_same_head: bool) -> Result<()> {
        let before: Option<ParquetIdentity> =
            known.shape.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let is_same = has_same_head
            && before.as_ref().is_none_or(|before| (before.bytes, &before.foot) == (self.bytes, &self.foot));
        if !is_same {
            return Err(Error::conflict(format!(
                "{} was read into `{}` up to its row {}, and is another file by now",
                known.file, known.table, known.position
            ))
            .hint("the changes since then cannot be told apart: --again reads all of it again, best into a new table"));
        }
        match before {
            Some(before) => same_renames(&known.file, &known.table, &before.renames, &self.renames),
            None => Ok(()),
        }
    }
}

/// Fails with `conflict` if columns are renamed otherwise than before, because the values of one column would then be in
/// two columns of the table.
pub fn same_renames(
    source: &str,
    table: &str,
    before: &[(String, String)],
    now: &[(String, String)],
) -> Result<()> {
    if before == now {
        return Ok(());
    }
    let shown = |renames: &[(String, String)]| match renames {
        [] => "none".to_owned(),
        some => some.iter().map(|(old, new)| format!("--rename {old}={new}")).collect::<Vec<_>>().join(" "),
    };
    Err(Error::conflict(format!(
        "{source} was read into `{table}` with other names of columns ({}) than are given now ({})",
        shown(before),
        shown(now)
    ))
    .hint("give the same ones, or read it into a new table; --again reads all of it again"))
}

/// Returns the hash and the length of a file's first bytes, at most `len`.
fn head(file: &Path, len: u64) -> Result<(String, u64)> {
    let failed = |error| Error::io(format!("reading {}", file.display()), error);
    let mut bytes = Vec::new();
    File::open(file).map_err(failed)?.take(len).read_to_end(&mut bytes).map_err(failed)?;
    Ok((blake3::hash(&bytes).to_hex().to_string(), bytes.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(table: &str, typed: &str) -> ResolvedTable {
        ResolvedTable { name: table.to_owned(), typed: typed.to_owned() }
    }

    #[test]
    fn a_file_that_grew_keeps_its_head_and_a_rotated_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        fs::write(&path, "one\n").unwrap();
        let (before, len) = head(&path, HEAD_BYTES).unwrap();
        fs::write(&path, "one\ntwo\n").unwrap();
        assert_eq!(head(&path, len).unwrap(), (before.clone(), len));
        fs::write(&path, "new\n").unwrap();
        assert_ne!(head(&path, len).unwrap().0, before);
    }

    /// The stored position of a file was not found if the table was called `main.p1` or `P1` and not `p1`, and its rows were
    /// ingested again.
    #[test]
    fn a_table_has_one_id_however_it_is_called() {
        let described = serde_json::json!({ "name": "p1" });
        for typed in ["p1", "P1", "main.p1", "main.P1"] {
            let found = ResolvedTable::new(typed, Some(&described)).unwrap();
            assert_eq!(ids(b"x", &found)[0], id_of(b"x", "p1"), "{typed}");
        }
        assert_eq!(ResolvedTable::new("main.new", None).unwrap(), named("new", "main.new"));
        assert_eq!(ResolvedTable::new("other.new", None).unwrap().name, "other.new");
        assert_ne!(ids(b"x", &named("a", "a"))[0], ids(b"x", &named("b", "b"))[0]);
        // A position that was stored under the typed name is found.
        assert!(ids(b"x", &named("p1", "main.p1")).contains(&id_of(b"x", "main.p1")));
        assert!(ids(b"x", &named("p1", "P1")).contains(&id_of(b"x", "P1")));
    }

    #[test]
    fn a_parquet_file_that_changed_anywhere_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        let file = |end: &[u8]| {
            let mut bytes = vec![7; 10_000];
            bytes.extend_from_slice(end);
            bytes.extend_from_slice(&(end.len() as u32).to_le_bytes());
            bytes.extend_from_slice(b"PAR1");
            fs::write(&path, bytes).unwrap();
            ParquetIdentity::of(&path, &[]).unwrap()
        };
        let before = file(b"footer");
        let known =
            |identity: &ParquetIdentity| Position { shape: Some(identity.to_text()), ..Position::default() };
        before.check(&known(&before), true).unwrap();
        for other in [file(b"fooper"), file(b"longer footer")] {
            let error = other.check(&known(&before), true).unwrap_err();
            assert!(error.kind() == Kind::Conflict && error.to_string().contains("--again"), "{error}");
        }
        assert_eq!(before.check(&known(&before), false).unwrap_err().kind(), Kind::Conflict);
        // An earlier version stored only the head of its file.
        before.check(&Position::default(), true).unwrap();
        // Any bytes have an identity, even if they are not Parquet.
        for bytes in [&b""[..], b"PAR1", b"\xff\xff\xff\xffPAR1", b"\0\0\0\0PAR1"] {
            fs::write(&path, bytes).unwrap();
            ParquetIdentity::of(&path, &[]).unwrap();
        }
    }

    #[test]
    fn rows_are_not_taken_under_two_names_of_their_columns() {
        let renames = |new: &str| [("a".to_owned(), new.to_owned())];
        same_renames("x", "t", &renames("b"), &renames("b")).unwrap();
        for (before, now) in
            [(&renames("b")[..], &renames("c")[..]), (&renames("b"), &[]), (&[], &renames("b"))]
        {
            let error = same_renames("x", "t", before, now).unwrap_err();
            assert!(error.kind() == Kind::Conflict && error.to_string().contains("a=b"), "{error}");
        }
    }
}
