//! Pins on data files, held by readers of evicted rows: a pinned file is not removed (G1).
//!
//! Taking and listing pins uses a lock; releasing one does not, since readers do that.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use types::TableId;
use vfs::{Mutex, Rank};

#[derive(Debug)]
pub(crate) struct Pins(Mutex<Vec<Weak<Pin>>>);

/// A pin on data files of a table. None of them is removed while it lives.
#[derive(Debug)]
pub(crate) struct Pin {
    table: TableId,
    files: Vec<PathBuf>,
}

impl Default for Pins {
    fn default() -> Self {
        Pins(Mutex::new(Rank::new(67, "lake pins"), Vec::new()))
    }
}

impl Pins {
    pub fn take(&self, table: TableId, files: Vec<PathBuf>) -> Arc<Pin> {
        let pin = Arc::new(Pin { table, files });
        let mut all = self.0.lock();
        all.retain(|pin| pin.strong_count() > 0);
        all.push(Arc::downgrade(&pin));
        pin
    }

    fn held(&self) -> Vec<Arc<Pin>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns all pinned files.
    pub fn files(&self) -> HashSet<PathBuf> {
        self.held().iter().flat_map(|pin| pin.files.iter().cloned()).collect()
    }

    pub fn is_held(&self, table: TableId) -> bool {
        self.held().iter().any(|pin| pin.table == table)
    }
}
