//! Backups and archives in an object store: recognises their URIs, collects the credentials, and implements the engine's
//! traits for the source and the destination of a backup.

use std::path::Path;
use std::time::Duration;

use engine::backup::{BackupSource, BackupStore, SourceFile};
use lake::objects::{Objects, Options, PART_BYTES, Purpose};
use types::{Error, Result};
use vfs::{Entry, Env};

use crate::config::Config;

/// Time limit of one call, long enough for a part of an upload over a slow line.
const CALL_MAX: Duration = Duration::from_secs(60);
/// The first pause after a failed call; each further pause is twice as long, up to 16 times this.
const PAUSE: Duration = Duration::from_secs(1);

/// Returns the argument of a command if it is a URI such as `s3://bucket/prefix`. Any text with `://` counts as a URI and
/// never as a folder.
pub fn uri(dest: &Path) -> Option<&str> {
    dest.to_str().filter(|text| text.contains("://"))
}

/// Collects the endpoint and the region from the settings, and the credentials from this command's environment.
pub fn options(config: &Config) -> Options {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| given(&text));
    Options {
        endpoint: given(&config.lake.s3_endpoint),
        region: given(&config.lake.s3_region)
            .or_else(|| variable("AWS_REGION"))
            .or_else(|| variable("AWS_DEFAULT_REGION")),
        access_key: variable("AWS_ACCESS_KEY_ID"),
        secret_key: variable("AWS_SECRET_ACCESS_KEY"),
        session_token: variable("AWS_SESSION_TOKEN"),
        ..Options::default()
    }
}

/// A prefix in an object store that holds a backup or an archive.
#[derive(Debug)]
pub struct Remote(Objects);

impl Remote {
    /// Connects to the store. `owner` is the id of the database that is backed up; empty for a restore.
    pub fn connect(uri: &str, options: Options, owner: &str) -> Result<Remote> {
        let options = Options { call_max: Some(CALL_MAX), ..options };
        Objects::connect(uri, &options, owner).map(|objects| Remote(objects.used_for(Purpose::Backup)))
    }
}

impl BackupSource for Remote {
    fn display_name(&self, name: &str) -> String {
        self.0.uri_of(name)
    }

    fn open(&self, name: &str) -> Result<SourceFile<'_>> {
        let len = self.0.len(name)?;
        let len = len.ok_or_else(|| {
            Error::not_found("there is no such object").with("object", self.display_name(name))
        })?;
        let name = name.to_owned();
        let read_at = move |buffer: &mut [u8], offset: u64| self.0.read_at(&name, buffer, offset);
        Ok(SourceFile { len, block_bytes: PART_BYTES as u64, read_at: Box::new(read_at) })
    }

    fn is_begun(&self) -> Result<bool> {
        self.0.is_marked()
    }

    fn list(&self, dir: &str) -> Result<Vec<Entry>> {
        let found = self.0.list(dir)?;
        Ok(found.into_iter().map(|o| Entry { name: o.name, len: o.bytes, is_dir: o.is_dir }).collect())
    }

    fn pause(&self, failures: u32) {
        std::thread::sleep(PAUSE * (1 << failures.saturating_sub(1).min(4)));
    }
}

impl BackupStore for Remote {
    fn claim(&self, env: &Env) -> Result<()> {
        self.0.ensure_usable(env)
    }

    fn is_claim_file(&self, name: &str) -> bool {
        self.0.is_own(name)
    }

    fn put(&self, name: &str, next: &mut dyn FnMut() -> Result<Option<Vec<u8>>>) -> Result<()> {
        self.0.put_blocks(name, next)
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.0.put_if_absent(name, bytes.to_vec().into())
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.0.remove(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_never_taken_for_a_folder() {
        assert_eq!(uri(Path::new("s3://bucket/monday")), Some("s3://bucket/monday"));
        assert_eq!(uri(Path::new("gs://bucket/monday")), Some("gs://bucket/monday"));
        assert_eq!(uri(Path::new("/mnt/backups/monday")), None);
        let error = Remote::connect("gs://bucket/monday", Options::default(), "").unwrap_err();
        assert!(error.to_string().contains("s3://BUCKET/PREFIX"), "{error}");
    }
}
