//! When memory that was freed goes back to the machine.
//!
//! The allocator by itself gives all of it back once a second, in whichever thread frees something next. What takes rows in
//! needs it again at once: each page is then cleared and mapped anew, and in a virtual machine that lends its memory for as
//! long as it is used, everything that runs waits for that, a tenth of a second and more. So a server keeps what it freed
//! while it works. A thread that nobody waits for gives it back when the process is quiet, and every [`KEPT_MAX`] where it
//! never is. Pages that are free and of which another thread still thinks it will need them stay with that thread.

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

/// How long what was freed is kept however much there is to do.
const KEPT_MAX: Duration = Duration::from_secs(120);
/// How often it is looked whether the process is quiet.
const EVERY: Duration = Duration::from_secs(5);
/// `mi_option_purge_delay`, which the crate gives no name: in milliseconds.
const PURGE_DELAY: mimalloc::mi_option_t = 15;
/// Never by itself, but when it is told to: 23 days.
const NOT_BY_ITSELF: c_long = 2_000_000_000;

/// Keeps what is freed from now on. `MIMALLOC_PURGE_DELAY` in the environment comes before it.
fn keep() {
    // SAFETY: an option is a word that is stored; an unknown one is ignored.
    unsafe { mimalloc::mi_option_set_default(PURGE_DELAY, NOT_BY_ITSELF) };
}

/// Gives back what is free.
fn give_back() {
    // SAFETY: it touches no memory that is in use, and any thread may call it at any time.
    unsafe { mimalloc::mi_collect(true) };
}

/// Keeps what the process frees, and gives it back when nobody waits for it, until it is dropped.
pub struct Keeper {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub fn start() -> Result<Keeper> {
        let (stop, stopped) = mpsc::channel();
        let thread = Class::Background.spawn("pn-memory", move || {
            let mut pace = Pace::new(cpu());
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(EVERY) {
                if pace.look(cpu()) {
                    give_back();
                    pace = Pace::new(cpu());
                }
            }
        });
        let thread =
            thread.map_err(|error| Error::io("starting the thread that gives memory back", error))?;
        keep();
        Ok(Keeper { stop, thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Gone already if the thread ended.
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The CPU time of all threads of the process.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Tells from the process's CPU time, [`EVERY`] so often, when memory goes back.
struct Pace {
    /// CPU time when memory last went back, and at the last look.
    since: Duration,
    last: Duration,
    looks: u32,
}

impl Pace {
    /// Quiet is who takes no more between two looks: 4 % of a core.
    const QUIET_CPU_MAX: Duration = Duration::from_millis(200);
    /// Less work has freed nothing that would be worth it.
    const WORK_MIN: Duration = Duration::from_millis(50);

    fn new(cpu: Duration) -> Pace {
        Pace { since: cpu, last: cpu, looks: 0 }
    }

    fn look(&mut self, cpu: Duration) -> bool {
        let last = std::mem::replace(&mut self.last, cpu);
        self.looks += 1;
        let is_quiet = cpu.saturating_sub(last) <= Self::QUIET_CPU_MAX;
        (is_quiet || EVERY * self.looks >= KEPT_MAX) && cpu.saturating_sub(self.since) >= Self::WORK_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of its own, without what files stand behind.
    #[cfg(target_os = "linux")]
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
    }

    /// Set in the environment of the process that the test runs in: other tests take, free and give back memory, too.
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
        // SAFETY: as in `keep`.
        let set = |delay| unsafe { mimalloc::mi_option_set(PURGE_DELAY, delay) };
        let before = resident();
        let is_here = || resident() > before + BYTES / 2;
        let free = || {
            let blocks: Vec<Vec<u8>> = (0..BYTES >> 20).map(|_| vec![1; 1 << 20]).collect();
            assert!(blocks.iter().all(|block| block[4096] == 1));
        };
        set(NOT_BY_ITSELF);
        free();
        assert!(is_here());
        give_back();
        assert!(!is_here());
        // It is that option and no other.
        set(-1);
        free();
        give_back();
        assert!(is_here());
    }

    #[test]
    fn memory_goes_back_when_a_process_stops_working_and_every_two_minutes() {
        let ms = Duration::from_millis;
        let mut pace = Pace::new(ms(500));
        assert!(!pace.look(ms(520)), "it did nothing");
        assert!(!pace.look(ms(900)), "it works");
        assert!(!pace.look(ms(3_000)), "it works");
        assert!(pace.look(ms(3_200)));
        let mut pace = Pace::new(ms(0));
        assert!((1..24).all(|n| !pace.look(ms(1_000) * n)));
        assert!(pace.look(ms(24_000)));
        // One that sleeps has nothing to give back.
        let mut pace = Pace::new(ms(0));
        assert!((0..1_000).all(|_| !pace.look(ms(0))));
    }
}
