//! Errors in the format of the Iceberg REST catalog: `{"error": {"message", "type", "code"}}`. Clients decide by status and type
//! how to react.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;
use types::{Error, Kind};

use super::names::{Ident, display_namespace};
use crate::failure::Failure;
use crate::log_throttle;

/// The reason why a request to the catalog is refused.
#[derive(Debug)]
pub struct Problem {
    pub status: StatusCode,
    /// The exception that clients throw.
    pub kind: &'static str,
    pub message: String,
}

pub type Result<T, E = Problem> = std::result::Result<T, E>;

const BAD_REQUEST: &str = "BadRequestException";
/// The type for a request that is well formed and does not fit. Java clients throw an exception of their own for it.
const ILLEGAL: &str = "IllegalArgumentException";
const EXISTS: &str = "AlreadyExistsException";
const CONFLICT: &str = "CommitFailedException";
const FORBIDDEN: &str = "ForbiddenException";

impl Problem {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Problem {
        Problem { status, kind, message: message.into() }
    }

    pub fn no_table(ident: &Ident) -> Problem {
        let message = format!("Table does not exist: {ident}");
        Problem::new(StatusCode::NOT_FOUND, "NoSuchTableException", message)
    }

    pub fn no_view(ident: &Ident) -> Problem {
        let message = format!("View does not exist: {ident}");
        Problem::new(StatusCode::NOT_FOUND, "NoSuchViewException", message)
    }

    pub fn no_namespace(namespace: &[String]) -> Problem {
        let message = format!("Namespace does not exist: {}", display_namespace(namespace));
        Problem::new(StatusCode::NOT_FOUND, "NoSuchNamespaceException", message)
    }

    pub fn not_empty(namespace: &[String]) -> Problem {
        let message = format!("Namespace {} is not empty", display_namespace(namespace));
        Problem::new(StatusCode::CONFLICT, "NamespaceNotEmptyException", message)
    }

    pub fn bad(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, BAD_REQUEST, message)
    }

    pub fn exists(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::CONFLICT, EXISTS, message)
    }

    pub fn conflict(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::CONFLICT, CONFLICT, message)
    }

    pub fn forbidden(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, FORBIDDEN, message)
    }

    pub fn unprocessable(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "UnprocessableEntityException", message)
    }

    /// Makes the answer to a commit whose outcome is unknown. Clients then keep the files that it names.
    pub fn unknown(error: &Error) -> Problem {
        tracing::warn!(%error, "it is unknown whether a commit to the catalog happened");
        let message = format!("it is unknown whether the commit happened: {}", error.kind().name());
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "CommitStateUnknownException", message)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let (status, kind) = match error.kind() {
            Kind::Invalid | Kind::Schema => (StatusCode::BAD_REQUEST, ILLEGAL),
            Kind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, BAD_REQUEST),
            Kind::Forbidden => (StatusCode::FORBIDDEN, FORBIDDEN),
            Kind::NotFound => (StatusCode::NOT_FOUND, "NotFoundException"),
            Kind::Exists => (StatusCode::CONFLICT, EXISTS),
            Kind::Conflict => (StatusCode::CONFLICT, CONFLICT),
            Kind::Busy | Kind::Timeout | Kind::IndexBuilding => {
                (StatusCode::TOO_MANY_REQUESTS, "SlowDownException")
            }
            Kind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError"),
            Kind::DiskFull
            | Kind::Latched
            | Kind::Closed
            | Kind::InUse
            | Kind::Damaged
            | Kind::Newer
            | Kind::Io => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableException"),
        };
        let message = match status.is_server_error() {
            // Paths and messages are for the log.
            true => {
                if let Some(times) = log_throttle::note_failure(error.kind().name()) {
                    tracing::warn!(%error, times, "requests to the catalog failed");
                }
                format!("the server cannot do it now: {}", error.kind().name())
            }
            false => match error.hint_text() {
                Some(hint) => format!("{}; {hint}", error.message()),
                None => error.message().to_owned(),
            },
        };
        Problem { status, kind, message }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        let status = failure.status();
        let kind = match status {
            StatusCode::UNAUTHORIZED => "NotAuthorizedException",
            StatusCode::FORBIDDEN => FORBIDDEN,
            StatusCode::NOT_FOUND => "NotFoundException",
            StatusCode::TOO_MANY_REQUESTS => "SlowDownException",
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailableException",
            status if status.is_server_error() => "InternalServerError",
            _ => BAD_REQUEST,
        };
        let said = failure.to_json();
        let text = |key: &str| said[key].as_str().map(str::to_owned);
        let message = [text("message"), text("hint")].into_iter().flatten().collect::<Vec<_>>().join("; ");
        Problem { status, kind, message }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let error = json!({ "message": self.message, "type": self.kind, "code": self.status.as_u16() });
        let body = json!({ "error": error }).to_string();
        let mut response = (self.status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        let headers = response.headers_mut();
        match self.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}
