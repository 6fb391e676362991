//! How a storm is run.

use std::time::Duration;

use crate::child;

/// How much is written while the storm lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Force {
    /// As fast as it is acknowledged.
    #[default]
    Full,
    /// Half of what the machine takes in alone, measured before: the load under which the limits are promised.
    Half,
    /// So many events a second.
    Rate(f64),
}

impl Force {
    /// For a report: `full`, `half` or `50000/s`.
    pub fn describe(self) -> String {
        match self {
            Force::Full => "full".into(),
            Force::Half => "half".into(),
            Force::Rate(rate) => format!("{rate}/s"),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    /// The program that is stormed, and where its directory is made.
    pub child: child::Options,
    pub quiet: Duration,
    pub storm: Duration,
    /// How long writers go on before the server is killed.
    pub kill_after: Duration,
    pub force: Force,
    pub size: Size,
    /// Leaves the directory where it is.
    pub keep: bool,
    pub seed: u64,
}

impl Options {
    pub fn new(child: child::Options) -> Options {
        Options {
            child: child::Options { prefix: "polynya-storm-", alone: true, ..child },
            quiet: Duration::from_secs(60),
            storm: Duration::from_secs(60),
            kill_after: Duration::from_secs(1),
            force: Force::Full,
            size: Size::default(),
            keep: false,
            seed: 1,
        }
    }
}

/// How much there is to read, and how often it is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    /// Rows of the table that is read by key and replaced all the time.
    pub readings: u64,
    /// Documents that are searched from the start; more are written during the storm.
    pub articles: u64,
    /// Rows over which a text index is built from nothing, again and again.
    pub archive: u64,
    /// Published pages.
    pub notes: u64,
    /// Events of one request.
    pub batch: usize,
    /// Connections that write events.
    pub writers: usize,
    /// How long the machine's own speed is measured.
    pub calibrate: Duration,
    /// Questions a second of each kind.
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
    /// A part of the whole, for a look or a test.
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

/// Questions a second.
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
