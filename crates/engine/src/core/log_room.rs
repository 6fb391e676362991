//! Reserves room in the log for a group, and picks the requests that still happen when the disk is full.

use std::sync::atomic::Ordering;

use commitlog::Purpose;
use types::{Error, Kind, Lsn, Result};

use super::Core;
use crate::inbox::Request;

/// Bytes reserved for a frame's own header, with some to spare.
const FRAME_HEADER_BYTES_MAX: u64 = 256;

impl Core {
    /// Returns the requests of a group that happen although the log has no room for all of it; refuses the others.
    pub(super) fn requests_that_fit(&mut self, requests: Vec<Request>, error: &Error) -> Vec<Request> {
        let refuse = |requests: Vec<Request>, error: &Error| {
            requests.into_iter().for_each(|request| request.refuse(error.clone()));
        };
        if error.kind() != Kind::DiskFull {
            refuse(requests, error);
            return Vec::new();
        }
        let (freeing, others): (Vec<_>, Vec<_>) = requests.into_iter().partition(Request::makes_room);
        refuse(others, error);
        // Edits of background work go before deletes of users: they are small, and they let the log itself be trimmed.
        let (edits, writes): (Vec<_>, Vec<_>) =
            freeing.into_iter().partition(|request| matches!(request, Request::Edit { .. }));
        let mut happening = Vec::new();
        for mut part in [edits, writes] {
            if part.is_empty() {
                continue;
            }
            let so_far = happening.len();
            happening.append(&mut part);
            if let Err(error) = self.reserve(&happening, Purpose::MakesRoom) {
                refuse(happening.split_off(so_far), &error);
            }
        }
        happening
    }

    /// Reserves room in the log. Files that are kept only for an archive give way: an archive that is behind must not stop
    /// writes.
    pub(super) fn reserve(&mut self, requests: &[Request], purpose: Purpose) -> Result<()> {
        let bytes: u64 = requests.iter().map(Request::frame_bytes).sum();
        if bytes == 0 {
            return Ok(());
        }
        let bytes = bytes + FRAME_HEADER_BYTES_MAX;
        let mut reserved = self.log.reserve(bytes, purpose);
        if self.shared.archive.is_some()
            && self.log.stats().archive_files > 0
            && reserved.as_ref().is_err_and(|error| error.kind() == Kind::DiskFull)
        {
            self.log.trim_unarchived(Lsn(self.shared.trimmed_below.load(Ordering::Acquire)))?;
            reserved = self.log.reserve(bytes, purpose);
        }
        // A request that makes room says nothing about others when it succeeds. Nor does one so short that it fits into the
        // space that is left.
        let lacking = &self.shared.lacks_room;
        let shows_room = |rotated: bool| rotated || bytes >= lacking.load(Ordering::Relaxed);
        match &reserved {
            Ok(rotated) if purpose == Purpose::Any && shows_room(*rotated) => {
                lacking.store(0, Ordering::Relaxed)
            }
            Err(error) if purpose == Purpose::Any && error.kind() == Kind::DiskFull => {
                lacking.store(bytes, Ordering::Relaxed);
            }
            _ => {}
        }
        match reserved {
            Ok(false) => {}
            Ok(true) => self.prepare_files(),
            Err(error) => {
                if error.kind() == Kind::Latched {
                    self.shared.refuse_writes(error.clone());
                }
                return Err(error);
            }
        }
        Ok(())
    }
}
