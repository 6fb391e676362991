//! The file `server.json` in a data directory, by which commands find its running server.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use types::{Error, Result};

/// The content of the file. A server writes it when it starts and removes it when it stops. A crash leaves it behind, so a
/// reader checks that the process is alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningServer {
    /// The server's address, such as `http://127.0.0.1:8484`.
    pub url: String,
    pub pid: i32,
    /// Start time of the process in ticks since boot. It tells the server from a later process with the same pid.
    pub started: Option<u64>,
    pub version: String,
    /// A key of scope admin for users who may read this file, since they own the directory.
    #[serde(default)]
    pub secret: String,
}

pub const FILE_NAME: &str = "server.json";

impl RunningServer {
    /// Describes this process, whose server is reachable at `url`.
    pub fn this_process(url: String, secret: String) -> Self {
        let pid = std::process::id() as i32;
        RunningServer {
            url,
            pid,
            started: start_time(pid),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            secret,
        }
    }

    /// Writes the file with mode 0600. Dropping the returned value removes it.
    pub fn write(&self, data: &Path) -> Result<RunningFile> {
        let path = data.join(FILE_NAME);
        let temporary = data.join("server.json.tmp");
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::internal("server.json").caused_by(error))?;
        let write = || -> std::io::Result<()> {
            // A temporary file of an earlier process may be readable for other users.
            match fs::remove_file(&temporary) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file =
                fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
            file.write_all(&text)?;
            fs::rename(&temporary, &path)
        };
        let written = write();
        written.map_err(|error| Error::io(format!("writing {}", path.display()), error))?;
        Ok(RunningFile(path))
    }

    /// Returns the live server of a directory, if there is one.
    pub fn find(data: &Path) -> Option<RunningServer> {
        let text = fs::read(data.join(FILE_NAME)).ok()?;
        let running: RunningServer = serde_json::from_slice(&text).ok()?;
        running.is_alive().then_some(running)
    }

    fn is_alive(&self) -> bool {
        let Some(pid) = rustix::process::Pid::from_raw(self.pid) else { return false };
        match rustix::process::test_kill_process(pid) {
            // A process of another user cannot be signalled, but exists.
            Ok(()) | Err(rustix::io::Errno::PERM) => start_time(self.pid) == self.started,
            Err(_) => false,
        }
    }
}

/// Removes the file when the server stops.
#[derive(Debug)]
pub struct RunningFile(PathBuf);

impl Drop for RunningFile {
    fn drop(&mut self) {
        // A failure is harmless: the file then names a process that is gone, and readers ignore it.
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns the start time of a process, field 22 of `/proc/PID/stat`. `None` if there is no /proc, and for a process that is
/// gone or a zombie.
fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_a_process_that_lives_is_believed() {
        let _limit = testkit::limit(30);
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(RunningServer::find(dir.path()), None);
        let here = RunningServer::this_process("http://127.0.0.1:1".into(), "pk_secret".into());
        let file = here.write(dir.path()).unwrap();
        assert_eq!(RunningServer::find(dir.path()), Some(here.clone()));
        let mode = fs::metadata(dir.path().join(FILE_NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "it holds a secret");
        let reused = RunningServer { started: Some(1), ..here.clone() };
        let _file = reused.write(dir.path()).unwrap();
        assert_eq!(RunningServer::find(dir.path()), None, "another process has this pid now");
        // A killed process stays a zombie until its parent, which is this test, waits for it.
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let killed = RunningServer { pid, started: start_time(pid), ..here.clone() };
        let _file = killed.write(dir.path()).unwrap();
        assert_eq!(RunningServer::find(dir.path()), Some(killed));
        child.kill().unwrap();
        while RunningServer::find(dir.path()).is_some() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        child.wait().unwrap();
        let gone = RunningServer { pid: i32::MAX, ..here };
        let _file = gone.write(dir.path()).unwrap();
        assert_eq!(RunningServer::find(dir.path()), None);
        drop(file);
        assert!(!dir.path().join(FILE_NAME).exists());
        fs::write(dir.path().join(FILE_NAME), "{").unwrap();
        assert_eq!(RunningServer::find(dir.path()), None);
    }
}
