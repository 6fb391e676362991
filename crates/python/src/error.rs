//! Maps the library's one error type to the exception classes of DB-API 2.0.

use polynya::{Error, Kind};
use pyo3::prelude::*;

/// Returns the class of `polynya.errors` for a kind of error.
fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Invalid | Kind::NotFound | Kind::Forbidden => "ProgrammingError",
        Kind::Schema => "DataError",
        Kind::Exists => "IntegrityError",
        Kind::Conflict => "ConflictError",
        Kind::Internal => "InternalError",
        Kind::Closed => "InterfaceError",
        Kind::TooLarge
        | Kind::Busy
        | Kind::IndexBuilding
        | Kind::Timeout
        | Kind::DiskFull
        | Kind::Latched
        | Kind::InUse
        | Kind::Damaged
        | Kind::Newer
        | Kind::Io => "OperationalError",
    }
}

fn raised(class: &str, error: &Error) -> PyErr {
    let made = Python::try_attach(|py| -> PyResult<PyErr> {
        let class = py.import("polynya.errors")?.getattr(class)?;
        let hint = error.hint_text();
        let args = (error.to_string(), error.kind().name(), error.message(), hint);
        Ok(PyErr::from_value(class.call1(args)?))
    });
    match made {
        Some(Ok(made) | Err(made)) => made,
        None => pyo3::exceptions::PyRuntimeError::new_err(error.to_string()),
    }
}

/// Returns the exception for an error of the database.
pub fn database(error: Error) -> PyErr {
    raised(class(error.kind()), &error)
}

/// Returns the exception for a wrong use of this package.
pub fn interface(message: impl Into<String>, hint: impl Into<String>) -> PyErr {
    raised("InterfaceError", &Error::invalid(message).hint(hint))
}

/// Returns the exception for a value that the other side cannot represent.
pub fn data(message: impl Into<String>, hint: impl Into<String>) -> PyErr {
    raised("DataError", &Error::new(Kind::Schema, message).hint(hint))
}

/// Converts errors of the library into exceptions, for use before `?`.
pub trait OrRaise<T> {
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for polynya::Result<T> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(database)
    }
}
