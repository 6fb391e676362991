//! How many files this process may have open, and how many of them connections may take.
//!
//! A connection is a file. If clients could take the last one, the log could make no new file, tables could not be
//! written, and the program could not even be asked what is wrong.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that are never a connection's, at least; of many, a quarter.
const RESERVE_MIN: usize = 256;
/// A small limit is shared: the server still has to answer somebody.
const CONNECTIONS_MIN: usize = 16;

/// Lets this process have as many files as it may, and returns how many that are.
///
/// The usual soft limit of 1,024 is for programs that use `select`, which this one does not.
pub fn raise_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of open files could not be raised");
        }
    }
    // No limit at all: `None`.
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize)
}

/// Connections that may be open where `wanted` are asked for and the process may have so many files.
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
