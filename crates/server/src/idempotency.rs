//! `Idempotency-Key`: a request that is sent again is answered as it was the first time. What is remembered, and how exactly
//! once comes about, is the engine's ([`engine::remember`]); here is what a key means.

use engine::{Engine, Remember, Remembered};
use http::{HeaderMap, HeaderValue, Method};
use types::{Error, Kind, Micros};
use xxhash_rust::xxh3::Xxh3;

use crate::auth::Admitted;
use crate::failure::{Failure, Result};

const HEADER: &str = "idempotency-key";
/// On an answer that was given before.
const REPLAYED: &str = "idempotency-replayed";
const CHARS_MAX: usize = 255;

/// A request's key, within what it holds for.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    hash: [u8; 16],
    /// Those of earlier versions, which knew a principal by its name, and before that took a table's name as it was written.
    earlier: [Option<[u8; 16]>; 2],
    /// What was answered under one of those before this time was answered to another key of the same name.
    since: Micros,
}

impl Key {
    /// The key that a request to one table names, if any. It holds for who asks, `route` and the table of this full name, in
    /// whatever case it is written, as the table is found.
    pub fn of_table(
        headers: &HeaderMap,
        asker: &Admitted,
        route: &str,
        full_name: &str,
    ) -> Result<Option<Key>> {
        let folded = full_name.to_lowercase();
        let Some(key) = Key::of(headers, asker, &format!("{route} {folded}"))? else { return Ok(None) };
        let as_written = match folded == full_name {
            true => None,
            false => Key::of(headers, asker, &format!("{route} {full_name}"))?.and_then(|key| key.earlier[0]),
        };
        Ok(Some(Key { earlier: [key.earlier[0], as_written], ..key }))
    }

    /// The key that a request names, if any. It holds for who asks and `route`: others may use the same, and a key of the same
    /// name that is made later is another one.
    pub fn of(headers: &HeaderMap, asker: &Admitted, route: &str) -> Result<Option<Key>> {
        let mut values = headers.get_all(HEADER).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let is_plain = |b: &u8| matches!(b, 0x20..=0x7e);
        let fits = (1..=CHARS_MAX).contains(&value.len()) && value.as_bytes().iter().all(is_plain);
        if values.next().is_some() || !fits {
            return Err(Error::invalid(format!(
                "Idempotency-Key is one text of 1 to {CHARS_MAX} printable ASCII characters"
            ))
            .hint("a new UUID for each request, and the same one when it is sent again")
            .into());
        }
        let hash = |who: &[u8]| {
            let mut hash = blake3::Hasher::new();
            for part in [who, route.as_bytes(), value.as_bytes()] {
                hash.update(&(part.len() as u64).to_le_bytes());
                hash.update(part);
            }
            let mut key = [0; 16];
            key.copy_from_slice(&hash.finalize().as_bytes()[..16]);
            key
        };
        let earlier = [Some(hash(asker.principal.name.as_bytes())), None];
        Ok(Some(Key { hash: hash(&asker.identity()), earlier, since: asker.since() }))
    }

    /// What is to be remembered of the request that has these parts and is for these tables, by their full names. `note` belongs
    /// to its answer.
    pub fn remember(&self, request: &[&[u8]], tables: Vec<String>, note: Option<String>) -> Remember {
        Remember { key: self.hash, request: fingerprint(request), tables, note }
    }

    /// What became of the request when it came before. Refused if that was another one.
    pub fn find(&self, engine: &Engine, request: &[&[u8]]) -> Result<Option<Remembered>> {
        let mut known = engine.remembered(&self.hash)?;
        for earlier in self.earlier.iter().flatten() {
            known = match known {
                None => engine.remembered(earlier)?.filter(|known| known.committed.time >= self.since),
                known => known,
            };
        }
        match known {
            Some(known) if known.request != fingerprint(request) => Err(Failure::key_reused()),
            other => Ok(other),
        }
    }
}

/// Refuses a key where it would be ignored: its sender would believe that the request may be sent again.
pub fn none(headers: &HeaderMap, method: &Method, path: &str) -> Result<()> {
    match headers.contains_key(HEADER) {
        false => Ok(()),
        true => Err(Error::invalid(format!("{method} {path} keeps no Idempotency-Key"))
            .hint("POST /v1/tables/{table}/rows, /v1/rows, /v1/transactions (statements, too) and /v1/logs do; leave it out here")
            .into()),
    }
}

fn fingerprint(request: &[&[u8]]) -> u64 {
    let mut hash = Xxh3::new();
    for part in request {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.digest()
}

/// Whether an error says that the request was committed before.
pub fn is_repeated(error: &Error) -> bool {
    error.kind() == Kind::Conflict
        && error.context().iter().any(|(key, _)| *key == engine::remember::REPEATED)
}

/// Marks an answer that was given before.
pub fn replayed(headers: &mut HeaderMap) {
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
}
