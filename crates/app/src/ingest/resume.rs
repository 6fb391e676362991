//! Where an earlier run of the same file into the same table stopped.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use http::Method;
use types::{Error, Result};

use crate::client::Client;
use crate::control::{Position, Standing};

/// How much of a file's beginning tells it from another one of the same name.
const HEAD_BYTES: u64 = 4096;

/// A file's place among those that were ingested.
#[derive(Clone, Debug, PartialEq)]
pub struct Resumed {
    /// Of this file and table.
    pub id: String,
    /// Where to go on.
    pub position: Position,
    /// It begins anew, whatever is known of an earlier file of this name: the version of what is known.
    pub anew: Option<u64>,
}

impl Resumed {
    /// Asks for the position. `len` is the file's where positions are bytes of it: one that became shorter is another
    /// file, as is one whose beginning changed (a log that was rotated).
    pub async fn find(
        control: &mut Client,
        file: &Path,
        table: &str,
        len: Option<u64>,
        again: bool,
    ) -> Result<Self> {
        let id = id(file, table);
        let standing = control.json(Method::GET, &format!("/ingests/{id}"), None).await?;
        let Standing { position: known, version } = serde_json::from_value(standing)
            .map_err(|error| Error::internal("a file's position cannot be read").caused_by(error))?;
        if let Some(known) = known.filter(|_| !again) {
            let same = head(file, u64::try_from(known.head_len).unwrap_or(0))?.0 == known.head;
            let grown = len.is_none_or(|len| len as i64 >= known.position);
            if same && grown {
                return Ok(Resumed { id, position: known, anew: None });
            }
        }
        let (head, head_len) = head(file, HEAD_BYTES)?;
        let file = file.display().to_string();
        let position = Position {
            file,
            table: table.to_owned(),
            head,
            head_len: head_len as i64,
            ..Position::default()
        };
        Ok(Resumed { id, position, anew: Some(version) })
    }
}

/// Where something stands that is no file, and the version of what is known: it is told by a name, and by what follows from
/// its content (`head`).
pub async fn standing(control: &mut Client, name: &str, table: &str) -> Result<(String, Standing)> {
    let id = id_of(name.as_bytes(), table);
    let standing = control.json(Method::GET, &format!("/ingests/{id}"), None).await?;
    let standing = serde_json::from_value(standing)
        .map_err(|error| Error::internal("a file's position cannot be read").caused_by(error))?;
    Ok((id, standing))
}

fn id(file: &Path, table: &str) -> String {
    let absolute = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    id_of(absolute.as_os_str().as_encoded_bytes(), table)
}

fn id_of(name: &[u8], table: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(name);
    hasher.update(&[0]);
    hasher.update(table.as_bytes());
    hasher.finalize().to_hex()[..24].to_owned()
}

/// Hash and length of a file's first bytes, at most `len`.
fn head(file: &Path, len: u64) -> Result<(String, u64)> {
    let failed = |error| Error::io(format!("reading {}", file.display()), error);
    let mut bytes = Vec::new();
    File::open(file).map_err(failed)?.take(len).read_to_end(&mut bytes).map_err(failed)?;
    Ok((blake3::hash(&bytes).to_hex().to_string(), bytes.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_ne!(id(&path, "a"), id(&path, "b"));
    }
}
