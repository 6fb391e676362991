//! Creates the log of a restored database, which starts at an lsn after 1.

use std::io::IoSlice;
use std::path::Path;

use types::{Error, Lsn, Result};
use vfs::Env;

use crate::layout::FileHeader;
use crate::recover::log_name;

/// Creates an empty log in `dir`, durably. `dir` exists and has no log. The log's first commit will be `first_lsn`; the caller's
/// manifest has everything below.
pub fn create_empty(env: &Env, dir: &Path, first_lsn: Lsn) -> Result<()> {
    let header = FileHeader {
        epoch: 1,
        salt: env.random.next_u64(),
        first_lsn,
        durable_lsn: Lsn(first_lsn.0.saturating_sub(1)),
    };
    let path = dir.join(log_name(header.epoch));
    let make = || {
        let file = env.disk.create(&path)?;
        file.write_at(&[IoSlice::new(&header.to_bytes())], 0)?;
        file.sync()?;
        env.disk.sync_dir(dir)
    };
    make().map_err(|e| Error::io("beginning a log", e).with("file", path.display()))
}
