//! State that readers, writers and the checks after the kill share.

use super::Kind;
use super::corpus::{self, Vocabulary};
use super::gauge::Gauges;
use super::ledger::Ledger;
use super::options::{Rates, Size};
use crate::random::Random;

/// Number of frequent words in the searches.
const COMMON: usize = 40;

#[derive(Debug)]
pub(super) struct StormState {
    pub(super) seed: u64,
    pub(super) words: Vocabulary,
    pub(super) events: corpus::Events,
    pub(super) ledger: Ledger,
    pub(super) gauges: Gauges,
    /// Frequent words, each with the number of initial documents that contain it.
    pub(super) common: Vec<(String, u64)>,
    rates: Rates,
}

impl StormState {
    pub(super) fn new(seed: u64, size: &Size) -> StormState {
        let words = Vocabulary::new(seed);
        let mut random = Random::part(seed, 2);
        let common: Vec<String> = (0..COMMON).map(|_| words.draw(&mut random).to_owned()).collect();
        let mut counts = vec![0; COMMON];
        for id in 0..size.articles {
            let document = corpus::document(&words, seed, id);
            let body = document["body"].as_str().unwrap_or_default();
            let has: std::collections::HashSet<&str> = body.split(' ').collect();
            for (word, count) in common.iter().zip(&mut counts) {
                *count += u64::from(has.contains(word.as_str()));
            }
        }
        StormState {
            seed,
            words,
            events: corpus::Events::new(seed, size.batch),
            ledger: Ledger::new(size.readings, size.notes),
            gauges: Gauges::default(),
            common: common.into_iter().zip(counts).collect(),
            rates: size.rates.clone(),
        }
    }

    /// Returns the requests per second of a kind.
    pub(super) fn rate(&self, kind: Kind) -> f64 {
        match kind {
            Kind::Rows => self.rates.rows,
            Kind::Sql => self.rates.sql,
            Kind::Search => self.rates.search,
            Kind::Pages => self.rates.pages,
            Kind::Ask => self.rates.ask,
        }
    }
}
