//! The server under load: its address, and the process and directory to watch.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use types::{Error, Result};

/// A server on this machine.
#[derive(Clone, Debug)]
pub struct LoadTarget {
    address: SocketAddr,
    /// The server's process id. The report shows its CPU, context switches and bytes written; without the id it cannot.
    pub pid: Option<u32>,
    /// The server's data directory, in which fsync latency is measured. Without it the report has no such figure.
    pub data: Option<PathBuf>,
    /// An API key, sent as `Authorization: Bearer`.
    pub key: Option<String>,
}

impl LoadTarget {
    /// Parses `127.0.0.1:8484`, `[::1]:8484` or `localhost:8484`, with or without `http://` before it. Any address that is not
    /// loopback is refused: load is for one's own machine.
    pub fn new(address: &str) -> Result<LoadTarget> {
        let bare = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
        let found: Vec<SocketAddr> = bare
            .to_socket_addrs()
            .map_err(|error| {
                Error::invalid(format!("expected an address like 127.0.0.1:8484, found {address:?}: {error}"))
            })?
            .collect();
        match found.iter().find(|found| found.ip().is_loopback()) {
            Some(address) if found.iter().all(|found| found.ip().is_loopback()) => {
                Ok(LoadTarget { address: *address, pid: None, data: None, key: None })
            }
            _ => Err(Error::new(
                types::Kind::Forbidden,
                format!("expected a loopback address, found {address:?}: load is sent to this machine only"),
            )
            .hint("run the benchmark on the server's own machine")),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    #[must_use]
    pub fn pid(mut self, pid: u32) -> LoadTarget {
        self.pid = Some(pid);
        self
    }

    #[must_use]
    pub fn data(mut self, data: &Path) -> LoadTarget {
        self.data = Some(data.to_path_buf());
        self
    }

    #[must_use]
    pub fn key(mut self, key: &str) -> LoadTarget {
        self.key = Some(key.to_owned());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_accepted_in_every_spelling() {
        for address in
            ["127.0.0.1:8484", "http://127.0.0.1:8484", "http://localhost:8484/", "[::1]:8484", "127.9.9.9:1"]
        {
            assert!(LoadTarget::new(address).is_ok(), "{address}");
        }
    }

    #[test]
    fn any_other_machine_is_refused() {
        for address in ["192.0.2.1:8484", "http://10.0.0.1:80", "0.0.0.0:8484", "[2001:db8::1]:8484"] {
            let error = LoadTarget::new(address).expect_err(address);
            assert_eq!(error.kind(), types::Kind::Forbidden, "{address}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        let error = LoadTarget::new("here").expect_err("not an address");
        assert!(error.message().contains("127.0.0.1:8484"), "{error}");
    }
}
