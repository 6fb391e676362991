//! Pins on data files, held by readers of evicted rows: a pinned file is not removed (G1).
//!
//! Taking and listing pins uses a lock; releasing one does not, since readers do that.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use types::TableId;
use vfs::{Mutex, Rank};

#[derive(Debug)]
pub(crate) struct FilePins(Mutex<Vec<Weak<FilePin>>>);

/// A pin on data files of a table. None of them is removed while it lives.
#[derive(Debug)]
pub(crate) struct FilePin {
    table: TableId,
    files: Vec<PathBuf>,
}

impl Default for FilePins {
    fn default() -> Self {
        FilePins(Mutex::new(Rank::new(67, "lake pins"), Vec::new()))
    }
}

impl FilePins {
    pub fn pin(&self, table: TableId, files: Vec<PathBuf>) -> Arc<FilePin> {
        let pin = Arc::new(FilePin { table, files });
        let mut all = self.0.lock();
        all.retain(|pin| pin.strong_count() > 0);
        all.push(Arc::downgrade(&pin));
        pin
    }

    fn live_pins(&self) -> Vec<Arc<FilePin>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns all pinned files.
    pub fn pinned_files(&self) -> HashSet<PathBuf> {
        self.live_pins().iter().flat_map(|pin| pin.files.iter().cloned()).collect()
    }

    pub fn is_held(&self, table: TableId) -> bool {
        self.live_pins().iter().any(|pin| pin.table == table)
    }
}
