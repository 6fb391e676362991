//! Notes on their way from the feed, which parses them to fill the table, to the materializer, which would parse the
//! same bytes again (O1). Nothing depends on what is in here; it may be empty at any time.

use std::collections::HashMap;
use std::sync::Arc;

use vfs::{Mutex, Rank};

use crate::note::Note;

/// Beyond it what comes is not kept: the other end is far behind.
const BYTES_MAX: usize = 64 << 20;

/// By path and content. Each note is taken once.
pub struct Parsed(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    notes: HashMap<(Box<str>, blake3::Hash), (Arc<Note>, usize)>,
    bytes: usize,
}

impl Default for Parsed {
    fn default() -> Self {
        Parsed(Mutex::new(Rank::new(71, "parsed notes"), Kept::default()))
    }
}

impl Parsed {
    pub fn put(&self, note: Arc<Note>, bytes: &[u8]) {
        let key = (note.path().into(), blake3::hash(bytes));
        let mut kept = self.0.lock();
        if kept.bytes + bytes.len() > BYTES_MAX {
            // What nobody fetched by now belongs to versions that were replaced at once.
            kept.notes.clear();
            kept.bytes = 0;
        }
        if kept.notes.insert(key, (note, bytes.len())).is_none() {
            kept.bytes += bytes.len();
        }
    }

    pub(crate) fn take(&self, path: &str, bytes: &[u8]) -> Option<Arc<Note>> {
        let key = (path.into(), blake3::hash(bytes));
        let mut kept = self.0.lock();
        let (note, size) = kept.notes.remove(&key)?;
        kept.bytes -= size;
        Some(note)
    }
}
