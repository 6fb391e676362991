//! When memory that was freed goes back to the machine.
//!
//! The allocator by itself gives all of it back once a second, in whichever thread frees something next. What takes rows in
//! needs it again at once: each page is then cleared and mapped anew, and in a virtual machine that lends its memory for as
//! long as it is used, everything that runs waits for that, a tenth of a second and more. So a process keeps what it freed
//! while it works, and gives it back when it is quiet, in a thread that nobody waits for. One that is never quiet gives it
//! back every [`KEPT_MAX`].

use std::os::raw::c_long;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::threads::Class;
use libmimalloc_sys as mimalloc;
use rustix::time::{ClockId, clock_gettime};
use types::{Error, Result};

/// Memory that nothing needed for so long goes back however much there is to do.
const KEPT_MAX: Duration = Duration::from_secs(600);
/// `mi_option_purge_delay`, which the crate gives no name: milliseconds, -1 for never.
const PURGE_DELAY: mimalloc::mi_option_t = 15;
/// How often it is looked whether the process is quiet.
const EVERY: Duration = Duration::from_secs(5);

/// Keeps what was freed from now on. `MIMALLOC_PURGE_DELAY` in the environment comes before it.
pub fn keep() {
    // SAFETY: an option is a word that is stored; unknown ones are ignored.
    unsafe { mimalloc::mi_option_set_default(PURGE_DELAY, KEPT_MAX.as_millis() as c_long) };
}

/// Gives back what is free.
fn give_back() {
    // SAFETY: it touches no memory that is in use; any thread may call it at any time.
    unsafe { mimalloc::mi_collect(true) };
}

/// Gives memory back whenever the process becomes quiet, until it is dropped.
pub struct Keeper {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub fn start() -> Result<Keeper> {
        let (stop, stopped) = mpsc::channel();
        let thread = Class::Background.spawn("pn-memory", move || {
            let mut quiet = Quiet::new(cpu());
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(EVERY) {
                if quiet.look(cpu()) {
                    give_back();
                    quiet = Quiet::new(cpu());
                }
            }
        });
        let thread =
            thread.map_err(|error| Error::io("starting the thread that gives memory back", error))?;
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

/// Tells from the process's CPU time when it is quiet after it worked.
struct Quiet {
    /// When memory last went back, and at the last look.
    since: Duration,
    last: Duration,
}

impl Quiet {
    /// Between two looks: 4 % of a core.
    const CPU_MAX: Duration = Duration::from_millis(200);
    /// Less work leaves nothing that would be worth it.
    const WORK_MIN: Duration = Duration::from_millis(500);

    fn new(cpu: Duration) -> Quiet {
        Quiet { since: cpu, last: cpu }
    }

    fn look(&mut self, cpu: Duration) -> bool {
        let last = std::mem::replace(&mut self.last, cpu);
        cpu.saturating_sub(last) <= Self::CPU_MAX && cpu.saturating_sub(self.since) >= Self::WORK_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    #[test]
    fn freed_memory_stays_until_it_is_given_back() {
        let _limit = testkit::limit(60);
        const BYTES: usize = 512 << 20;
        let before = resident();
        // Of any other option this would change nothing.
        for (kept, goes) in [(-1, false), (KEPT_MAX.as_millis() as c_long, true)] {
            unsafe { mimalloc::mi_option_set(PURGE_DELAY, kept) };
            let blocks: Vec<Vec<u8>> = (0..BYTES >> 20).map(|_| vec![1; 1 << 20]).collect();
            assert!(blocks.iter().all(|block| block[4096] == 1));
            drop(blocks);
            // Other tests take and free memory meanwhile, less than that.
            assert!(resident() > before + BYTES / 2);
            give_back();
            assert_eq!(resident() < before + BYTES / 2, goes, "purge delay {kept}");
        }
    }

    #[test]
    fn a_process_is_quiet_when_it_stops_working() {
        let ms = Duration::from_millis;
        let mut quiet = Quiet::new(ms(500));
        assert!(!quiet.look(ms(600)), "it did little");
        assert!(!quiet.look(ms(900)), "it works");
        assert!(!quiet.look(ms(3_000)), "it works");
        assert!(quiet.look(ms(3_200)));
        let mut quiet = Quiet::new(ms(3_200));
        assert!(!quiet.look(ms(3_400)) && !quiet.look(ms(3_600)), "little since then");
        assert!(quiet.look(ms(3_800)));
    }
}
