//! Schedules the starts of operations.

use std::time::{Duration, Instant};

/// The rule by which operations follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// A fixed rate, independent of the answers. Latency counts from the intended time, so it includes the wait for a free
    /// connection and the delay of a late thread.
    Open { per_second: f64 },
    /// The next operation starts as soon as the last one is answered, which finds the highest throughput. Latency counts from the
    /// start of the operation, so a stall is charged only to the operations in flight. The tail of such latencies looks better
    /// than it is.
    Closed,
}

impl Pace {
    /// Renders the pace for a report: `1000/s` or `closed loop`.
    pub fn describe(self) -> String {
        match self {
            Pace::Open { per_second } => format!("{per_second}/s"),
            Pace::Closed => "closed loop".into(),
        }
    }
}

/// The next step of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Start an operation, which was intended for this time.
    Now(Instant),
    /// Start no operation before this time.
    At(Instant),
    /// All operations up to the end of the measurement have been started.
    Never,
}

/// One thread's share of a pace: it starts operation `index` of every `of` operations.
#[derive(Debug)]
pub struct Schedule {
    pace: Pace,
    start: Instant,
    end: Instant,
    next: u64,
    step: u64,
}

impl Schedule {
    pub fn new(pace: Pace, start: Instant, end: Instant, index: usize, of: usize) -> Self {
        assert!(index < of, "thread {index} of {of}");
        if let Pace::Open { per_second } = pace {
            assert!(per_second.is_finite() && per_second > 0.0, "an open loop needs a rate above zero");
        }
        Schedule { pace, start, end, next: index as u64, step: of as u64 }
    }

    /// Takes the next operation if it is due. Operation `n` of the whole pace is intended at `start + n / rate`, computed from
    /// `n` each time so that rounding errors do not add up.
    pub fn due(&mut self, now: Instant) -> Due {
        match self.pace {
            Pace::Closed if now >= self.end => Due::Never,
            Pace::Closed if now < self.start => Due::At(self.start),
            Pace::Closed => Due::Now(now),
            Pace::Open { per_second } => {
                let intended = self.start + Duration::from_secs_f64(self.next as f64 / per_second);
                if intended >= self.end {
                    Due::Never
                } else if intended <= now {
                    self.next += self.step;
                    Due::Now(intended)
                } else {
                    Due::At(intended)
                }
            }
        }
    }
}

/// Lets this thread sleep as precisely as the kernel can: by default Linux may add 50 µs to every timed wait.
pub fn sleep_precisely() {
    // Some sandboxes refuse the call. The sleeps are then up to 50 µs less precise, which the control thread shows.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_loop_keeps_its_intended_times_however_late_it_is_asked() {
        let start = Instant::now();
        let end = start + Duration::from_secs(1);
        let mut schedule = Schedule::new(Pace::Open { per_second: 1000.0 }, start, end, 0, 1);
        let late = start + Duration::from_millis(500);
        for n in 0..=500 {
            let Due::Now(intended) = schedule.due(late) else { panic!("operation {n} was due") };
            let off = intended - start;
            assert!(off.abs_diff(Duration::from_millis(n)) < Duration::from_micros(1), "{n}: {off:?}");
        }
        let Due::At(next) = schedule.due(late) else { panic!("operation 501 is in the future") };
        assert!(next > late);
    }

    #[test]
    fn threads_share_a_pace_without_gaps_or_repeats() {
        let start = Instant::now();
        let end = start + Duration::from_millis(100);
        let pace = Pace::Open { per_second: 1000.0 };
        let mut all = Vec::new();
        for index in 0..3 {
            let mut schedule = Schedule::new(pace, start, end, index, 3);
            while let Due::Now(intended) = schedule.due(end + Duration::from_secs(9)) {
                all.push((intended - start).as_micros());
            }
        }
        all.sort_unstable();
        assert_eq!(all, (0..100).map(|n| n * 1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_closed_loop_ends_with_the_measurement() {
        let start = Instant::now();
        let end = start + Duration::from_millis(10);
        let mut schedule = Schedule::new(Pace::Closed, start, end, 0, 1);
        assert_eq!(schedule.due(start), Due::Now(start));
        assert_eq!(schedule.due(end), Due::Never);
    }
}
