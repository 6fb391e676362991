//! The events of the ingest benchmark: a random string of 82 characters and a time in milliseconds each. They are rendered from a
//! seed before the run.

use bytes::Bytes;
use types::{Error, Result};

use crate::http::render;
use crate::random::{Random, WorkHash};
use crate::target::LoadTarget;

/// Characters of an event's string.
pub const TEXT_CHARS: usize = 82;

/// The time of the first event; a constant, since the payload of a seed must never change.
pub const FIRST_MS: u64 = 1_767_225_600_000;

/// Request bodies that the clients send in turn.
#[derive(Clone, Debug)]
pub struct Pool {
    bodies: Vec<Vec<u8>>,
    /// The sum of the events' times after [`FIRST_MS`] of each body, in milliseconds.
    offsets: Vec<u64>,
    batch: usize,
    hash: String,
}

impl Pool {
    /// Renders `batches` bodies of `batch` events each. A batch of one is a JSON object, a larger one an array.
    pub fn new(seed: u64, batches: usize, batch: usize) -> Result<Pool> {
        if batches == 0 || batch == 0 {
            return Err(Error::invalid(format!(
                "expected at least one batch of one event, found {batches} of {batch}"
            )));
        }
        let mut random = Random::new(seed);
        let mut hash = WorkHash::default();
        let mut time = FIRST_MS;
        let mut offsets = Vec::with_capacity(batches);
        let bodies = (0..batches)
            .map(|_| {
                let mut body = Vec::with_capacity(batch * (TEXT_CHARS + 50));
                let mut offset = 0;
                for n in 0..batch {
                    body.extend_from_slice(match (n, batch) {
                        (0, 1) => b"{\"payload\":\"".as_slice(),
                        (0, _) => b"[{\"payload\":\"",
                        _ => b",{\"payload\":\"",
                    });
                    random.text(TEXT_CHARS, &mut body);
                    time += random.below(3);
                    offset += time - FIRST_MS;
                    body.extend_from_slice(format!("\",\"timestamp_ms\":{time}}}").as_bytes());
                }
                if batch > 1 {
                    body.push(b']');
                }
                hash.add(&body);
                offsets.push(offset);
                body
            })
            .collect();
        Ok(Pool { bodies, offsets, batch, hash: hash.finish() })
    }

    /// Events of one body.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Hash of all bodies in order.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    pub fn bodies(&self) -> &[Vec<u8>] {
        &self.bodies
    }

    /// For each body, the sum of its events' milliseconds after [`FIRST_MS`]. A sum over the stored rows is checked against it.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Mean bytes of a body divided by its number of events.
    pub fn bytes_per_event(&self) -> f64 {
        let bytes: usize = self.bodies.iter().map(Vec::len).sum();
        bytes as f64 / (self.bodies.len() * self.batch) as f64
    }

    /// Renders every body as a complete request.
    pub fn requests(&self, target: &LoadTarget, path: &str) -> Vec<Bytes> {
        self.bodies.iter().map(|body| render(target, "POST", path, "application/json", body)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_payload() {
        let hash = |batch| Pool::new(1, 8, batch).expect("valid").hash().to_owned();
        assert_eq!(
            [hash(100), hash(1)],
            ["5830074aeeb35dd51db0a3875244c510", "d815a44948d5b5d389f7e997a0a890d3"]
        );
        assert_ne!(Pool::new(2, 8, 100).expect("valid").hash(), Pool::new(1, 8, 100).expect("valid").hash());
    }

    #[test]
    fn every_body_is_json_of_the_promised_shape() {
        for batch in [1, 3] {
            let pool = Pool::new(9, 4, batch).expect("valid");
            for (body, offset) in pool.bodies().iter().zip(pool.offsets()) {
                let value: serde_json::Value = serde_json::from_slice(body).expect("JSON");
                let events = value.as_array().cloned().unwrap_or_else(|| vec![value]);
                assert_eq!(events.len(), batch);
                let times = events.iter().filter_map(|event| event["timestamp_ms"].as_u64());
                assert_eq!(times.map(|time| time - FIRST_MS).sum::<u64>(), *offset);
                for event in events {
                    assert_eq!(event["payload"].as_str().expect("a string").len(), TEXT_CHARS);
                    assert!(event["timestamp_ms"].as_u64().expect("a number") >= FIRST_MS);
                }
            }
        }
    }

    #[test]
    fn an_empty_batch_is_refused() {
        assert!(Pool::new(1, 1, 0).is_err());
    }
}
