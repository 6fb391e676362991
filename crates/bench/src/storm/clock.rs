//! Reports the seconds of a phase.

use std::path::Path;
use std::time::{Duration, Instant};

use types::Result;

use super::disturb::Done;
use super::world::World;
use super::{Phase, Second, room};

/// Divides a phase into seconds.
pub(super) struct Clock {
    start: Instant,
    /// The end of the current second.
    next: Instant,
    last: Instant,
    last_events: u64,
    looked: Instant,
}

impl Clock {
    pub(super) fn new(before: u64, world: &World) -> Clock {
        let now = Instant::now();
        // Latencies from before the phase belong to no second.
        world.gauges.second();
        Clock { start: now, next: now + Duration::from_secs(1), last: now, last_events: before, looked: now }
    }

    pub(super) fn tick(&mut self, phase: Phase, world: &World, done: &Done, before: u64) -> Option<Second> {
        let now = Instant::now();
        if now < self.next {
            return None;
        }
        self.next += Duration::from_secs(1);
        let acknowledged = world.ledger.events.acknowledged();
        let batch = world.events.batch() as u64;
        let new = acknowledged.saturating_sub(self.last_events) * batch;
        let events_per_s = new as f64 / (now - self.last).as_secs_f64().max(1e-3);
        (self.last, self.last_events) = (now, acknowledged);
        let in_storm = phase == Phase::Storm;
        Some(Second {
            phase,
            at_s: (now - self.start).as_secs_f64(),
            events: if in_storm { acknowledged.saturating_sub(before) * batch } else { 0 },
            events_per_s: if in_storm { events_per_s } else { 0.0 },
            background: done.now(),
            kinds: world.gauges.second(),
        })
    }

    /// Checks once a second that the disk has enough room.
    pub(super) fn room(&mut self, root: &Path) -> Result<()> {
        if self.looked.elapsed() < Duration::from_secs(1) {
            return Ok(());
        }
        self.looked = Instant::now();
        room::guard(root)
    }
}
