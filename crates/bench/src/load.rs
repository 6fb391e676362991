//! Load over HTTP: streams of requests at a given pace. Each stream has its own threads and connections.
//!
//! A thread drives its connections through one `epoll`. A request is rendered before the run or by its [`Requests`]; large
//! requests that were rendered before are sent without a copy ([`store_in_memory_file`]). An answer costs one `read` and a parse
//! of its head, so 500 connections leave the cores to the server.

mod connection;
mod drive;
mod payload;

pub use payload::{Payload, store_in_memory_file};

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use types::Result;

use crate::http::excerpt;
use crate::pace::Pace;
use crate::run::{self, BenchRun, Timing};
use crate::target::LoadTarget;

/// Generates the requests of one thread of a stream and checks their answers.
pub trait Requests: Send {
    /// The next request.
    fn next(&mut self) -> Request;

    /// Checks the body of a 2xx answer to the request with that tag and returns the number of units that it stands for. An error
    /// fails the run.
    fn on_answer(&mut self, tag: u64, body: &[u8]) -> Result<u64, String>;

    /// Handles any other answer. An error, the default, fails the run; after `Ok` the thread sends the next request.
    fn on_refusal(&mut self, tag: u64, status: u16, body: &[u8]) -> Result<(), String> {
        let _ = tag;
        Err(format!("expected a 2xx answer, found {status}: {}", excerpt(body)))
    }

    /// Called after an answer 429 that makes the connection rest ([`BusyPolicy::Rest`]). That request is not sent again.
    fn on_rest(&mut self, tag: u64) {
        let _ = tag;
    }

    /// Called with the latency of a 2xx answer before `on_answer` is called. In an open loop it counts from the intended time.
    fn on_latency(&mut self, tag: u64, latency: Duration) {
        let _ = (tag, latency);
    }
}

/// One request, rendered ([`crate::render`]).
#[derive(Clone, Debug)]
pub struct Request {
    pub bytes: Payload,
    /// Identifies the request when its answer arrives.
    pub tag: u64,
}

/// The reaction to an answer 429.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyPolicy {
    /// The run fails, as it does for any other status but 2xx.
    Fail,
    /// The connection rests for the time that the answer asks for, at most a second, and the answer is counted. Meant for load
    /// that is supposed to reach a limit.
    Rest,
}

type MakeRequests<'a> = dyn Fn(usize) -> Box<dyn Requests + 'a> + 'a;

/// A stream of requests.
pub struct LoadStream<'a> {
    name: String,
    connections: usize,
    threads: usize,
    pace: Pace,
    busy: BusyPolicy,
    nice: i32,
    requests: Box<MakeRequests<'a>>,
}

impl<'a> LoadStream<'a> {
    /// Creates a stream with one thread. `requests(thread)` creates the requests of that thread.
    pub fn new(
        name: &str,
        connections: usize,
        pace: Pace,
        requests: impl Fn(usize) -> Box<dyn Requests + 'a> + 'a,
    ) -> Self {
        let requests = Box::new(requests);
        LoadStream {
            name: name.to_owned(),
            connections: connections.max(1),
            threads: 1,
            pace,
            busy: BusyPolicy::Fail,
            nice: 0,
            requests,
        }
    }

    /// Spreads the connections over several threads, at most one thread for each connection.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.clamp(1, self.connections);
        self
    }

    #[must_use]
    pub fn busy(mut self, busy: BusyPolicy) -> Self {
        self.busy = busy;
        self
    }

    /// Lowers the priority of the stream's own threads. On a machine with few cores, their work then does not delay the clocks of
    /// other streams: the server is under test.
    #[must_use]
    pub fn nice(mut self, nice: i32) -> Self {
        self.nice = nice;
        self
    }
}

/// Streams that run side by side against one server.
pub struct Load<'a> {
    target: &'a LoadTarget,
    timing: Timing,
    interrupt: Option<&'a AtomicBool>,
    streams: Vec<LoadStream<'a>>,
}

impl<'a> Load<'a> {
    pub fn new(target: &'a LoadTarget, timing: Timing) -> Self {
        Load { target, timing, interrupt: None, streams: Vec::new() }
    }

    #[must_use]
    pub fn stream(mut self, stream: LoadStream<'a>) -> Self {
        self.streams.push(stream);
        self
    }

    /// Ends the run shortly after this becomes true. The figures are meaningless then.
    #[must_use]
    pub fn interrupt(mut self, interrupt: &'a AtomicBool) -> Self {
        self.interrupt = Some(interrupt);
        self
    }

    /// Opens all connections, then runs. Failures under load are in [`BenchRun::failures`]; an error means that the load could
    /// not start or that the server could not be watched.
    pub fn run(self, name: &str) -> Result<BenchRun> {
        let mut streams = Vec::new();
        for stream in self.streams {
            let mut workers: Vec<run::Worker<'a>> = Vec::new();
            for thread in 0..stream.threads {
                // The first threads get one connection more if the connections do not divide evenly.
                let more = usize::from(thread < stream.connections % stream.threads);
                let connections = stream.connections / stream.threads + more;
                let requests = (stream.requests)(thread);
                let driver =
                    drive::Driver::connect(self.target.address(), connections, requests, stream.busy)?;
                let nice = stream.nice;
                workers.push(Box::new(move |context| {
                    if nice > 0 {
                        // The call fails if the process already has a lower priority.
                        let _ = rustix::process::setpriority_process(None, nice);
                    }
                    driver.drive(context)
                }));
            }
            let LoadStream { name, pace, connections, .. } = stream;
            streams.push(run::ReadyStream { name, pace, connections, workers });
        }
        let monitor = run::MonitorOptions {
            pid: self.target.pid,
            data: self.target.data.as_deref(),
            interrupt: self.interrupt,
        };
        run::run_streams(name, self.timing, monitor, streams)
    }
}
