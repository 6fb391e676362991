//! Helpers that run the binary in a directory of its own.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// A working directory for the binary, without the settings of the user who runs the tests.
pub struct Workdir {
    dir: tempfile::TempDir,
}

impl Workdir {
    pub fn new() -> Self {
        Workdir { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polynya"));
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("POLYNYA_"))
        {
            command.env_remove(name);
        }
        command.args(args).current_dir(self.dir.path()).env("HOME", self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that must succeed, and returns its standard output.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{args:?}: {}\n{out}\n{err}", output.status);
        out
    }

    /// Runs a command that must fail, and returns its error: one sentence on standard error.
    pub fn fails(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}\n{err}", text(&output.stdout));
        let said: Vec<&str> = err.lines().filter(|line| line.starts_with("polynya: ")).collect();
        assert_eq!(said.len(), 1, "one sentence: {err}");
        said[0].to_owned()
    }

    /// Runs a statement and returns the first value of its first row.
    pub fn number(&self, statement: &str) -> i64 {
        let line = self.ok(&["sql", "--json", statement]);
        let row: serde_json::Value = serde_json::from_str(line.lines().next().unwrap_or_default()).unwrap();
        let value = row.as_object().and_then(|row| row.values().next()).cloned().unwrap_or_default();
        value.as_i64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    }

    /// Starts a server on a free port, and waits until it is ready.
    pub fn serve(&self, args: &[&str]) -> Server {
        self.serve_in("polynya-data", args)
    }

    /// Starts a server on a free port, whose arguments name the data directory `data`, and waits until it is ready.
    pub fn serve_in(&self, data: &str, args: &[&str]) -> Server {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let listen = format!("127.0.0.1:{port}");
        let mut command = self.command(args);
        command.args(["--listen", &listen]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = command.spawn().unwrap();
        let data = self.path(data);
        // A killed server leaves its `server.json` behind, so the pid is compared.
        let has_pid = |pid: u32| {
            let found: Option<serde_json::Value> = std::fs::read(data.join("server.json"))
                .ok()
                .and_then(|text| serde_json::from_slice(&text).ok());
            found.is_some_and(|found| found["pid"] == pid)
        };
        while !has_pid(child.id()) {
            if let Some(status) = child.try_wait().unwrap() {
                let mut said = String::new();
                child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                panic!("the server ended with {status}: {said}");
            }
            assert!(started.elapsed() < Duration::from_secs(60), "the server does not start");
            std::thread::yield_now();
        }
        Server { child, url: format!("http://{listen}"), listen, ready_after: started.elapsed() }
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub struct Server {
    pub child: Child,
    pub url: String,
    pub listen: String,
    pub ready_after: Duration,
}

impl Server {
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    pub fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        self.child.wait().unwrap()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a request, and returns the status and the body of its answer.
    pub fn ask(&self, method: &str, path: &str, headers: &[&str], body: &str) -> (u16, String) {
        use std::io::Write;
        let mut stream = std::net::TcpStream::connect(&self.listen).unwrap();
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            self.listen,
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Reads lines of standard output up to and including the first one that starts with `beginning`.
    pub fn lines_until(&mut self, beginning: &str) -> Vec<String> {
        let mut reader = BufReader::new(self.child.stdout.take().unwrap());
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert!(reader.read_line(&mut line).unwrap() > 0, "{lines:?}");
            lines.push(line.trim_end().to_owned());
            if line.starts_with(beginning) {
                return lines;
            }
        }
    }
}

/// Returns true if `polynya doctor` finds a directory sound.
pub fn is_sound(workdir: &Workdir, data: &Path) -> bool {
    let output = workdir.run(&["doctor", data.to_str().unwrap(), "--json"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["sound"] == true, output.status.success());
    if !output.status.success() {
        eprintln!("{}", found["findings"]);
    }
    output.status.success()
}
