//! Records this machine's metrics each second into two tables, which are the demo's live data.
//!
//! - `polynya.metrics` (`time`, `name`, `device`, `value`, `unit`): one row per figure. A figure of the whole machine has
//!   no device; a figure of one of several devices (`core_busy`, `disk_read`, `net_sent`, `pressure_some`) names it. So
//!   `SELECT time, value FROM polynya.metrics WHERE name = 'cpu_busy'` can be drawn as a line. The rows are narrow, because
//!   machines differ in their devices and a new figure needs no new column.
//! - `polynya.processes` (`time`, `pid`, `name`, `state`, `cpu_percent`, `rss_bytes`, `threads`): the busiest and the
//!   largest processes.
//!
//! All rows of a reading share its `time`. Nothing is made up: a figure that this kernel does not provide has no row, and
//! the first reading has no rates. A reading has at most [`ROWS_PER_READING_MAX`] rows, which are written with `ack=memory`
//! as one commit. Rows are deleted once they are older than the setting `record.keep`.

mod batch;
mod cpu;
mod disk;
mod machine;
mod memory;
mod network;
mod pressure;
mod processes;
mod retention;
mod writer;

pub use machine::Machine;
pub use processes::Process;
pub use writer::Recorder;

/// Rows of one reading, and so of one second, at most. This is half of the limit for all `polynya.*` tables together; the
/// recorded requests have the other half.
pub const ROWS_PER_READING_MAX: usize = 100;

pub const METRICS_TABLE: &str = "polynya.metrics";
pub const PROCESSES_TABLE: &str = "polynya.processes";

/// One figure at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSample {
    pub name: &'static str,
    pub device: Option<String>,
    pub value: f64,
    pub unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Percent,
    Bytes,
    BytesPerSecond,
    PerSecond,
    Count,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Unit::Percent => "%",
            Unit::Bytes => "bytes",
            Unit::BytesPerSecond => "bytes/s",
            Unit::PerSecond => "/s",
            Unit::Count => "count",
        }
    }
}

impl MetricSample {
    fn new(name: &'static str, value: f64, unit: Unit) -> Self {
        MetricSample { name, device: None, value, unit }
    }

    fn of(name: &'static str, device: &str, value: f64, unit: Unit) -> Self {
        MetricSample { name, device: Some(device.to_owned()), value, unit }
    }
}

/// The time between two readings, which turns counters into rates.
struct Interval {
    seconds: f64,
}

impl Interval {
    fn seconds(seconds: f64) -> Self {
        Interval { seconds }
    }

    /// Returns the growth of a counter per second. `None` if the counter is missing or fell, because its device was reset.
    fn rate(&self, before: Option<u64>, now: Option<u64>) -> Option<f64> {
        let grown = now?.checked_sub(before?)?;
        (self.seconds > 0.0).then(|| grown as f64 / self.seconds)
    }
}
