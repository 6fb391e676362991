//! The reaper: drops roots that were replaced, so that no reader pays for freeing what others wrote.
//!
//! A published root that gives way to a newer one is handed over here and kept until nobody else holds it. One thread
//! a process. It sleeps while there is nothing to drop.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use vfs::{Condvar, Mutex, Rank};

use crate::root::Root;
use crate::threads::Class;

/// How often held roots are looked at again.
const ROUND: Duration = Duration::from_millis(10);

struct Reaper {
    retired: Mutex<Vec<Arc<Root>>>,
    arrived: Condvar,
}

fn reaper() -> &'static Reaper {
    static REAPER: OnceLock<Reaper> = OnceLock::new();
    static THREAD: OnceLock<()> = OnceLock::new();
    let reaper = REAPER.get_or_init(|| Reaper {
        retired: Mutex::new(Rank::new(60, "engine reaper"), Vec::new()),
        arrived: Condvar::new(),
    });
    THREAD.get_or_init(|| {
        // Without a thread (a process at its limit) roots are dropped by `retire` itself.
        let _ = Class::Interactive.spawn("pn-reaper", run);
    });
    reaper
}

/// Takes a root that readers may still hold.
pub(crate) fn retire(root: Arc<Root>) {
    let reaper = reaper();
    let mut retired = reaper.retired.lock();
    retired.push(root);
    let wake = retired.len() == 1;
    drop(retired);
    if wake {
        reaper.arrived.notify_one();
    }
}

/// How many retired roots are held by somebody, and when the oldest was made, on its engine's clock.
pub(crate) fn held() -> (usize, Option<Duration>) {
    let retired = reaper().retired.lock();
    (retired.len(), retired.iter().map(|root| root.made).min())
}

fn run() {
    let reaper = reaper();
    loop {
        let mut retired = reaper.retired.lock();
        while retired.is_empty() {
            reaper.arrived.wait(&mut retired);
        }
        let roots = std::mem::take(&mut *retired);
        drop(retired);
        // Freed outside the lock, oldest first.
        let held: Vec<Arc<Root>> = roots.into_iter().filter(|root| Arc::strong_count(root) > 1).collect();
        let mut retired = reaper.retired.lock();
        let arrived = std::mem::replace(&mut *retired, held);
        retired.extend(arrived);
        // Readers do not report that they let go: this is the pace of looking again.
        reaper.arrived.wait_for(&mut retired, ROUND);
    }
}
