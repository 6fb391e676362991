//! Checks that an address is free to listen on, and finds the process that uses it if not.

use std::fs;
use std::net::{SocketAddr, TcpListener};

use types::{Error, Kind, Result};

/// Fails with one sentence that says why if no program can listen at `address`.
pub fn check(address: SocketAddr) -> Result<()> {
    match TcpListener::bind(address) {
        Ok(_) => Ok(()),
        Err(error) => Err(explain(address, error)),
    }
}

fn explain(address: SocketAddr, error: std::io::Error) -> Error {
    let port = address.port();
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            let holder = match holder(port) {
                Some((pid, command)) => format!(" by `{command}` (pid {pid})"),
                None => String::new(),
            };
            let next = port.checked_add(1).unwrap_or(8484);
            Error::new(Kind::InUse, format!("port {port} is taken{holder}")).hint(format!(
                "stop that program or listen elsewhere: --listen {}",
                SocketAddr::new(address.ip(), next)
            ))
        }
        std::io::ErrorKind::PermissionDenied => {
            Error::new(Kind::Forbidden, format!("this user may not listen on port {port}"))
                .hint("use a port from 1024 on: --listen 127.0.0.1:8484")
        }
        std::io::ErrorKind::AddrNotAvailable => {
            Error::invalid(format!("{} is not an address of this machine", address.ip()))
                .hint("use 127.0.0.1 for this machine only, 0.0.0.0 for all its addresses")
        }
        _ => Error::io(format!("listening on {address}"), error),
    }
}

/// Finds the pid and the command of the process that listens on a port, if this user may see them.
fn holder(port: u16) -> Option<(u32, String)> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let inode = tables.iter().find_map(|table| listening_inode(table, port))?;
    let wanted = format!("socket:[{inode}]");
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(descriptors) = fs::read_dir(entry.path().join("fd")) else { continue };
        let mut targets = descriptors.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
        if targets.any(|target| target.to_string_lossy() == wanted) {
            let command = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            return Some((pid, command.trim().to_owned()));
        }
    }
    None
}

/// Finds the inode of the socket that listens on a port, in a table with lines `sl local_address rem_address st … inode`.
/// The state 0A is LISTEN.
fn listening_inode(table: &str, port: u16) -> Option<u64> {
    let wanted = format!(":{port:04X}");
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        (words.get(1)?.ends_with(&wanted) && *words.get(3)? == "0A").then(|| words.get(9)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_names_who_has_it() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = check(held.local_addr().unwrap()).unwrap_err().to_string();
        assert!(error.contains("is taken") && error.contains("--listen 127.0.0.1:"), "{error}");
        assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
    }

    #[test]
    fn the_listening_socket_is_found_among_others() {
        let table =
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2124 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 11 1
   1: 0100007F:2124 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1
   2: broken
";
        assert_eq!(listening_inode(table, 8484), Some(4242));
        assert_eq!(listening_inode(table, 8485), None);
    }
}
