//! A log that goes on from an lsn which it does not hold: that of a restored database.

use std::io::IoSlice;
use std::path::Path;

use types::{Error, Lsn, Result};
use vfs::Env;

use crate::layout::FileHeader;
use crate::recover::log_name;

/// Makes an empty log in `dir`, which exists and holds no log, durably: its first commit will be `first_lsn`, and a
/// manifest vouches for everything below.
pub fn begin(env: &Env, dir: &Path, first_lsn: Lsn) -> Result<()> {
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
