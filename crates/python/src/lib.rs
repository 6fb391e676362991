//! Polynya for Python: DB-API 2.0 over a session, Arrow without copies, snapshots and change feeds.
//!
//! The package is in `python/polynya`; this is its module `_native`. Start at `connection.rs`. docs/python.md is the user's
//! documentation.
//!
//! ## Invariants
//! - The interpreter is never held while Rust waits or works, and none of our locks is waited for while it is held. So a thread
//!   that holds a lock may attach to the interpreter (to check for signals).
//! - Other libraries call us from threads in an unknown state: these calls go through [`wait::detached`].
//! - Imported data are copied: no committed data lie in Python's memory ([`c_data`]).
//! - A database is not used in a process that was forked from the one that opened it ([`open_databases`]).

mod c_data;
mod capsule;
mod changes;
mod connection;
mod cursor;
mod error;
mod from_arrow;
mod open_databases;
mod rows;
mod session;
mod snapshot;
mod text;
mod to_value;
mod wait;

use pyo3::prelude::*;

/// The native module, re-exported by `polynya/__init__.py`.
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
        py.detach(super::open_databases::close_all)
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
