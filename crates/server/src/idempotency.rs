//! `Idempotency-Key`: a request that is sent again gets its first answer. [`engine::idempotency`] stores the keys and ensures
//! that a request is committed once; this module defines the scope of a key.

use engine::{Engine, IdempotentRequest, RecordedRequest};
use http::{HeaderMap, HeaderValue, Method};
use types::{Error, Kind, Micros};
use xxhash_rust::xxh3::Xxh3;

use crate::auth::Admitted;
use crate::failure::{Failure, Result};

const HEADER: &str = "idempotency-key";
/// The header of an answer that was given before.
const REPLAYED: &str = "idempotency-replayed";
const CHARS_MAX: usize = 255;

/// The key of a request, hashed together with the principal and route for which it is valid.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    hash: [u8; 16],
    /// The hashes of earlier versions, which identified a principal by its name, and before that used a table's name as it was
    /// spelled.
    earlier: [Option<[u8; 16]>; 2],
    /// The time at which the client's API key was made. An older answer under an earlier hash belongs to another API key of the
    /// same name.
    since: Micros,
}

impl Key {
    /// Returns the key that a request to one table has, if any. It is valid for this client, `route` and the table of this full
    /// name. The case of the name does not matter, as it does not when the table is looked up.
    pub fn of_table(
        headers: &HeaderMap,
        asker: &Admitted,
        route: &str,
        full_name: &str,
    ) -> Result<Option<Key>> {
        let folded = full_name.to_lowercase();
        let Some(key) = Key::of(headers, asker, &format!("{route} {folded}"))? else { return Ok(None) };
        let as_written = if folded == full_name {
            None
        } else {
            Key::of(headers, asker, &format!("{route} {full_name}"))?.and_then(|key| key.earlier[0])
        };
        Ok(Some(Key { earlier: [key.earlier[0], as_written], ..key }))
    }

    /// Returns the key that a request has, if any. It is valid for this client and `route`: other clients may use the same text,
    /// and an API key of the same name that is made later is another client.
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
        Ok(Some(Key { hash: hash(&asker.identity()), earlier, since: asker.valid_since() }))
    }

    /// Returns the record to store with the request's commit. `request` are the parts that must be equal when it is sent again,
    /// `tables` the full names of the tables that it is for, `note` a part of its answer.
    pub fn remember(
        &self,
        request: &[&[u8]],
        tables: Vec<String>,
        note: Option<String>,
    ) -> IdempotentRequest {
        IdempotentRequest { key: self.hash, request: fingerprint(request), tables, note }
    }

    /// Returns the outcome of the request if it was committed before. Fails if the key was used with a different request.
    pub fn find(&self, engine: &Engine, request: &[&[u8]]) -> Result<Option<RecordedRequest>> {
        let mut known = engine.recorded_request(&self.hash)?;
        for earlier in self.earlier.iter().flatten() {
            known = match known {
                None => engine.recorded_request(earlier)?.filter(|known| known.committed.time >= self.since),
                known => known,
            };
        }
        match known {
            Some(known) if known.request != fingerprint(request) => Err(Failure::key_reused()),
            other => Ok(other),
        }
    }
}

/// Refuses a key on a route that would ignore it. Its sender would believe that the request may safely be sent again.
pub fn refuse_key(headers: &HeaderMap, method: &Method, path: &str) -> Result<()> {
    if headers.contains_key(HEADER) {
        Err(Error::invalid(format!("{method} {path} does not support Idempotency-Key"))
            .hint("POST /v1/tables/{table}/rows, /v1/rows, /v1/transactions (statements, too) and /v1/logs do; leave it out here")
            .into())
    } else {
        Ok(())
    }
}

/// Hashes the parts of a request.
fn fingerprint(request: &[&[u8]]) -> u64 {
    let mut hash = Xxh3::new();
    for part in request {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.digest()
}

/// Returns true if an error means that the request was committed before.
pub fn is_repeated(error: &Error) -> bool {
    error.kind() == Kind::Conflict
        && error.context().iter().any(|(key, _)| *key == engine::idempotency::REPEATED)
}

/// Marks an answer as one that was given before.
pub fn mark_replayed(headers: &mut HeaderMap) {
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
}
