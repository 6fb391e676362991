//! Options of a storm.

use std::time::Duration;

use crate::child;

/// The rate of events during the storm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum EventRate {
    /// Full speed: each connection sends as soon as its last request is acknowledged.
    #[default]
    Full,
    /// Half of the throughput of the idle machine, which is measured first. The promised limits hold under this load.
    Half,
    /// A fixed number of events per second.
    PerSecond(f64),
}

impl EventRate {
    /// Renders the rate for a report: `full`, `half` or `50000/s`.
    pub fn describe(self) -> String {
        match self {
            EventRate::Full => "full".into(),
            EventRate::Half => "half".into(),
            EventRate::PerSecond(rate) => format!("{rate}/s"),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    /// The server's program, and the parent of its directory.
    pub child: child::Options,
    pub quiet: Duration,
    pub storm: Duration,
    /// Time that writers continue before the server is killed.
    pub kill_after: Duration,
    pub event_rate: EventRate,
    pub size: Size,
    /// Leaves the directory in place.
    pub keep: bool,
    pub seed: u64,
}

impl Options {
    pub fn new(child: child::Options) -> Options {
        Options {
            child: child::Options { prefix: "polynya-storm-", isolated: true, ..child },
            quiet: Duration::from_secs(60),
            storm: Duration::from_secs(60),
            kill_after: Duration::from_secs(1),
            event_rate: EventRate::Full,
            size: Size::default(),
            keep: false,
            seed: 1,
        }
    }
}

/// The amount of data, and the rates of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    /// Rows of the table that is read by key and replaced all the time.
    pub readings: u64,
    /// Documents that are searched from the start; the storm adds more.
    pub articles: u64,
    /// Rows over which a text index is rebuilt from nothing, again and again.
    pub archive: u64,
    /// Published pages.
    pub notes: u64,
    /// Events per request.
    pub batch: usize,
    /// Number of connections that write events.
    pub writers: usize,
    /// Time for which the throughput of the idle machine is measured.
    pub calibrate: Duration,
    /// Requests per second of each kind.
    pub rates: Rates,
}

impl Default for Size {
    fn default() -> Self {
        Size {
            readings: 10_000,
            articles: 5_000,
            archive: 100_000,
            notes: 500,
            batch: 500,
            writers: 4,
            calibrate: Duration::from_secs(3),
            rates: Rates::default(),
        }
    }
}

impl Size {
    /// Returns a fraction of the size, for a quick look or a test.
    #[must_use]
    pub fn scaled(&self, scale: f64) -> Size {
        let part = |whole: u64, least: u64| ((whole as f64 * scale) as u64).max(least.min(whole));
        let rate = |whole: f64| whole * scale.clamp(0.1, 1.0);
        Size {
            readings: part(self.readings, 100),
            articles: part(self.articles, 100),
            archive: part(self.archive, 500),
            notes: part(self.notes, 10),
            batch: part(self.batch as u64, 50) as usize,
            writers: self.writers,
            calibrate: self.calibrate.mul_f64(scale.clamp(0.1, 1.0)),
            rates: Rates {
                rows: rate(self.rates.rows),
                sql: rate(self.rates.sql),
                search: rate(self.rates.search),
                pages: rate(self.rates.pages),
                ask: rate(self.rates.ask).max(2.0),
            },
        }
    }
}

/// Requests per second of each kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    pub rows: f64,
    pub sql: f64,
    pub search: f64,
    pub pages: f64,
    pub ask: f64,
}

impl Default for Rates {
    fn default() -> Self {
        Rates { rows: 200.0, sql: 40.0, search: 50.0, pages: 200.0, ask: 10.0 }
    }
}
