//! Major faults of threads that answer reads: how often one of them waited for the disk because memory that it touched
//! was not there.
//!
//! A thread counts from its first [`read_path`](crate::read_path) scope on. What it costs is one look at a flag; the
//! kernel counts, and is asked only when somebody wants to know. At most [`READERS_MAX`] living threads are counted.

use std::cell::Cell;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};

/// Threads beyond them are not counted while so many live.
pub const READERS_MAX: usize = 1024;

const NOBODY: i32 = 0;

struct Slot {
    thread: AtomicI32,
    /// Faults of the thread before it read.
    before: AtomicU64,
}

static SLOTS: [Slot; READERS_MAX] =
    [const { Slot { thread: AtomicI32::new(NOBODY), before: AtomicU64::new(0) } }; READERS_MAX];

/// Of threads that ended.
static ENDED: AtomicU64 = AtomicU64::new(0);

/// What was said last: a thread that ends meanwhile must not make the sum fall.
static SAID: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_READER: Cell<bool> = const { Cell::new(false) };
    static READER: Reader = Reader::enter();
}

/// A thread's stay in the list.
struct Reader(Option<&'static Slot>);

impl Reader {
    fn enter() -> Reader {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let free = |slot: &&Slot| slot.thread.compare_exchange(NOBODY, -thread, SeqCst, SeqCst).is_ok();
        let slot = SLOTS.iter().find(free);
        if let Some(slot) = slot {
            slot.before.store(of(thread).unwrap_or(0), SeqCst);
            slot.thread.store(thread, SeqCst);
        }
        Reader(slot)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let Some(slot) = self.0 else { return };
        let thread = slot.thread.load(SeqCst);
        let faults = of(thread).unwrap_or(0).saturating_sub(slot.before.load(SeqCst));
        slot.thread.store(NOBODY, SeqCst);
        ENDED.fetch_add(faults, SeqCst);
    }
}

/// The calling thread reads: it counts from now on.
#[inline]
pub(crate) fn reads() {
    if !IS_READER.with(|flag| flag.replace(true)) {
        // A thread that is ending has no list to enter any more.
        let _ = READER.try_with(|_| ());
    }
}

/// Major faults since the start of threads that answer reads. Never falls. Asks the kernel about each of them: not for a
/// read path.
pub fn read_major_faults() -> u64 {
    let living = SLOTS.iter().map(|slot| {
        let thread = slot.thread.load(SeqCst);
        // One that is just entering has none yet.
        let faults = if thread > 0 { of(thread).unwrap_or(0) } else { 0 };
        faults.saturating_sub(slot.before.load(SeqCst))
    });
    let sum = living.sum::<u64>() + ENDED.load(SeqCst);
    SAID.fetch_max(sum, SeqCst).max(sum)
}

/// The kernel's count of a thread of this process. `None` if it does not tell, or there is no such thread.
fn of(thread: i32) -> Option<u64> {
    parse(&std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?)
}

/// `majflt`, the 12th field. The second one, a name in parentheses, may hold anything.
fn parse(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(9)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_count_is_found_behind_any_name() {
        let stat = "17 (a) b) (c) S 1 17 17 0 -1 4194304 100 5 42 6 250 50 3 4 20 0 9 0 1234 1 2";
        assert_eq!(parse(stat), Some(42));
        assert_eq!(parse(""), None);
    }
}
