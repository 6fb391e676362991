//! Measures the readers, second by second.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Kind;
use crate::latency::{Latency, Summary};

/// Number of wrong and refused answers that a report shows.
const EXAMPLES_MAX: usize = 10;

/// The measurements of one kind of request.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    second: Mutex<Latency>,
    /// Latencies by the name of the query within the kind.
    questions: Mutex<BTreeMap<&'static str, Latency>>,
    answered: AtomicU64,
    refused: AtomicU64,
    wrong: AtomicU64,
}

/// The figures of one kind of request in one second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KindSecond {
    pub kind: Kind,
    /// Number of answers in this second.
    pub answered: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub longest_ms: f64,
    /// Refused requests since the start.
    pub refused: u64,
    /// Wrong answers since the start.
    pub wrong: u64,
}

impl Gauge {
    pub(super) fn record_latency(&self, question: &'static str, latency: Duration) {
        self.second.lock().unwrap_or_else(PoisonError::into_inner).record(latency);
        let mut questions = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        questions.entry(question).or_default().record(latency);
    }

    /// Takes the latencies of each query since the last call.
    pub(super) fn questions(&self) -> BTreeMap<String, Summary> {
        let questions = std::mem::take(&mut *self.questions.lock().unwrap_or_else(PoisonError::into_inner));
        questions.into_iter().map(|(name, latency)| (name.to_owned(), latency.summary())).collect()
    }

    pub(super) fn answered(&self) {
        self.answered.fetch_add(1, Relaxed);
    }

    /// Returns the numbers of answered, refused and wrong requests since the start.
    pub(super) fn totals(&self) -> [u64; 3] {
        [&self.answered, &self.refused, &self.wrong].map(|counter| counter.load(Relaxed))
    }

    /// Takes the figures since the last call.
    pub(super) fn second(&self, kind: Kind) -> KindSecond {
        let latency = std::mem::take(&mut *self.second.lock().unwrap_or_else(PoisonError::into_inner));
        let summary = latency.summary();
        let [_, refused, wrong] = self.totals();
        KindSecond {
            kind,
            answered: summary.count,
            p50_ms: summary.p50_ms,
            p99_ms: summary.p99_ms,
            longest_ms: summary.longest_ms,
            refused,
            wrong,
        }
    }
}

/// The gauges of all kinds, and examples of wrong answers.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    kinds: [Gauge; Kind::ALL.len()],
    examples: Mutex<Vec<String>>,
}

impl Gauges {
    pub(super) fn gauge(&self, kind: Kind) -> &Gauge {
        &self.kinds[kind as usize]
    }

    pub(super) fn wrong(&self, kind: Kind, why: &str) {
        self.gauge(kind).wrong.fetch_add(1, Relaxed);
        self.example(format!("{kind}: {why}"));
    }

    pub(super) fn refused(&self, kind: Kind, why: &str) {
        self.gauge(kind).refused.fetch_add(1, Relaxed);
        self.example(format!("{kind}, refused: {why}"));
    }

    fn example(&self, text: String) {
        let mut examples = self.examples.lock().unwrap_or_else(PoisonError::into_inner);
        if examples.len() < EXAMPLES_MAX {
            examples.push(text);
        }
    }

    pub(super) fn examples(&self) -> Vec<String> {
        self.examples.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the latencies of each query of each kind since the last call.
    pub(super) fn questions(&self) -> [BTreeMap<String, Summary>; Kind::ALL.len()] {
        self.kinds.each_ref().map(Gauge::questions)
    }

    pub(super) fn second(&self) -> Vec<KindSecond> {
        Kind::ALL.iter().map(|kind| self.gauge(*kind).second(*kind)).collect()
    }
}
