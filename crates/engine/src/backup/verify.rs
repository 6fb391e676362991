//! Verifies a backup for `doctor`: reads all of it as a restore does, and writes nothing.

use std::path::Path;

use types::{Error, Result};
use vfs::Env;

use super::marker::{self, Marker};
use super::restore::{check_complete, check_file, read_manifest};
use super::store::{BackupSource, LocalFolder, checksum};
use super::{Backup, MANIFEST_NAME, describe_marker, lacks_of};
use crate::manifest::{self, Manifest};

/// Result of verifying a backup.
#[derive(Clone, Debug)]
pub struct VerifiedBackup {
    /// The summary that the backup gives of itself.
    pub backup: Backup,
    /// The manifest; `None` if it cannot be read.
    pub manifest: Option<Manifest>,
    /// True if the names of its files contain their hashes, as in a backup that was not made in a folder. Its segments can
    /// then be opened only after a restore.
    pub is_named_by_content: bool,
    /// All errors for which a restore would refuse it.
    pub wrong: Vec<Error>,
}

/// Returns true if a folder is a backup, whole or damaged. It is not a data directory, which has a manifest under another
/// name.
pub fn is_backup(env: &Env, dir: &Path) -> Result<bool> {
    let path = dir.join(marker::NAME);
    let is_marked = env.disk.exists(&path);
    let is_marked = is_marked.map_err(|e| Error::io(format!("looking for {}", path.display()), e))?;
    Ok(is_marked && !manifest::exists(env, dir))
}

/// Compares every file with its checksum. Fails with [`types::Kind::Damaged`] if not even `BACKUP` can be read. `progress`
/// is called with the name of each file before it is read.
pub fn verify(env: &Env, dir: &Path, progress: &mut dyn FnMut(&str)) -> Result<VerifiedBackup> {
    let source = &LocalFolder::new(env, dir);
    let marker = Marker::read(source)?;
    let (mut manifest, mut wrong) = (None, Vec::new());
    let mut note = |outcome: Result<()>| match outcome {
        Err(error) if error.kind() == types::Kind::Damaged => {
            wrong.push(error);
            Ok(())
        }
        outcome => outcome,
    };
    for file in &marker.files {
        progress(&file.path.display().to_string());
        if file.path == Path::new(MANIFEST_NAME) {
            let read = read_manifest(source, &marker, file).and_then(|read| {
                let complete = check_complete(source, &read, &marker);
                manifest = Some(read);
                complete
            });
            note(read)?;
            continue;
        }
        let name = marker.name_of(file);
        note(match checksum(source, &name, file.sum.bytes, &mut |_| Ok(()))? {
            Some(read) => check_file(source, &name, file, read),
            None => {
                Err(Error::damaged("a file of the backup is missing")
                    .with("file", source.display_name(&name)))
            }
        })?;
    }
    if !marker.files.iter().any(|file| file.path == Path::new(MANIFEST_NAME)) {
        note(Err(Error::damaged("the backup lists no manifest").with("backup", dir.display())))?;
    }
    let is_named_by_content = marker.is_named_by_content;
    let backup = describe_marker(&marker, lacks_of(source, &marker)?);
    Ok(VerifiedBackup { backup, manifest, is_named_by_content, wrong })
}
