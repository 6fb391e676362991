//! `server.json` in a data directory: where its running server is found.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use types::{Error, Result};

/// Written when a server serves, removed when it stops. After a crash it is left behind, so the process is looked for
/// before it is believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// `http://127.0.0.1:8484`
    pub url: String,
    pub pid: i32,
    /// When that process started, in the kernel's ticks: a pid alone may have been given to another by now.
    pub started: Option<u64>,
    pub version: String,
    /// With it whoever may read this file is the server's admin: they own the directory.
    #[serde(default)]
    pub secret: String,
}

pub const FILE_NAME: &str = "server.json";

impl Running {
    /// This process, reachable at `url`.
    pub fn here(url: String, secret: String) -> Self {
        let pid = std::process::id() as i32;
        Running { url, pid, started: started(pid), version: env!("CARGO_PKG_VERSION").to_owned(), secret }
    }

    pub fn write(&self, data: &Path) -> Result<RunningFile> {
        let path = data.join(FILE_NAME);
        let temporary = data.join("server.json.tmp");
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::internal("server.json").caused_by(error))?;
        let write = || -> std::io::Result<()> {
            // What an earlier process left may be readable for others.
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

    /// The live server of a directory, if there is one.
    pub fn find(data: &Path) -> Option<Running> {
        let text = fs::read(data.join(FILE_NAME)).ok()?;
        let running: Running = serde_json::from_slice(&text).ok()?;
        running.is_alive().then_some(running)
    }

    fn is_alive(&self) -> bool {
        let Some(pid) = rustix::process::Pid::from_raw(self.pid) else { return false };
        match rustix::process::test_kill_process(pid) {
            // One that may not be signalled exists all the same.
            Ok(()) | Err(rustix::io::Errno::PERM) => started(self.pid) == self.started,
            Err(_) => false,
        }
    }
}

/// Removes the file when the server stops.
#[derive(Debug)]
pub struct RunningFile(PathBuf);

impl Drop for RunningFile {
    fn drop(&mut self) {
        // Nobody could act on a failure; a file left behind names a process that is gone.
        let _ = fs::remove_file(&self.0);
    }
}

/// Field 22 of `/proc/PID/stat`; `None` where there is no /proc, and for a process that has ended and only waits for its
/// parent to notice.
fn started(pid: i32) -> Option<u64> {
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
        assert_eq!(Running::find(dir.path()), None);
        let here = Running::here("http://127.0.0.1:1".into(), "pk_secret".into());
        let file = here.write(dir.path()).unwrap();
        assert_eq!(Running::find(dir.path()), Some(here.clone()));
        let mode = fs::metadata(dir.path().join(FILE_NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "it holds a secret");
        let reused = Running { started: Some(1), ..here.clone() };
        let _file = reused.write(dir.path()).unwrap();
        assert_eq!(Running::find(dir.path()), None, "another process has this pid now");
        // Killed, and its parent, which is this test, has not looked yet.
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let killed = Running { pid, started: started(pid), ..here.clone() };
        let _file = killed.write(dir.path()).unwrap();
        assert_eq!(Running::find(dir.path()), Some(killed));
        child.kill().unwrap();
        while Running::find(dir.path()).is_some() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        child.wait().unwrap();
        let gone = Running { pid: i32::MAX, ..here };
        let _file = gone.write(dir.path()).unwrap();
        assert_eq!(Running::find(dir.path()), None);
        drop(file);
        assert!(!dir.path().join(FILE_NAME).exists());
        fs::write(dir.path().join(FILE_NAME), "{").unwrap();
        assert_eq!(Running::find(dir.path()), None);
    }
}
