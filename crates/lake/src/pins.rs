//! Which data files readers hold: those of positions that evicted rows are read at (G1).
//!
//! Taking a pin and asking for them takes a lock; letting go of one does not, since readers do that.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use types::TableId;
use vfs::{Mutex, Rank};

#[derive(Debug)]
pub(crate) struct Pins(Mutex<Vec<Weak<Pin>>>);

/// As long as it lives none of its files is removed.
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

    /// All files that are held.
    pub fn files(&self) -> HashSet<PathBuf> {
        self.held().iter().flat_map(|pin| pin.files.iter().cloned()).collect()
    }

    pub fn is_held(&self, table: TableId) -> bool {
        self.held().iter().any(|pin| pin.table == table)
    }
}
