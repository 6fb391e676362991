//! Decides when freed memory is returned to the operating system.
//!
//! By default the allocator returns freed memory about once a second, on the thread that happens to free something next.
//! Ingestion needs the memory again at once, and the kernel must clear and map each page anew. On a virtual machine whose
//! host takes unused memory back, this stalls all threads for a tenth of a second and more. A server therefore keeps freed
//! memory while it works. A background thread returns it when the process is quiet, and every [`KEPT_MAX`] if it never is.
//! Free pages in the heap of another thread stay with that thread.

mod limit;
pub mod share;

use std::os::raw::c_long;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::threads::Class;
use libmimalloc_sys as mimalloc;
use rustix::time::{ClockId, clock_gettime};
use types::{Error, Result};

pub use limit::Limit;

/// Longest time that a busy process keeps freed memory.
const KEPT_MAX: Duration = Duration::from_secs(120);
/// Time between two checks of the process's CPU time.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// The allocator's `mi_option_purge_delay`, in milliseconds, for which the crate has no name.
const PURGE_DELAY: mimalloc::mi_option_t = 15;
/// A purge delay of 23 days, with which the allocator returns memory only when it is told to.
const ONLY_ON_DEMAND: c_long = 2_000_000_000;

/// Makes the allocator keep freed memory from now on. `MIMALLOC_PURGE_DELAY` in the environment takes precedence.
fn disable_purge() {
    // SAFETY: the call stores one word, and ignores an unknown option.
    unsafe { mimalloc::mi_option_set_default(PURGE_DELAY, ONLY_ON_DEMAND) };
}

/// Returns free memory to the operating system.
fn purge() {
    // SAFETY: the call touches no memory that is in use, and any thread may make it at any time.
    unsafe { mimalloc::mi_collect(true) };
}

/// Keeps freed memory in the process and returns it when the process is quiet, until it is dropped.
pub struct MemoryKeeper {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryKeeper {
    pub fn start() -> Result<MemoryKeeper> {
        let (stop, stopped) = mpsc::channel();
        let thread = Class::Background.spawn("pn-memory", move || {
            let mut schedule = PurgeSchedule::new(cpu());
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(CHECK_EVERY) {
                if schedule.is_due(cpu()) {
                    purge();
                    schedule = PurgeSchedule::new(cpu());
                }
            }
        });
        let thread =
            thread.map_err(|error| Error::io("starting the thread that gives memory back", error))?;
        disable_purge();
        Ok(MemoryKeeper { stop, thread: Some(thread) })
    }
}

impl Drop for MemoryKeeper {
    fn drop(&mut self) {
        // The send fails if the thread has ended already.
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the CPU time of all threads of the process.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Decides from the process's CPU time, which it is told every [`CHECK_EVERY`], when memory is returned.
struct PurgeSchedule {
    /// CPU time when memory was last returned.
    since: Duration,
    /// CPU time at the last check.
    last: Duration,
    /// Checks since memory was last returned.
    checks: u32,
}

impl PurgeSchedule {
    /// CPU time between two checks up to which the process is quiet: 4 % of a core.
    const QUIET_CPU_MAX: Duration = Duration::from_millis(200);
    /// CPU time since memory was last returned below which there is too little freed memory to return.
    const WORK_MIN: Duration = Duration::from_millis(50);

    fn new(cpu: Duration) -> PurgeSchedule {
        PurgeSchedule { since: cpu, last: cpu, checks: 0 }
    }

    /// Checks the CPU time of the process, and returns true if memory is to be returned now.
    fn is_due(&mut self, cpu: Duration) -> bool {
        let last = std::mem::replace(&mut self.last, cpu);
        self.checks += 1;
        let is_quiet = cpu.saturating_sub(last) <= Self::QUIET_CPU_MAX;
        (is_quiet || CHECK_EVERY * self.checks >= KEPT_MAX)
            && cpu.saturating_sub(self.since) >= Self::WORK_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes of resident memory of the process that no file backs.
    #[cfg(target_os = "linux")]
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
    }

    /// Environment variable that marks the process of this test. It runs in a process of its own, because other tests would
    /// allocate and return memory beside it.
    #[cfg(target_os = "linux")]
    const ALONE: &str = "POLYNYA_TEST_ALONE";

    #[cfg(target_os = "linux")]
    #[test]
    fn freed_memory_stays_until_it_is_given_back() {
        let _limit = testkit::limit(60);
        if std::env::var_os(ALONE).is_none() {
            let test = "memory::tests::freed_memory_stays_until_it_is_given_back";
            let mut process = std::process::Command::new(std::env::current_exe().unwrap());
            let output = process.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
            let printed = String::from_utf8_lossy(&output.stdout);
            let failed = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && printed.contains("1 passed"), "{printed}{failed}");
            return;
        }
        const BYTES: usize = 512 << 20;
        // SAFETY: as in `disable_purge`.
        let set = |delay| unsafe { mimalloc::mi_option_set(PURGE_DELAY, delay) };
        let before = resident();
        let is_resident = || resident() > before + BYTES / 2;
        let free = || {
            let blocks: Vec<Vec<u8>> = (0..BYTES >> 20).map(|_| vec![1; 1 << 20]).collect();
            assert!(blocks.iter().all(|block| block[4096] == 1));
        };
        set(ONLY_ON_DEMAND);
        free();
        assert!(is_resident());
        purge();
        assert!(!is_resident());
        // A delay of -1 forbids to return memory, which proves that the number is that of the purge delay.
        set(-1);
        free();
        purge();
        assert!(is_resident());
    }

    #[test]
    fn memory_goes_back_when_a_process_stops_working_and_every_two_minutes() {
        let ms = Duration::from_millis;
        let mut schedule = PurgeSchedule::new(ms(500));
        assert!(!schedule.is_due(ms(520)), "it did nothing");
        assert!(!schedule.is_due(ms(900)), "it works");
        assert!(!schedule.is_due(ms(3_000)), "it works");
        assert!(schedule.is_due(ms(3_200)));
        let mut schedule = PurgeSchedule::new(ms(0));
        assert!((1..24).all(|n| !schedule.is_due(ms(1_000) * n)));
        assert!(schedule.is_due(ms(24_000)));
        // A process that sleeps has no freed memory to return.
        let mut schedule = PurgeSchedule::new(ms(0));
        assert!((0..1_000).all(|_| !schedule.is_due(ms(0))));
    }
}
