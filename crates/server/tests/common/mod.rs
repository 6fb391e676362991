//! A server on its own directory, and an HTTP client that sends exactly the bytes it is given, including invalid requests.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polynya_server as server;
use polynya_server::{Options, Server};
use testkit::TempDir;

pub struct TestServer {
    pub server: Option<Server>,
    pub engine: engine::Engine,
    pub sql: query::Sql,
    pub address: SocketAddr,
    /// The materializer of the lake. A test registers it with the engine if it needs one.
    pub lake: std::sync::Arc<lake::Materializer>,
    /// The directory of the server. `restart` takes it out and hands it to the next server.
    dir: Option<TempDir>,
}

impl TestServer {
    pub fn start(name: &str) -> TestServer {
        TestServer::with_options(name, |_| {})
    }

    pub fn with_options(name: &str, change: impl FnOnce(&mut Options)) -> TestServer {
        TestServer::with_engine_options(name, engine::Options::default(), change)
    }

    /// Starts a server whose every fsync takes `delay` longer.
    pub fn on_a_slow_disk(name: &str, delay: std::time::Duration) -> TestServer {
        let mut options = engine::Options::default();
        options.log.sync_delay = Some(delay);
        TestServer::with_engine_options(name, options, |_| {})
    }

    pub fn with_engine_options(
        name: &str,
        options: engine::Options,
        change: impl FnOnce(&mut Options),
    ) -> TestServer {
        TestServer::in_dir(testkit::temp_dir(name), vfs::Env::real(), options, change)
    }

    /// Starts a server on a simulated machine.
    pub fn on_simulated_machine(name: &str, machine: &sim::SimEnv, options: engine::Options) -> TestServer {
        let change = |options: &mut Options| options.record_requests = false;
        TestServer::in_dir(testkit::temp_dir(name), machine.env(), options, change)
    }

    /// Stops the server and starts a new one on the same directory.
    pub fn restart(mut self) -> TestServer {
        let dir = self.dir.take().unwrap();
        drop(self);
        TestServer::in_dir(dir, vfs::Env::real(), engine::Options::default(), |_| {})
    }

    fn in_dir(
        dir: TempDir,
        env: vfs::Env,
        mut options: engine::Options,
        change: impl FnOnce(&mut Options),
    ) -> TestServer {
        options.log.file_bytes = 4 << 20;
        let engine = engine::Engine::open(env, &dir.path().join("data"), options).unwrap();
        let sql = query::Sql::new(engine.clone(), query::Options::new(dir.path().join("spill"))).unwrap();
        let text = index::text::TextMaterializer::new();
        engine.register(text.clone()).unwrap();
        let search = query::Search::new(engine.clone(), text, sql.clone()).unwrap();
        // The materializer is created here and registered only by the tests that need it.
        let warehouse = engine.dir().join("lake");
        let lake = lake::Options::new(&warehouse, warehouse.to_str().unwrap());
        let elsewhere = vec![dir.path().join("elsewhere")];
        std::fs::create_dir_all(&elsewhere[0]).unwrap();
        let catalog = lake::catalog::TableStore::new(vfs::Env::real(), &lake, elsewhere).unwrap();
        let lake = std::sync::Arc::new(lake::Materializer::new(lake));
        let mut options = Options {
            lake: Some(lake.clone()),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            search: Some(search),
            catalog: Some(catalog),
            ..Options::default()
        };
        change(&mut options);
        let server = Server::start(engine.clone(), sql.clone(), options).unwrap();
        let address = server.local_addr();
        TestServer { server: Some(server), engine, sql, address, lake, dir: Some(dir) }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Sends a request on a connection of its own.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Response {
        self.client().ask(method, path, &[], body.as_bytes())
    }

    pub fn telemetry(&self) -> &server::telemetry::Telemetry {
        self.server.as_ref().unwrap().telemetry()
    }

    /// Asserts that the server still accepts and returns rows. Tests call it after each misuse.
    pub fn assert_works(&self) {
        let answer = self.ask("POST", "/v1/tables/still_works/rows", r#"{"a":1}"#);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = self.ask("GET", "/v1/tables/still_works/rows?limit=1", "");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop(Duration::from_secs(2));
        }
        self.sql.close();
        let _ = self.engine.close();
    }
}

pub struct Client {
    pub reader: BufReader<TcpStream>,
}

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("not JSON ({e}): {}", self.text()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Returns `error.code` and `error.message`.
    pub fn error(&self) -> (String, String) {
        let error = &self.json()["error"];
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        (text("code"), text("message"))
    }
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { reader: BufReader::new(stream) }
    }

    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// Sends the request line and the headers. `Content-Length` is sent only if `headers` has it.
    pub fn head(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head += "Host: localhost\r\n";
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        self.send(head.as_bytes()).unwrap();
    }

