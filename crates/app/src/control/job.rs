//! Long jobs of the control socket, such as a backup. They run in a background thread and report their progress.
//!
//! The answer is lines of JSON: any number of `{"progress": …}`, then one `{"done": …}` or `{"error": …}`. When the
//! command disconnects, the job ends at its next report.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::threads::Class;
use hyper::body::{Body, Frame};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use types::{Error, Kind, Result};

/// The shortest time between two reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// The body of an answer that is sent line by line.
pub struct JobLines(mpsc::Receiver<Bytes>);

impl Body for JobLines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}

/// Reports the progress of a job to its command.
pub struct ProgressSender {
    sender: mpsc::Sender<Bytes>,
    last_sent: Option<Instant>,
}

impl ProgressSender {
    /// Sends the progress, at most once in `PROGRESS_EVERY`. Fails with [`Kind::Closed`] once the command has disconnected,
    /// which ends the job.
    pub fn progress(&mut self, progress: impl FnOnce() -> Value) -> Result<()> {
        if self.last_sent.is_some_and(|last_sent| last_sent.elapsed() < PROGRESS_EVERY) {
            return Ok(());
        }
        self.last_sent = Some(Instant::now());
        let sent = self.sender.blocking_send(line(&json!({ "progress": progress() })));
        sent.map_err(|_| Error::new(Kind::Closed, "the command that asked for it has ended"))
    }
}

/// Starts `work` in a background thread called `name`, and returns the lines of its answer.
pub fn start(
    name: &str,
    work: impl FnOnce(&mut ProgressSender) -> Result<Value> + Send + 'static,
) -> Result<JobLines> {
    let (sender, receiver) = mpsc::channel(16);
    let run = move || {
        let mut sender = ProgressSender { sender, last_sent: None };
        let last = match work(&mut sender) {
            Ok(done) => json!({ "done": done }),
            Err(error) => super::error_json(&error),
        };
        // The send fails if the command has disconnected.
        let _ = sender.sender.blocking_send(line(&last));
    };
    Class::Background.spawn(name, run).map_err(|e| Error::io("starting a thread", e))?;
    Ok(JobLines(receiver))
}

fn line(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}
