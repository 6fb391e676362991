//! Turns messages into rows: gathers and commits them, and keeps them while no commit is possible.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use engine::dead_letters::{self, DeadLetter};
use engine::{Engine, Mode, Op, Transaction};
use types::{DataType, Error, Kind, Principal, Result, name};

use super::frame::Frame;
use super::message::ParsedMessage;
use super::{Counters, STOP_TIME_MAX, StopRequest};

/// The greatest number of messages in one commit.
const ROWS_MAX: usize = 8_192;
const BYTES_MAX: usize = 4 << 20;
/// The shortest pause between attempts to commit.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The pause before another attempt once the listener is stopping. The last attempt follows it, or several if the
/// failure is brief.
const LAST_PAUSE: Duration = Duration::from_millis(200);

/// The names and types of the columns.
const COLUMNS: [(&str, DataType); 11] = [
    ("time", DataType::Timestamp),
    ("facility", DataType::String),
    ("severity", DataType::Int32),
    ("level", DataType::String),
    ("host", DataType::String),
    ("app", DataType::String),
    ("process", DataType::String),
    ("kind", DataType::String),
    ("message", DataType::String),
    ("data", DataType::Json),
    ("peer", DataType::String),
];

/// Time between warnings about messages that the table refuses.
const WARNING_PAUSE: Duration = Duration::from_secs(10);

pub(super) struct Writer {
    engine: Engine,
    /// The full name of the table.
    table: String,
    waiting: Vec<Message>,
    bytes: usize,
    counters: Arc<Counters>,
    stopping: Arc<StopRequest>,
    /// The time of the last warning about refused messages.
    warned: Option<Instant>,
}

/// A parsed message and its origin.
struct Message {
    parsed: ParsedMessage,
    frame: Frame,
    peer: Option<IpAddr>,
    /// True for a message that the listener made itself.
    is_own: bool,
}

impl Writer {
    /// Makes a writer. [`Kind::Schema`] if the table exists and cannot take such rows.
    pub fn new(
        engine: Engine,
        table: &str,
        counters: Arc<Counters>,
        stopping: Arc<StopRequest>,
    ) -> Result<Writer> {
        let table = name::full_table_name(table)?;
        let waiting = Vec::new();
        let writer = Writer { engine, table, waiting, bytes: 0, counters, stopping, warned: None };
        writer.missing_definitions()?;
        Ok(writer)
    }

