//! Records requests as rows of `polynya.requests`.
//!
//! A request puts a note into a bounded queue and never waits. Once a second the notes become one batch of at most 200 rows; the
//! others are counted in the column `others` of the last row. The batch is acknowledged from memory, because telemetry is not
//! worth an fsync.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use engine::{Ack, Mode, Op, Transaction};
use tokio::sync::mpsc;
use types::{DataType, Principal, TableDef, TableId};

use crate::app::Shared;
use crate::telemetry::Telemetry;

pub const TABLE: &str = "polynya.requests";
const ROWS_MAX: usize = 200;
const WAITING_MAX: usize = 1_024;

/// One request.
#[derive(Clone, Debug)]
pub struct RequestNote {
    pub time: types::Micros,
    pub method: String,
    pub route: &'static str,
    pub status: u16,
    pub duration: Duration,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub principal: Option<String>,
    pub table: Option<String>,
}

/// The sending end of the queue; `None` if requests are not recorded.
pub struct Recorder(Option<mpsc::Sender<RequestNote>>);

impl Recorder {
    pub fn new(record: bool) -> (Recorder, Option<mpsc::Receiver<RequestNote>>) {
        if !record {
            return (Recorder(None), None);
        }
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Recorder(Some(sender)), Some(receiver))
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns true if the next request shall be recorded. Under load most requests are only counted, and no note is made for
    /// them.
    pub fn has_room(&self, telemetry: &Telemetry) -> bool {
        match &self.0 {
            None => false,
            Some(sender) if sender.capacity() > 0 => true,
            Some(_) => {
                telemetry.recorded_dropped.fetch_add(1, Relaxed);
                false
            }
        }
    }

    /// Queues a note without waiting. If the queue is full the note is dropped and counted.
    pub fn note(&self, note: RequestNote, telemetry: &Telemetry) {
        if let Some(sender) = &self.0
            && sender.try_send(note).is_err()
        {
            telemetry.recorded_dropped.fetch_add(1, Relaxed);
        }
    }
}

/// Writes the notes until the server stops. Sleeps while there are none.
pub async fn run(app: Shared, mut notes: mpsc::Receiver<RequestNote>) {
    let mut stopping = app.stopping.subscribe();
    let mut dropped_before = 0;
    loop {
        let mut batch = Vec::new();
        tokio::select! {
            first = notes.recv() => match first {
                Some(note) => batch.push(note),
                None => return,
            },
            _ = stopping.changed() => return,
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut others = 0;
        while let Ok(note) = notes.try_recv() {
            if batch.len() < ROWS_MAX {
                batch.push(note);
            } else {
                others += 1;
            }
        }
        let dropped = app.telemetry.recorded_dropped.load(Relaxed);
        others += dropped - dropped_before;
        dropped_before = dropped;
        let shared = app.clone();
        let written = app.work.run(move || write(&shared, &batch, others)).await;
        if let Err(error) = written {
            tracing::debug!(%error, "requests were not recorded");
        }
    }
}

fn write(app: &Shared, notes: &[RequestNote], others: u64) {
    let batch = match batch(notes, others) {
        Ok(batch) => batch,
        Err(error) => return tracing::warn!(%error, "requests make no batch"),
    };
    let mut ops = Vec::new();
    if app.engine.root().table(TABLE).is_none() {
        match definition() {
            Ok(def) => ops.push(Op::CreateTable { def, if_absent: true }),
            Err(error) => return tracing::warn!(%error, "polynya.requests could not be defined"),
        }
    }
    ops.push(Op::Insert { table: TABLE.into(), batch, mode: Mode::Append });
    let transaction = Transaction::new(ops).ack(Ack::Memory).internal();
    app.engine.submit(&Principal::local(), transaction, |result| {
        if let Err(error) = result {
            tracing::debug!(%error, "requests were not recorded");
        }
    });
}

fn definition() -> types::Result<TableDef> {
    let mut def = TableDef::new(TableId(0), TABLE);
    for (name, data_type) in [
        ("time", DataType::Timestamp),
        ("method", DataType::String),
        ("route", DataType::String),
        ("status", DataType::Int32),
        ("duration_us", DataType::Int64),
        ("bytes_in", DataType::Int64),
        ("bytes_out", DataType::Int64),
        ("principal", DataType::String),
        ("table", DataType::String),
        ("others", DataType::Int64),
    ] {
        def.add_column(name, &data_type, true, None)?;
    }
    def.options.lake = Some(false);
    def.options.retention = Some(24 * 3_600 * 1_000_000);
    Ok(def)
}

fn batch(notes: &[RequestNote], others: u64) -> types::Result<RecordBatch> {
    let texts = |of: &dyn Fn(&RequestNote) -> Option<String>| -> ArrayRef {
        Arc::new(notes.iter().map(of).collect::<StringArray>())
    };
    let counts = |of: &dyn Fn(&RequestNote) -> u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(notes.iter().map(|n| i64::try_from(of(n)).unwrap_or(i64::MAX))))
    };
    let last = notes.len().saturating_sub(1);
    let rest = (0..notes.len()).map(|i| (i == last && others > 0).then_some(others as i64));
    RecordBatch::try_from_iter_with_nullable([
        (
            "time",
            Arc::new(
                TimestampMicrosecondArray::from_iter_values(notes.iter().map(|n| n.time))
                    .with_timezone("UTC"),
            ) as ArrayRef,
            true,
        ),
        ("method", texts(&|n| Some(n.method.clone())), true),
        ("route", texts(&|n| Some(n.route.to_owned())), true),
        ("status", Arc::new(Int32Array::from_iter_values(notes.iter().map(|n| n.status.into()))), true),
        ("duration_us", counts(&|n| n.duration.as_micros() as u64), true),
        ("bytes_in", counts(&|n| n.bytes_in), true),
        ("bytes_out", counts(&|n| n.bytes_out), true),
        ("principal", texts(&|n| n.principal.clone()), true),
        ("table", texts(&|n| n.table.clone()), true),
        ("others", Arc::new(rest.collect::<Int64Array>()), true),
    ])
    .map_err(|e| types::Error::internal(format!("requests make no batch: {e}")))
}
