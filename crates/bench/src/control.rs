//! Runs a control thread, which shows how the machine itself delays a thread that only sleeps.
//!
//! The thread sleeps in steps of one millisecond and records how late each step ended. A stall that the control thread saw too
//! comes from the machine (a neighbour, the hypervisor, too few cores); a stall that it did not see comes from the program.
//!
//! The CPU time of a step is always the same few microseconds. If a step takes a millisecond of CPU time, the core itself was
//! slow or stood still: the memory of a virtual machine arrives late, or its host is busy and does not count that as stolen time.
//! The time that the thread waits for a core is not included.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::latency::{Latency, Summary};
use crate::pace;

const STEP: Duration = Duration::from_millis(1);

/// A running control thread.
pub struct Control {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Steps>,
    before: CpuTime,
    since: Instant,
}

/// The machine's own delays during a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hiccups {
    /// Lateness of the ends of the 1 ms sleeps.
    pub late: Summary,
    /// The CPU time of each step from one sleep to the next.
    #[serde(default)]
    pub work: Summary,
    /// Share of all cores' time that the hypervisor gave to others, 0 to 1.
    pub steal: f64,
    /// Share of all cores' time that any process used, 0 to 1, this benchmark and its server included.
    pub busy: f64,
}

impl Control {
    pub fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new()
            .name("bench-control".into())
            .spawn({
                let stop = stop.clone();
                move || sleep_until_stopped(&stop)
            })
            .expect("a thread for the control measurement");
        Control { stop, thread, before: CpuTime::read(), since: Instant::now() }
    }

    pub fn stop(self) -> Hiccups {
        self.stop.store(true, Ordering::Relaxed);
        let steps = self.thread.join().expect("the control thread only sleeps");
        let after = CpuTime::read();
        let total = (after.total - self.before.total).max(1) as f64;
        // Too short an interval to contain a tick of the clock, so the shares are unknown.
        let share = |ticks: u64| if self.since.elapsed() < STEP * 20 { 0.0 } else { ticks as f64 / total };
        Hiccups {
            late: steps.late.summary(),
            work: steps.work.summary(),
            steal: share(after.steal - self.before.steal),
            busy: share(after.busy - self.before.busy),
        }
    }
}

#[derive(Default)]
struct Steps {
    late: Latency,
    work: Latency,
}

fn sleep_until_stopped(stop: &AtomicBool) -> Steps {
    pace::sleep_precisely();
    let mut steps = Steps::default();
    let mut worked = own_cpu_time();
    while !stop.load(Ordering::Relaxed) {
        let before = Instant::now();
        std::thread::sleep(STEP);
        steps.late.record(before.elapsed().saturating_sub(STEP));
        let now = own_cpu_time();
        steps.work.record(now.saturating_sub(worked));
        worked = now;
    }
    steps
}

fn own_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The machine's CPU time since boot, in ticks.
#[derive(Clone, Copy, Debug, Default)]
struct CpuTime {
    total: u64,
    busy: u64,
    steal: u64,
}

impl CpuTime {
    fn read() -> Self {
        fs::read_to_string("/proc/stat").map(|stat| CpuTime::parse(&stat)).unwrap_or_default()
    }

    /// Parses the first line, `cpu user nice system idle iowait irq softirq steal guest guest_nice`; guest time is part of user
    /// time.
    fn parse(stat: &str) -> Self {
        let fields: Vec<u64> = stat
            .lines()
            .next()
            .unwrap_or_default()
            .split_ascii_whitespace()
            .skip(1)
            .take(8)
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        let at = |index: usize| fields.get(index).copied().unwrap_or(0);
        let total = fields.iter().sum();
        CpuTime { total, busy: total - at(3) - at(4) - at(7), steal: at(7) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_proc_stat_is_read() {
        let time = CpuTime::parse("cpu  10 2 5 100 7 1 3 4 9 9\ncpu0 1 1 1 1\n");
        assert_eq!((time.total, time.busy, time.steal), (132, 21, 4));
        assert_eq!(CpuTime::parse("").total, 0);
    }

    #[test]
    fn the_control_thread_counts_its_steps() {
        let _limit = testkit::limit(30);
        let control = Control::start();
        std::thread::sleep(Duration::from_millis(50));
        let hiccups = control.stop();
        assert!(hiccups.late.count >= 1, "{hiccups:?}");
        assert!(hiccups.late.longest_ms >= hiccups.late.p50_ms);
        assert_eq!(hiccups.work.count, hiccups.late.count);
        // It slept nearly all of the time.
        assert!(hiccups.work.p50_ms > 0.0 && hiccups.work.p50_ms < 0.5, "{hiccups:?}");
    }
}