    #[cfg(test)]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.waiting.len() >= ROWS_MAX || self.bytes >= BYTES_MAX
    }

    pub fn push(&mut self, frame: Frame, peer: Option<IpAddr>) {
        let parsed = ParsedMessage::parse(&frame.bytes, self.engine.env().clock.now());
        self.bytes += 2 * frame.bytes.len() + 256;
        self.waiting.push(Message { parsed, frame, peer, is_own: false });
    }

    /// Adds the listener's own message about `count` dropped datagrams.
    pub fn push_dropped_notice(&mut self, count: u64) {
        let parsed = ParsedMessage::of_dropped(count, self.engine.env().clock.now());
        let frame = Frame { bytes: parsed.message.clone().into_bytes(), cut: false };
        self.bytes += 2 * frame.bytes.len() + 256;
        self.waiting.push(Message { parsed, frame, peer: None, is_own: true });
    }

    /// Commits the gathered messages. After a failure that may pass it retries until the listener stops, and nothing
    /// more is read meanwhile. Messages that the table refuses go to the dead letters, so that they do not block
    /// others.
    pub fn flush(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        self.bytes = 0;
        if waiting.is_empty() {
            return;
        }
        let pause = self.engine.pace_of(&self.table);
        if !pause.is_zero() && !self.stopping.has_begun() {
            std::thread::sleep(pause);
        }
        // An error here means that the table was changed incompatibly. No single message is at fault, so every error
        // is retried.
        if let Err(error) = self.with_retries(|_| true, || self.missing_definitions().map(drop)) {
            return self.count_lost(waiting.len(), &error);
        }
        let mut refused = Vec::new();
        // The parts still to be committed, the first one at the end. A refused part is halved until single messages
        // are left.
        let mut parts = vec![&waiting[..]];
        while let Some(part) = parts.pop() {
            match self.with_retries(is_transient, || self.commit(part)) {
                Ok(()) => self.count_committed(part),
                Err(error) if is_transient(error.kind()) => self.count_lost(part.len(), &error),
                Err(error) => match part {
                    [] => {}
                    [message] => refused.push((message, error)),
                    _ => {
                        let (first, second) = part.split_at(part.len() / 2);
                        parts.extend([second, first]);
                    }
                },
            }
        }
        self.keep_dead_letters(&refused);
    }

    /// Retries errors that may pass. An error returned here either cannot pass, or is the last one before the listener
    /// stopped.
    fn with_retries(&self, may_pass: impl Fn(Kind) -> bool, commit: impl Fn() -> Result<()>) -> Result<()> {
        let mut pause = PAUSE_MIN;
        let mut is_reported = false;
        loop {
            let is_stopping = self.stopping.has_begun();
            let result = commit();
            let kind = result.as_ref().err().map(Error::kind).filter(|kind| may_pass(*kind));
            self.counters.failing.store(kind.is_some(), Ordering::Relaxed);
            let (Some(kind), Err(error)) = (kind, &result) else {
                if is_reported {
                    tracing::info!("syslog: messages are committed again");
                }
                return result;
            };
            // These are ordinary: writers are paced by `Busy`.
            let is_brief = matches!(kind, Kind::Busy | Kind::Conflict);
            if !is_reported && !is_brief {
                tracing::warn!(%error, "syslog: messages cannot be committed; nothing more is read until they are");
                is_reported = true;
            }
            if is_stopping && (!is_brief || self.stopping.has_lasted(STOP_TIME_MAX)) {
                return result;
            }
            std::thread::sleep(if self.stopping.has_begun() { LAST_PAUSE } else { pause });
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn commit(&self, messages: &[Message]) -> Result<()> {
        if messages.is_empty() {
            return Ok(());
        }
        let mut ops = self.missing_definitions()?;
        let root = self.engine.root();
        let mode = Mode::of_rows(root.table(&self.table).map(|table| table.def().as_ref()));
        drop(root);
        ops.push(Op::Insert { table: self.table.clone(), batch: batch(messages)?, mode });
        self.engine.commit(&Principal::local(), Transaction::new(ops)).map(drop)
    }

    fn count_committed(&self, messages: &[Message]) {
        let add = |counter: &AtomicU64, is: fn(&&Message) -> bool| {
            let sent = messages.iter().filter(|message| !message.is_own);
            counter.fetch_add(sent.filter(is).count() as u64, Ordering::Relaxed);
        };
        add(&self.counters.messages, |_| true);
        add(&self.counters.unparsed, |message| !message.parsed.is_understood);
        add(&self.counters.cut, |message| message.frame.cut);
    }

    /// Puts messages that the table refuses into its dead-letter table, with the reason.
    fn keep_dead_letters(&mut self, refused: &[(&Message, Error)]) {
        let Some((_, first)) = refused.first() else { return };
        let count = refused.len();
        let texts: Vec<_> = refused
            .iter()
            .map(|(message, error)| {
                let of = message.peer.map_or_else(String::new, |peer| format!(", from {peer}"));
                (format!("{}{of}", error.message()), String::from_utf8_lossy(&message.frame.bytes))
            })
            .collect();
        let letters: Vec<DeadLetter<'_>> = texts
            .iter()
            .map(|(reason, raw)| DeadLetter { at_row: None, column: None, reason, raw })
            .collect();
        let kept = self.with_retries(is_transient, || {
            let root = self.engine.root();
            let def = |name: &str| root.table(name).map(|table| table.def().clone());
            let (own, dead) = (def(&self.table), def(&dead_letters::table_of(&self.table)));
            dead_letters::check(&self.table, own.as_deref())?;
            let ops = dead_letters::insert_ops(&self.table, own.as_deref(), dead.as_deref(), &letters)?;
            drop(root);
            self.engine.commit(&Principal::local(), Transaction::new(ops)).map(drop)
        });
        if let Err(error) = kept {
            return self.count_lost(count, &error);
        }
        self.counters.dead_letters.fetch_add(count as u64, Ordering::Relaxed);
        if self.warned.is_none_or(|warned| warned.elapsed() >= WARNING_PAUSE) {
            self.warned = Some(Instant::now());
            let table = dead_letters::table_of(&self.table);
            let table = name::short_table_name(&table);
            tracing::warn!(
                error = %first,
                messages = count,
                "syslog: messages that do not fit are kept in `{table}`"
            );
        }
    }

    fn count_lost(&self, messages: usize, error: &Error) {
        self.counters.lost.fetch_add(messages as u64, Ordering::Relaxed);
        tracing::error!(%error, messages, "syslog: messages were lost");
    }

    /// Returns the operations that make the table or add its missing columns.
    fn missing_definitions(&self) -> Result<Vec<Op>> {
        let root = self.engine.root();
        let found = root.table(&self.table).map(|table| &**table.def());
        engine::ensure_table_ops(found, &self.table, &COLUMNS, "time", "syslog")
    }
}

/// Returns true if a retry may succeed: the failure lies in the machine or in other writers, not in the messages.
fn is_transient(kind: Kind) -> bool {
    match kind {
        Kind::Conflict
        | Kind::Busy
        | Kind::IndexBuilding
        | Kind::Timeout
        | Kind::DiskFull
        | Kind::Latched
        | Kind::Closed
        | Kind::InUse
        | Kind::Damaged
        | Kind::Newer
        | Kind::Io => true,
        Kind::Invalid
        | Kind::Schema
        | Kind::NotFound
        | Kind::Exists
        | Kind::Forbidden
        | Kind::TooLarge
        | Kind::Internal => false,
    }
}

fn batch(messages: &[Message]) -> Result<RecordBatch> {
    let texts = |of: &dyn Fn(&ParsedMessage) -> Option<&str>| -> ArrayRef {
        Arc::new(StringArray::from_iter(messages.iter().map(|message| of(&message.parsed))))
    };
    let times = messages.iter().map(|message| message.parsed.time);
    let severities = messages.iter().map(|message| message.parsed.severity);
    let peers = messages.iter().map(|message| message.peer.map(|peer| peer.to_string()));
    let columns: [ArrayRef; 11] = [
        Arc::new(TimestampMicrosecondArray::from_iter(times).with_timezone("UTC")),
        texts(&|parsed| parsed.facility),
        Arc::new(Int32Array::from_iter(severities)),
        texts(&|parsed| parsed.level),
        texts(&|parsed| parsed.host.as_deref()),
        texts(&|parsed| parsed.app.as_deref()),
        texts(&|parsed| parsed.process.as_deref()),
        texts(&|parsed| parsed.kind.as_deref()),
        texts(&|parsed| Some(&parsed.message)),
        texts(&|parsed| parsed.data.as_deref()),
        Arc::new(StringArray::from_iter(peers)),
    ];
    let named = COLUMNS.iter().zip(columns).map(|((name, _), column)| (*name, column, true));
    RecordBatch::try_from_iter_with_nullable(named)
        .map_err(|e| Error::internal(format!("messages do not form a batch: {e}")))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Messages read while the listener stopped were lost if the table could not keep up.
    #[test]
    fn a_commit_that_is_told_to_wait_is_made_though_the_listener_stops() {
        let _limit = testkit::limit(60);
        let dir = testkit::temp_dir("syslog");
        let path = dir.path().join("data");
        let engine = Engine::open(vfs::Env::real(), &path, engine::Options::default()).unwrap();
        let stopping = Arc::<StopRequest>::default();
        let writer = Writer::new(engine, "syslog", Arc::default(), stopping.clone()).unwrap();
        stopping.begin();
        let tries = |kind: Kind| {
            let left = Cell::new(3);
            let result = writer.with_retries(is_transient, || {
                left.set(left.get() - 1);
                if left.get() == 0 { Ok(()) } else { Err(Error::new(kind, "not now")) }
            });
            (3 - left.get(), result.is_ok())
        };
        assert_eq!(tries(Kind::Busy), (3, true));
        assert_eq!(tries(Kind::DiskFull), (1, false));
    }
}
