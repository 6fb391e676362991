//! The clock interface.

use std::fmt::Debug;
use std::time::Duration;

/// Microseconds since 1970-01-01T00:00:00Z.
pub type Micros = i64;

/// A source of time.
pub trait Clock: Send + Sync + Debug {
    /// Wall-clock time. May jump either way; a caller that needs ascending times keeps its own maximum.
    fn now(&self) -> Micros;

    /// Time since some fixed point of this process. Never goes back.
    fn monotonic(&self) -> Duration;
}