    pub fn ask(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let length = body.len().to_string();
        let mut all = headers.to_vec();
        if !body.is_empty() {
            all.push(("Content-Length", &length));
        }
        self.head(method, path, &all);
        // The send may fail: a server that refused the request early may not read the rest.
        let _ = self.send(body);
        if method == "HEAD" { self.answer_head() } else { self.answer() }
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn answer_head(&mut self) -> Response {
        let status_line = self.line();
        let status = status_line.split(' ').nth(1).and_then(|s| s.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no answer: {status_line:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').unwrap();
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Response { status, headers, body: Vec::new() }
    }

    /// Returns the status of an answer and leaves the rest unread. Returns `None` if the connection ended without one.
    pub fn status(&mut self) -> Option<u16> {
        let mut line = String::new();
        self.reader.read_line(&mut line).ok()?;
        line.split(' ').nth(1)?.parse().ok()
    }

    pub fn answer(&mut self) -> Response {
        let mut answer = self.answer_head();
        if matches!(answer.status, 204 | 304) {
            return answer;
        }
        if let Some(length) = answer.header("content-length") {
            answer.body = vec![0; length.parse().unwrap()];
            self.reader.read_exact(&mut answer.body).unwrap();
        } else if answer.header("transfer-encoding") == Some("chunked") {
            while let Some(mut chunk) = self.chunk() {
                answer.body.append(&mut chunk);
            }
        } else {
            self.reader.read_to_end(&mut answer.body).unwrap();
        }
        answer
    }

    /// Returns the part of a chunked body that arrived, and true if the body was complete.
    pub fn chunks_until_it_breaks(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        loop {
            let mut size = String::new();
            if !matches!(self.reader.read_line(&mut size), Ok(1..)) {
                return (body, false);
            }
            let size = usize::from_str_radix(size.trim_end(), 16).expect("a chunk's size");
            let mut chunk = vec![0; size + 2];
            if self.reader.read_exact(&mut chunk).is_err() {
                return (body, false);
            }
            if size == 0 {
                return (body, true);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    /// Returns the next chunk of an answer, `None` at its end.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = usize::from_str_radix(&self.line(), 16).expect("a chunk's size");
        let mut chunk = vec![0; size];
        self.reader.read_exact(&mut chunk).unwrap();
        assert_eq!(self.line(), "");
        (size > 0).then_some(chunk)
    }

    /// Reads a change feed up to an event with an id, which is where a reader may resume, of at least this lsn. It cannot be an
    /// exact lsn, because background work takes lsns too.
    pub fn events_until(&mut self, lsn: u64) -> String {
        let mut text = String::new();
        let has_lsn =
            |line: &str| line.strip_prefix("id: ").is_some_and(|id| id.parse::<u64>().unwrap() >= lsn);
        while !(text.ends_with("\n\n") && text.lines().any(has_lsn)) {
            text += std::str::from_utf8(&self.chunk().expect("the feed goes on")).unwrap();
        }
        text
    }

    /// Returns true if the server closed the connection without sending anything more.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(0) => true,
            Ok(_) => false,
            // A reset ends the connection as well.
            Err(e) => !matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
        }
    }
}

/// Resident memory of this process, in bytes.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Waits until a condition holds that another thread brings about. The test's time limit ends the wait if it never does.
pub fn wait_until(holds: impl Fn() -> bool) {
    while !holds() {
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Environment variable that makes a child process play the clients.
const CLIENT_PROCESS: &str = "POLYNYA_TEST_CLIENTS";

/// Many open connections, held by a child process so that they use none of this process's file descriptors.
pub struct ClientProcess {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl ClientProcess {
    /// Starts the process. `test` must begin with [`ClientProcess::run_if_child`].
    pub fn spawn(test: &str) -> ClientProcess {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(CLIENT_PROCESS, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        ClientProcess { child, stdout }
    }

    /// Closes the open connections and opens `count` new ones, each with one request. Returns the number of requests that were
    /// answered 200.
    pub fn connect(&mut self, address: SocketAddr, count: usize) -> usize {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(format!("{address} {count}\n").as_bytes()).unwrap();
        let lines = (&mut self.stdout).lines().map(Result::unwrap);
        let served = lines.into_iter().find_map(|line| line.strip_prefix("served ")?.parse().ok());
        served.expect("the child says how many were served")
    }

    /// Plays the clients if this is the child process, until the parent ends it, and then returns true. Returns false in the
    /// parent.
    pub fn run_if_child() -> bool {
        if std::env::var_os(CLIENT_PROCESS).is_none() {
            return false;
        }
        raise_files();
        let mut clients: Vec<Client> = Vec::new();
        for task in std::io::stdin().lines() {
            let task = task.unwrap();
            let (address, count) = task.split_once(' ').unwrap();
            let (address, count): (SocketAddr, usize) = (address.parse().unwrap(), count.parse().unwrap());
            clients.clear();
            let mut served = 0;
            // Connections are opened in steps, because the server's accept queue is bounded.
            while clients.len() < count {
                let step = (count - clients.len()).min(64);
                let mut new: Vec<Client> = (0..step).map(|_| Client::connect(address)).collect();
                // The server may refuse a connection and close it before the request is sent.
                new.iter_mut().for_each(|client| {
                    let _ = client.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
                });
                served += new.iter_mut().filter_map(Client::status).filter(|status| *status == 200).count();
                clients.append(&mut new);
            }
            let mut out = std::io::stdout();
            out.write_all(format!("\nserved {served}\n").as_bytes()).unwrap();
            out.flush().unwrap();
        }
        true
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Raises the limit of open files of this process to the hard limit, but to no more than 40,000. Returns the new limit.
pub fn raise_files() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let files = getrlimit(Resource::Nofile);
    let room = files.maximum.unwrap_or(1 << 20).min(40_000);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(room), maximum: files.maximum });
    room as usize
}
