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
const TELL_EVERY: Duration = Duration::from_millis(100);

/// The body of an answer that is sent line by line.
pub struct Lines(mpsc::Receiver<Bytes>);

impl Body for Lines {
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
pub struct Teller {
    sender: mpsc::Sender<Bytes>,
    told: Option<Instant>,
}

impl Teller {
    /// Sends the progress, at most once in `TELL_EVERY`. Fails with [`Kind::Closed`] once the command has disconnected,
    /// which ends the job.
    pub fn progress(&mut self, progress: impl FnOnce() -> Value) -> Result<()> {
        if self.told.is_some_and(|told| told.elapsed() < TELL_EVERY) {
            return Ok(());
        }
        self.told = Some(Instant::now());
        let sent = self.sender.blocking_send(line(&json!({ "progress": progress() })));
        sent.map_err(|_| Error::new(Kind::Closed, "the command that asked for it has ended"))
    }
}

/// Starts `work` in a background thread called `name`, and returns the lines of its answer.
pub fn start(name: &str, work: impl FnOnce(&mut Teller) -> Result<Value> + Send + 'static) -> Result<Lines> {
    let (sender, receiver) = mpsc::channel(16);
    let run = move || {
        let mut teller = Teller { sender, told: None };
        let last = match work(&mut teller) {
            Ok(done) => json!({ "done": done }),
            Err(error) => super::told(&error),
        };
        // The send fails if the command has disconnected.
        let _ = teller.sender.blocking_send(line(&last));
    };
    Class::Background.spawn(name, run).map_err(|e| Error::io("starting a thread", e))?;
    Ok(Lines(receiver))
}

fn line(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}
