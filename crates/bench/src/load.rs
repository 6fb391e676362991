//! Load over HTTP: streams of requests at a pace, each stream on its own threads and connections.
//!
//! A thread drives its connections through one `epoll`; a request is rendered before the run or by its [`Requests`],
//! an answer costs one `read` and a look at its head, so that 500 connections leave the cores to the server.

mod connection;
mod drive;

use bytes::Bytes;
use types::Result;

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
}

/// One request, rendered ([`crate::render`]).
#[derive(Clone, Debug)]
pub struct Request {
    pub bytes: Bytes,
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
}

/// Streams that run side by side against one server.
pub struct Load<'a> {
    target: &'a Target,
    timing: Timing,
    streams: Vec<Stream<'a>>,
}

impl<'a> Load<'a> {
    pub fn new(target: &'a Target, timing: Timing) -> Self {
        Load { target, timing, streams: Vec::new() }
    }

    #[must_use]
    pub fn stream(mut self, stream: Stream<'a>) -> Self {
        self.streams.push(stream);
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
                workers.push(Box::new(move |context| driver.drive(context)));
            }
            let Stream { name, pace, connections, .. } = stream;
            streams.push(run::Stream { name, pace, connections, workers });
        }
        run::conduct(name, self.timing, self.target.pid, self.target.data.as_deref(), streams)
    }
}
