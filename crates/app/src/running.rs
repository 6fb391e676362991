//! `server.json` in a data directory: where its running server is found.

use std::fs;
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
}

pub const FILE_NAME: &str = "server.json";

impl Running {
    /// This process, reachable at `url`.
    pub fn here(url: String) -> Self {
        let pid = std::process::id() as i32;
        Running { url, pid, started: started(pid), version: env!("CARGO_PKG_VERSION").to_owned() }
    }

    pub fn write(&self, data: &Path) -> Result<RunningFile> {
        let path = data.join(FILE_NAME);
        let temporary = data.join("server.json.tmp");
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::internal("server.json").caused_by(error))?;
        let written = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, &path));
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

/// Field 22 of `/proc/PID/stat`; `None` where there is no /proc.
fn started(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_that_lives_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Running::find(dir.path()), None);
        let here = Running::here("http://127.0.0.1:1".into());
        let file = here.write(dir.path()).unwrap();
        assert_eq!(Running::find(dir.path()), Some(here.clone()));
        let reused = Running { started: Some(1), ..here.clone() };
        let _file = reused.write(dir.path()).unwrap();
        assert_eq!(Running::find(dir.path()), None, "another process has this pid now");
        let gone = Running { pid: i32::MAX, ..here };
        let _file = gone.write(dir.path()).unwrap();
        assert_eq!(Running::find(dir.path()), None);
        drop(file);
        assert!(!dir.path().join(FILE_NAME).exists());
        fs::write(dir.path().join(FILE_NAME), "{").unwrap();
        assert_eq!(Running::find(dir.path()), None);
    }
}
