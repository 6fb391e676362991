//! Starts a server as a child process with its own data directory, watches it by its process id, and stops or kills it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use types::{Error, Kind, Result};

use crate::http::HttpClient;
use crate::target::LoadTarget;

#[derive(Clone, Debug)]
pub struct Options {
    pub program: PathBuf,
    /// `{data}` and `{listen}` are replaced by the directory and the address.
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    /// The parent of the data directory. It should be on the disk under test; on a `tmpfs` an fsync means nothing.
    pub root: PathBuf,
    /// The beginning of the directory's name.
    pub prefix: &'static str,
    /// Isolates the server: it takes no setting from this process's environment and no signal that a terminal sends to this
    /// process. The caller ends it.
    pub isolated: bool,
    pub ready_within: Duration,
    pub stop_within: Duration,
}

impl Options {
    /// Options for `PROGRAM serve --data … --listen …` with a directory below the current one.
    pub fn new(program: impl Into<PathBuf>) -> Options {
        Options {
            program: program.into(),
            args: ["serve", "--data", "{data}", "--listen", "{listen}"].map(String::from).to_vec(),
            env: Vec::new(),
            root: PathBuf::from("."),
            prefix: "polynya-bench-",
            isolated: false,
            ready_within: Duration::from_secs(60),
            stop_within: Duration::from_secs(30),
        }
    }
}

/// A data directory and an address that serve any number of server starts. Dropping it removes the directory, unless
/// [`Home::keep`] was called.
#[derive(Debug)]
pub struct Home {
    options: Options,
    directory: tempfile::TempDir,
    listen: String,
    starts: usize,
}

/// A running server. Killed when dropped.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    target: LoadTarget,
    ready_after: Duration,
    log: PathBuf,
}

impl Home {
    pub fn new(options: Options) -> Result<Home> {
        let directory =
            tempfile::Builder::new().prefix(options.prefix).tempdir_in(&options.root).map_err(|error| {
                Error::io(format_args!("making a directory in {}", options.root.display()), error)
            })?;
        fs::create_dir(directory.path().join("data"))
            .map_err(|error| Error::io("making the server's data directory", error))?;
        // The port is free now. If another program takes it before the server does, the server reports that and the start fails.
        let listen = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .map_err(|error| Error::io("looking for a free port", error))?
            .to_string();
        Ok(Home { options, directory, listen, starts: 0 })
    }

    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The directory that holds the data, the server's output and the files that a workload adds.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Sets a variable of the server's environment, from the next start on.
    pub fn env(&mut self, name: &str, value: &str) {
        self.options.env.retain(|(known, _)| known != name);
        self.options.env.push((name.into(), value.into()));
    }

    /// Leaves the directory in place for inspection.
    pub fn keep(self) -> PathBuf {
        self.directory.keep()
    }

    /// Starts the server and waits until `/ready` answers with success.
    pub fn start(&mut self) -> Result<ServerProcess> {
        let mut server = self.spawn()?;
        server.wait_until_ready(self.options.ready_within)?;
        Ok(server)
    }

    /// Starts the server without waiting for it.
    pub fn spawn(&mut self) -> Result<ServerProcess> {
        self.starts += 1;
        let log = self.directory.path().join(format!("server-{}.log", self.starts));
        let what = |error| Error::io(format_args!("starting {}", self.options.program.display()), error);
        let output = File::create(&log).map_err(what)?;
        let data = self.data();
        let args = self.options.args.iter().map(|arg| match arg.as_str() {
            "{data}" => data.clone().into_os_string(),
            other => OsString::from(other.replace("{listen}", &self.listen)),
        });
        let mut command = Command::new(&self.options.program);
        if self.options.isolated {
            command.process_group(0);
            for (name, _) in std::env::vars_os() {
                if name.to_string_lossy().starts_with("POLYNYA_") {
                    command.env_remove(name);
                }
            }
        }
        let child = command
            .args(args)
            .env("POLYNYA_DATA", &data)
            .env("POLYNYA_LISTEN", &self.listen)
            .envs(self.options.env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(what)?)
            .stderr(output)
            .spawn()
            .map_err(what)?;
        let target = LoadTarget::new(&self.listen)?.pid(child.id()).data(&data);
        Ok(ServerProcess { child, target, ready_after: Duration::ZERO, log })
    }
}

impl ServerProcess {
    pub fn target(&self) -> &LoadTarget {
        &self.target
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The time from the start of the wait until the first success of `/ready`.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// Returns true if the process has not ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The file that receives the server's output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    pub fn wait_until_ready(&mut self, within: Duration) -> Result<()> {
        let since = Instant::now();
        let mut client = HttpClient::new(&self.target).timeout(Duration::from_secs(1));
        loop {
            let ended = self.child.try_wait().map_err(|error| Error::io("watching the server", error))?;
            if let Some(status) = ended {
                return Err(self.error(&format!("the server ended with {status} before it was ready")));
            }
            if client.request("GET", "/ready", "", b"").is_ok_and(|answer| answer.is_success()) {
                self.ready_after = since.elapsed();
                return Ok(());
            }
            if since.elapsed() > within {
                return Err(self.error(&format!("the server was not ready within {within:?}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends SIGKILL to this process only and waits for its end.
    pub fn kill(&mut self) -> Result<()> {
        // This process has not reaped the child before `wait`, so no other process can have its id.
        self.child
            .kill()
            .and_then(|()| self.child.wait())
            .map(drop)
            .map_err(|error| Error::io("killing the server", error))
    }

    /// Sends SIGTERM and waits for the end of the process.
    pub fn stop(&mut self, within: Duration) -> Result<ExitStatus> {
        let what = |error| Error::io("stopping the server", error);
        let since = Instant::now();
        if let Some(status) = self.child.try_wait().map_err(what)? {
            return Ok(status);
        }
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM)
            .map_err(|error| what(error.into()))?;
        loop {
            if let Some(status) = self.child.try_wait().map_err(what)? {
                return Ok(status);
            }
            if since.elapsed() > within {
                return Err(self.error(&format!("the server did not stop within {within:?}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn error(&self, message: &str) -> Error {
        let output = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = output.lines().collect();
        let last = lines[lines.len().saturating_sub(5)..].join(" / ");
        let last = if last.is_empty() { "nothing".into() } else { last };
        Error::new(Kind::Io, format!("{message}; it printed: {last}"))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // A failure is fine here: the server may have ended already.
        let _ = self.kill();
    }
}
