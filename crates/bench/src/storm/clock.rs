//! Reports the seconds of a phase.

use std::path::Path;
use std::time::{Duration, Instant};

use types::Result;

use super::background::BackgroundCounters;
use super::state::StormState;
use super::{Phase, Second, disk_space};

/// Divides a phase into seconds.
pub(super) struct PhaseClock {
    start: Instant,
    /// The end of the current second.
    next: Instant,
    last: Instant,
    last_events: u64,
    room_checked: Instant,
}

impl PhaseClock {
    pub(super) fn new(before: u64, state: &StormState) -> PhaseClock {
        let now = Instant::now();
        // Latencies from before the phase belong to no second.
        state.gauges.second();
        PhaseClock {
            start: now,
            next: now + Duration::from_secs(1),
            last: now,
            last_events: before,
            room_checked: now,
        }
    }

    pub(super) fn tick(
        &mut self,
        phase: Phase,
        state: &StormState,
        counters: &BackgroundCounters,
        before: u64,
    ) -> Option<Second> {
        let now = Instant::now();
        if now < self.next {
            return None;
        }
        self.next += Duration::from_secs(1);
        let acknowledged = state.ledger.events.acknowledged();
        let batch = state.events.batch() as u64;
        let new = acknowledged.saturating_sub(self.last_events) * batch;
        let events_per_s = new as f64 / (now - self.last).as_secs_f64().max(1e-3);
        (self.last, self.last_events) = (now, acknowledged);
        let in_storm = phase == Phase::Storm;
        Some(Second {
            phase,
            at_s: (now - self.start).as_secs_f64(),
            events: if in_storm { acknowledged.saturating_sub(before) * batch } else { 0 },
            events_per_s: if in_storm { events_per_s } else { 0.0 },
            background: counters.snapshot(),
            kinds: state.gauges.second(),
        })
    }

    /// Checks once a second that the disk has enough room.
    pub(super) fn check_disk_space(&mut self, root: &Path) -> Result<()> {
        if self.room_checked.elapsed() < Duration::from_secs(1) {
            return Ok(());
        }
        self.room_checked = Instant::now();
        disk_space::guard(root)
    }
}
