//! Counts the major page faults of threads that answer reads: how often such a thread waited for the disk because a
//! page that it touched was not in memory.
//!
//! A thread is counted from its first [`read_path`](crate::read_path) scope on. The cost for the thread is one check
//! of a flag. The kernel does the counting and is queried only on request. At most [`READERS_MAX`] living threads are
//! counted.

use std::cell::Cell;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};

/// The greatest number of living threads that are counted. Further threads are not counted while so many live.
pub const READERS_MAX: usize = 1024;

const NO_THREAD: i32 = 0;

struct ReaderSlot {
    thread: AtomicI32,
    /// The faults of the thread before its first read.
    before: AtomicU64,
}

static SLOTS: [ReaderSlot; READERS_MAX] =
    [const { ReaderSlot { thread: AtomicI32::new(NO_THREAD), before: AtomicU64::new(0) } }; READERS_MAX];

/// Faults of threads that ended.
static ENDED: AtomicU64 = AtomicU64::new(0);

/// The last reported sum. A thread that ends during the next sum must not make the result fall.
static REPORTED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_READER: Cell<bool> = const { Cell::new(false) };
    static READER: Reader = Reader::enter();
}

/// The registration of a thread in [`SLOTS`]; ends with the thread.
struct Reader(Option<&'static ReaderSlot>);

impl Reader {
    fn enter() -> Reader {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let free =
            |slot: &&ReaderSlot| slot.thread.compare_exchange(NO_THREAD, -thread, SeqCst, SeqCst).is_ok();
        let slot = SLOTS.iter().find(free);
        if let Some(slot) = slot {
            slot.before.store(major_faults_of(thread).unwrap_or(0), SeqCst);
            slot.thread.store(thread, SeqCst);
        }
        Reader(slot)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let Some(slot) = self.0 else { return };
        let thread = slot.thread.load(SeqCst);
        let faults = major_faults_of(thread).unwrap_or(0).saturating_sub(slot.before.load(SeqCst));
        slot.thread.store(NO_THREAD, SeqCst);
        ENDED.fetch_add(faults, SeqCst);
    }
}

/// Counts the faults of the calling thread from now on.
#[inline]
pub(crate) fn register_reader() {
    if !IS_READER.with(|flag| flag.replace(true)) {
        // A thread that is ending can no longer register.
        let _ = READER.try_with(|_| ());
    }
}

/// The number of major faults since the process started, in threads that answer reads. Never falls. Queries the kernel
/// once for each thread, so it must not be called on a read path.
pub fn read_major_faults() -> u64 {
    let living = SLOTS.iter().map(|slot| {
        let thread = slot.thread.load(SeqCst);
        // A thread that is just registering has no faults yet.
        let faults = if thread > 0 { major_faults_of(thread).unwrap_or(0) } else { 0 };
        faults.saturating_sub(slot.before.load(SeqCst))
    });
    let sum = living.sum::<u64>() + ENDED.load(SeqCst);
    REPORTED.fetch_max(sum, SeqCst).max(sum)
}

/// Returns the kernel's fault count of a thread of this process. `None` if there is no such thread or the kernel does
/// not tell.
fn major_faults_of(thread: i32) -> Option<u64> {
    parse(&std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?)
}

/// Parses `majflt`, the 12th field. The second field is a name in parentheses that may hold any character.
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
