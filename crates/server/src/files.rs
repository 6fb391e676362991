//! The limit of open files of this process, and the share of it that connections may use.
//!
//! Every connection takes a file descriptor. If clients could take the last one, the log could not make a new file, tables could
//! not be written, and nobody could even ask the program what is wrong.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Minimum number of file descriptors that connections may not use. With a large limit, a quarter of it is reserved.
const RESERVE_MIN: usize = 256;
/// Minimum number of connections that a small limit of files leaves, so that the server can answer at all.
const CONNECTIONS_MIN: usize = 16;

/// Raises the soft limit of open files to the hard limit, and returns the limit then in effect.
///
/// The usual soft limit of 1,024 is meant for programs that use `select`, which this one does not.
pub fn raise_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of open files could not be raised");
        }
    }
    // `None` means that there is no limit.
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize)
}

/// Returns the number of connections that may be open if `wanted` are configured and the process may have `files` open files.
pub fn connections_within(files: usize, wanted: usize) -> usize {
    let reserve = RESERVE_MIN.max(files / 4);
    wanted.min(files.saturating_sub(reserve).max(CONNECTIONS_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_to_the_rest_of_the_program() {
        assert_eq!(connections_within(20_000, 20_000), 15_000);
        assert_eq!(connections_within(1_024, 20_000), 768);
        assert_eq!(connections_within(400, 20_000), 144);
        assert_eq!(connections_within(400, 100), 100);
        assert_eq!(connections_within(100, 20_000), 16);
        assert_eq!(connections_within(usize::MAX, 20_000), 20_000);
    }
}
