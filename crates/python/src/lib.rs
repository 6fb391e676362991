//! Polynya for Python: DB-API 2.0 over a session, Arrow without copies, snapshots and change feeds.
//!
//! The package is in `python/polynya`; this is its module `_native`. Start at `connection.rs`. docs/python.md says what a
//! user sees.
//!
//! ## Invariants
//! - The interpreter is never held while Rust waits or works, and no lock of ours is waited for while it is held. So
//!   whoever holds a lock may ask for the interpreter (to look for signals).
//! - Other libraries call us in threads of which nothing is known: what they call goes through [`wait::detached`].
//! - What comes in is copied: nothing that is committed lies in memory of Python ([`c_data`]).
//! - Nothing is done with a database in a process that was forked from the one that opened it ([`opened`]).

mod c_data;
mod capsule;
mod changes;
mod connection;
mod cursor;
mod error;
mod from_arrow;
mod opened;
mod rows;
mod session;
mod snapshot;
mod text;
mod to_value;
mod wait;

use pyo3::prelude::*;

/// What `polynya/__init__.py` gives on.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::changes::{ChangePage, Changes};
    #[pymodule_export]
    use super::connection::{Connection, Transaction, connect};
    #[pymodule_export]
    use super::cursor::Cursor;
    #[pymodule_export]
    use super::rows::ArrowRows;
    #[pymodule_export]
    use super::snapshot::Snapshot;
    use super::*;

    /// Closes all databases; called when the interpreter ends.
    #[pyfunction]
    fn close_all(py: Python<'_>) -> PyResult<()> {
        py.detach(super::opened::close_all)
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
