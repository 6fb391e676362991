//! Load over HTTP: streams of requests at a pace, each stream on its own threads and connections.
//!
//! A thread drives its connections through one `epoll`; a request is rendered before the run or by its [`Requests`], and
//! nothing of a large one that was rendered before is copied ([`store`]). An answer costs one `read` and a look at its
//! head, so that 500 connections leave the cores to the server.

mod connection;
mod drive;
mod payload;

pub use payload::{Payload, store};

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use types::Result;

use crate::http::excerpt;
use crate::pace::Pace;
use crate::run::{self, Run, Timing};
use crate::target::Target;

/// What one thread of a stream sends.
pub trait Requests: Send {
    /// The next request.
    fn next(&mut self) -> Request;

    /// Takes the body of a 2xx answer to the request with that tag and tells how many units it stands for.
    /// An error fails the run.
    fn answered(&mut self, tag: u64, body: &[u8]) -> Result<u64, String>;

    /// Takes any other answer. It fails the run, unless this says that the next request may be sent.
    fn refused(&mut self, tag: u64, status: u16, body: &[u8]) -> Result<(), String> {
        let _ = tag;
        Err(format!("expected a 2xx answer, found {status}: {}", excerpt(body)))
    }

    /// Hears of an answer 429 after which the connection rests ([`Busy::Rests`]); that request is not sent again.
    fn rests(&mut self, tag: u64) {
        let _ = tag;
    }

    /// Hears how long a 2xx answer took, from the intended time in an open loop, before it is given to `answered`.
    fn took(&mut self, tag: u64, latency: Duration) {
        let _ = (tag, latency);
    }
}

/// One request, rendered ([`crate::render`]).
#[derive(Clone, Debug)]
pub struct Request {
    pub bytes: Payload,
    /// Comes back with the answer.
    pub tag: u64,
}

/// What an answer 429 means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// The run fails, as with any status but 2xx.
    Fails,
    /// The connection rests as long as the answer says, at most a second; it is counted. For load that is meant to
    /// reach a limit.
    Rests,
}

type MakeRequests<'a> = dyn Fn(usize) -> Box<dyn Requests + 'a> + 'a;

/// A stream of requests.
pub struct Stream<'a> {
    name: String,
    connections: usize,
    threads: usize,
    pace: Pace,
    busy: Busy,
    nice: i32,
    requests: Box<MakeRequests<'a>>,
}

impl<'a> Stream<'a> {
    /// `requests(thread)` makes what one thread sends. One thread unless told.
    pub fn new(
        name: &str,
        connections: usize,
        pace: Pace,
        requests: impl Fn(usize) -> Box<dyn Requests + 'a> + 'a,
    ) -> Self {
        let requests = Box::new(requests);
        Stream {
            name: name.to_owned(),
            connections: connections.max(1),
            threads: 1,
            pace,
            busy: Busy::Fails,
            nice: 0,
            requests,
        }
    }

    /// Spreads the connections over so many threads, at most one a connection.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.clamp(1, self.connections);
        self
    }

    #[must_use]
    pub fn busy(mut self, busy: Busy) -> Self {
        self.busy = busy;
        self
    }

    /// Lowers the priority of the stream's own threads, so that what they make does not delay other streams' clocks on a
    /// machine with few cores: what is measured is the server.
    #[must_use]
    pub fn nice(mut self, nice: i32) -> Self {
        self.nice = nice;
        self
    }
}

/// Streams that run side by side against one server.
pub struct Load<'a> {
    target: &'a Target,
    timing: Timing,
    interrupt: Option<&'a AtomicBool>,
    streams: Vec<Stream<'a>>,
}

impl<'a> Load<'a> {
    pub fn new(target: &'a Target, timing: Timing) -> Self {
        Load { target, timing, interrupt: None, streams: Vec::new() }
    }

    #[must_use]
    pub fn stream(mut self, stream: Stream<'a>) -> Self {
        self.streams.push(stream);
        self
    }

    /// Ends the run within a moment once this is true. Its figures mean nothing then.
    #[must_use]
    pub fn interrupt(mut self, interrupt: &'a AtomicBool) -> Self {
        self.interrupt = Some(interrupt);
        self
    }

    /// Connects everything, then runs. What went wrong under load is in [`Run::failures`]; an error means that the
    /// load could not start or could not be watched.
    pub fn run(self, name: &str) -> Result<Run> {
        let mut streams = Vec::new();
        for stream in self.streams {
            let mut workers: Vec<run::Worker<'a>> = Vec::new();
            for thread in 0..stream.threads {
                // The first threads take what does not divide evenly.
                let more = usize::from(thread < stream.connections % stream.threads);
                let connections = stream.connections / stream.threads + more;
                let requests = (stream.requests)(thread);
                let driver =
                    drive::Driver::connect(self.target.address(), connections, requests, stream.busy)?;
                let nice = stream.nice;
                workers.push(Box::new(move |context| {
                    if nice > 0 {
                        // Refused where the whole process is nicer already.
                        let _ = rustix::process::setpriority_process(None, nice);
                    }
                    driver.drive(context)
                }));
            }
            let Stream { name, pace, connections, .. } = stream;
            streams.push(run::Stream { name, pace, connections, workers });
        }
        let watched = run::Watching {
            pid: self.target.pid,
            data: self.target.data.as_deref(),
            interrupt: self.interrupt,
        };
        run::conduct(name, self.timing, watched, streams)
    }
}
