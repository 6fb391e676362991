//! Sealing: writes head rows into a segment.

use std::path::Path;

use types::{Error, Result, RowId, SegmentId};
use vfs::Env;

use crate::segment::{BlockCompression, Writer, discard};
use crate::{SegmentMeta, Snapshot, cluster};

/// Writes the live head rows of `snapshot` below `below` into segment `id` in `dir` (the table's directory), under the
/// snapshot's definition, durably. The segment covers all row ids from [`Snapshot::sealed_next`] to below `below`; it may
/// have no rows. `tick` is called after every block with its bytes; an error from it ends the work.
///
/// Reads only the snapshot, so it may run beside commits. The caller logs the returned meta, then calls
/// [`Tip::apply_seal`](crate::Tip::apply_seal).
pub fn seal(
    snapshot: &Snapshot,
    env: &Env,
    dir: &Path,
    id: SegmentId,
    below: RowId,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<SegmentMeta> {
    let first = snapshot.sealed_next();
    if below <= first || below > snapshot.next_row() {
        return Err(Error::internal(format!(
            "rows below {below} cannot be sealed; the head has {first} to {}",
            snapshot.next_row().0.saturating_sub(1)
        )));
    }
    let mut write = || {
        let layout = &snapshot.parts.compiled.layout;
        let mut writer = Writer::create(env, dir, id, snapshot.def(), layout, BlockCompression::Plain, tick)?;
        cluster::write(snapshot, &mut writer, first.0, below.0)?;
        writer.finish(first, RowId(below.0 - 1))
    };
    write().inspect_err(|_| discard(env, dir, id))
}
