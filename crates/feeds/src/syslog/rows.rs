//! Messages become rows: gathered, committed, and held while nothing can be committed.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use engine::{Engine, Mode, Op, Transaction};
use types::{DataType, Error, Kind, Principal, Result, name};

use super::Counters;
use super::frame::Frame;
use super::message::Said;

/// One commit's messages, at most.
const ROWS_MAX: usize = 8_192;
const BYTES_MAX: usize = 4 << 20;
/// Between attempts to commit what could not be committed.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// When the listener stops, what it has is tried once more after this.
const LAST_PAUSE: Duration = Duration::from_millis(200);

/// Names and types of the columns.
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

pub(super) struct Writer {
    engine: Engine,
    /// Full name.
    table: String,
    waiting: Vec<(Said, Option<IpAddr>)>,
    bytes: usize,
    cut: u64,
    counters: Arc<Counters>,
    stopping: Arc<AtomicBool>,
}

impl Writer {
    /// [`Kind::Schema`] if the table exists and cannot take such rows.
    pub fn new(
        engine: Engine,
        table: &str,
        counters: Arc<Counters>,
        stopping: Arc<AtomicBool>,
    ) -> Result<Writer> {
        let table = name::full_table_name(table)?;
        let writer = Writer { engine, table, waiting: Vec::new(), bytes: 0, cut: 0, counters, stopping };
        writer.definitions()?;
        Ok(writer)
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.waiting.len() >= ROWS_MAX || self.bytes >= BYTES_MAX
    }

    pub fn take(&mut self, frame: &Frame, peer: Option<IpAddr>) {
        let said = Said::parse(&frame.bytes, self.engine.env().clock.now());
        self.bytes += frame.bytes.len() + 256;
        self.cut += u64::from(frame.cut);
        self.waiting.push((said, peer));
    }

    /// Commits what is there. Where that fails it is tried again until the listener stops: nothing more is read meanwhile.
    pub fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let mut pause = PAUSE_MIN;
        let mut told = false;
        loop {
            let last = self.stopping.load(Ordering::Acquire);
            match self.commit() {
                Ok(()) => {
                    self.counters.failing.store(false, Ordering::Relaxed);
                    if told {
                        tracing::info!("syslog: messages are committed again");
                    }
                    break;
                }
                Err(error) => {
                    self.counters.failing.store(true, Ordering::Relaxed);
                    // Busy is how writers are paced.
                    if !told && error.kind() != Kind::Busy && error.kind() != Kind::Conflict {
                        tracing::warn!(
                            %error,
                            "syslog: messages cannot be committed; nothing more is read until they are"
                        );
                        told = true;
                    }
                    if last {
                        self.counters.lost.fetch_add(self.waiting.len() as u64, Ordering::Relaxed);
                        tracing::error!(%error, messages = self.waiting.len(), "syslog: messages were lost");
                        break;
                    }
                }
            }
            let wait = if self.stopping.load(Ordering::Acquire) { LAST_PAUSE } else { pause };
            std::thread::sleep(wait);
            pause = (pause * 2).min(PAUSE_MAX);
        }
        self.waiting.clear();
        (self.bytes, self.cut) = (0, 0);
    }

    fn commit(&self) -> Result<()> {
        let pause = self.engine.pace_of(&self.table);
        if !pause.is_zero() && !self.stopping.load(Ordering::Acquire) {
            std::thread::sleep(pause);
        }
        let mut ops = self.definitions()?;
        ops.push(Op::Insert { table: self.table.clone(), batch: self.batch()?, mode: Mode::Append });
        self.engine.commit(&Principal::local(), Transaction::new(ops))?;
        let unparsed = self.waiting.iter().filter(|(said, _)| !said.is_understood()).count();
        self.counters.messages.fetch_add(self.waiting.len() as u64, Ordering::Relaxed);
        self.counters.unparsed.fetch_add(unparsed as u64, Ordering::Relaxed);
        self.counters.cut.fetch_add(self.cut, Ordering::Relaxed);
        Ok(())
    }

    /// What the table lacks to take such rows.
    fn definitions(&self) -> Result<Vec<Op>> {
        engine::lacking(&self.engine.root(), &self.table, &COLUMNS, "time", "syslog")
    }

    fn batch(&self) -> Result<RecordBatch> {
        let texts = |of: &dyn Fn(&Said) -> Option<&str>| -> ArrayRef {
            Arc::new(StringArray::from_iter(self.waiting.iter().map(|(said, _)| of(said))))
        };
        let times = self.waiting.iter().map(|(said, _)| said.time);
        let severities = self.waiting.iter().map(|(said, _)| said.severity);
        let peers = self.waiting.iter().map(|(_, peer)| peer.map(|peer| peer.to_string()));
        let columns: [ArrayRef; 11] = [
            Arc::new(TimestampMicrosecondArray::from_iter(times).with_timezone("UTC")),
            texts(&|said| said.facility),
            Arc::new(Int32Array::from_iter(severities)),
            texts(&|said| said.level),
            texts(&|said| said.host.as_deref()),
            texts(&|said| said.app.as_deref()),
            texts(&|said| said.process.as_deref()),
            texts(&|said| said.kind.as_deref()),
            texts(&|said| Some(&said.message)),
            texts(&|said| said.data.as_deref()),
            Arc::new(StringArray::from_iter(peers)),
        ];
        let named = COLUMNS.iter().zip(columns).map(|((name, _), column)| (*name, column, true));
        RecordBatch::try_from_iter_with_nullable(named)
            .map_err(|e| Error::internal(format!("messages make no batch: {e}")))
    }
}
