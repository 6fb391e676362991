//! A cache of parsed notes. The feed parses a note to fill the table and leaves it here; the materializer takes it
//! instead of parsing the same bytes again (O1). The cache is only an optimization: it may be empty at any time.

use std::collections::HashMap;
use std::sync::Arc;

use vfs::{Mutex, Rank};

use crate::note::Note;

/// Bytes of note sources at which the cache is emptied: the materializer is then far behind.
const BYTES_MAX: usize = 64 << 20;

/// Parsed notes by path and hash of their content. Each note is taken out at most once.
pub struct ParsedNotes(Mutex<CachedNotes>);

#[derive(Default)]
struct CachedNotes {
    notes: HashMap<(Box<str>, blake3::Hash), (Arc<Note>, usize)>,
    bytes: usize,
}

impl Default for ParsedNotes {
    fn default() -> Self {
        ParsedNotes(Mutex::new(Rank::new(71, "parsed notes"), CachedNotes::default()))
    }
}

impl ParsedNotes {
    pub fn put(&self, note: Arc<Note>, bytes: &[u8]) {
        let key = (note.path().into(), blake3::hash(bytes));
        let mut cached = self.0.lock();
        if cached.bytes + bytes.len() > BYTES_MAX {
            // Notes that were not taken by now are mostly versions that were replaced at once.
            cached.notes.clear();
            cached.bytes = 0;
        }
        if cached.notes.insert(key, (note, bytes.len())).is_none() {
            cached.bytes += bytes.len();
        }
    }

    pub(crate) fn take(&self, path: &str, bytes: &[u8]) -> Option<Arc<Note>> {
        let key = (path.into(), blake3::hash(bytes));
        let mut cached = self.0.lock();
        let (note, size) = cached.notes.remove(&key)?;
        cached.bytes -= size;
        Some(note)
    }
}
