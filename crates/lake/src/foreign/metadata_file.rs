//! Finds the newest metadata file in a table's directory.

use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use types::{Error, Result};

use crate::state::HINT;
use crate::store::Store;

/// Returns the newest metadata file in a table's directory, by `version-hint.text` or else by the numbers in the file names.
pub fn newest_metadata(store: &Store, dir: &Path) -> Result<PathBuf> {
    let metadata = dir.join("metadata");
    let files: Vec<String> =
        store.list(&metadata)?.into_iter().filter(|entry| !entry.is_dir).map(|entry| entry.name).collect();
    if files.iter().any(|name| name == HINT) {
        let text = store.read(&metadata.join(HINT))?;
        let text = std::str::from_utf8(&text).unwrap_or_default().trim().to_owned();
        let names = [
            format!("v{text}.metadata.json"),
            format!("v{text}.gz.metadata.json"),
            format!("v{text}.metadata.json.gz"),
            format!("{text}.metadata.json"),
            text.clone(),
        ];
        // A hint may be outdated. It is ignored if the file that it names is gone.
        if let Some(name) = names.iter().find(|name| files.contains(name)) {
            return Ok(metadata.join(name));
        }
    }
    let mut numbered: Vec<(u64, &String)> =
        files.iter().filter_map(|name| Some((version_of(name)?, name))).collect();
    numbered.sort_unstable();
    let newest = numbered.last().copied().ok_or_else(|| {
        Error::not_found(format!("there is no Iceberg table in {}", dir.display()))
            .hint("name the directory in which `metadata` is, or a metadata file")
    })?;
    let same: Vec<&str> =
        numbered.iter().filter(|(version, _)| *version == newest.0).map(|(_, name)| name.as_str()).collect();
    match same.as_slice() {
        [_] => Ok(metadata.join(newest.1)),
        several => Err(Error::conflict(format!(
            "{} metadata files in {} have the newest number: {}",
            several.len(),
            metadata.display(),
            several.join(", ")
        ))
        .hint("name the one that the table's catalog has")),
    }
}

/// Returns the version in a metadata file's name: 12 for `v12.metadata.json` and `00012-….metadata.json`.
fn version_of(name: &str) -> Option<u64> {
    let stem = name
        .strip_suffix(".gz.metadata.json")
        .or_else(|| name.strip_suffix(".metadata.json.gz"))
        .or_else(|| name.strip_suffix(".metadata.json"))?;
    let stem = stem.strip_prefix('v').unwrap_or(stem);
    stem.split('-').next()?.parse().ok()
}

/// Bytes of the largest metadata text that is read. Real ones have a few MiB; the bound protects from hostile compression.
const METADATA_BYTES_MAX: u64 = 256 << 20;

/// Returns a metadata file's text, decompressed if it is a gzip file.
pub(super) fn decompressed(bytes: Bytes) -> Result<Bytes> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(&bytes[..])
        .take(METADATA_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(|e| Error::damaged(format!("a compressed metadata file cannot be decompressed: {e}")))?;
    Ok(text.into())
}
