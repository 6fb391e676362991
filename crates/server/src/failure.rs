//! Errors over HTTP: `{"error": {"code", "message", "hint"}}`, and the one table of statuses and codes.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value as Json, json};
use types::{Error, Kind};

use wire::{BadRow, RefusedBody};

use crate::log_throttle;

/// The reason why a request is refused: status, code, message, hint and the bad rows.
#[derive(Debug)]
pub struct Failure {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: Option<String>,
    rows: Vec<BadRow>,
}

pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Returns the status and the stable code of an error's kind. Each code has a page in `docs/errors/`.
fn status_and_code(kind: Kind) -> (StatusCode, &'static str) {
    match kind {
        Kind::Invalid => (StatusCode::BAD_REQUEST, "invalid"),
        Kind::Forbidden => (StatusCode::FORBIDDEN, "forbidden"),
        Kind::NotFound => (StatusCode::NOT_FOUND, "not_found"),
        Kind::Exists => (StatusCode::CONFLICT, "exists"),
        Kind::Conflict => (StatusCode::CONFLICT, "conflict"),
        Kind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
        Kind::Schema => (StatusCode::UNPROCESSABLE_ENTITY, "schema"),
        Kind::Busy => (StatusCode::TOO_MANY_REQUESTS, "busy"),
        Kind::IndexBuilding => (StatusCode::CONFLICT, "index_building"),
        // A statement that exceeds its deadline is refused with the same status as one that found no free slot.
        Kind::Timeout => (StatusCode::TOO_MANY_REQUESTS, "timeout"),
        Kind::DiskFull => (StatusCode::SERVICE_UNAVAILABLE, "disk_full"),
        Kind::Latched => (StatusCode::SERVICE_UNAVAILABLE, "latched"),
        Kind::Closed => (StatusCode::SERVICE_UNAVAILABLE, "closed"),
        Kind::InUse => (StatusCode::SERVICE_UNAVAILABLE, "in_use"),
        Kind::Damaged => (StatusCode::SERVICE_UNAVAILABLE, "damaged"),
        Kind::Newer => (StatusCode::SERVICE_UNAVAILABLE, "newer"),
        Kind::Io => (StatusCode::SERVICE_UNAVAILABLE, "io"),
        Kind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    }
}

impl Failure {
    fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Failure { status, code, message: message.into(), hint: Some(hint.into()), rows: Vec::new() }
    }

    pub fn unauthorized(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure::new(StatusCode::UNAUTHORIZED, "unauthorized", message, hint)
    }

    pub fn forbidden(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure::new(StatusCode::FORBIDDEN, "forbidden", message, hint)
    }

    pub fn not_acceptable(hint: impl Into<String>) -> Self {
        let message = "none of the media types that `Accept` asks for can be written";
        Failure::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", message, hint)
    }

    pub fn unsupported(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message, hint)
    }

    /// Makes a 404 for an unknown path. `near` is the path that was probably meant.
    pub fn no_route(path: &str, near: Option<String>) -> Self {
        let message = format!("there is nothing at `{}`", types::name::printable(path));
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "/openapi.json lists what there is".to_owned(),
        };
        Failure::new(StatusCode::NOT_FOUND, "not_found", message, hint)
    }

    /// Makes a 405 for a known path. `takes` are the methods of the path.
    pub fn method_not_allowed(method: &str, takes: &[&http::Method]) -> Self {
        let message = format!("this path does not take {}", types::name::printable(method));
        let hint = match takes {
            [] => "see /openapi.json".to_owned(),
            [one] => format!("{one} it"),
            several => {
                let names: Vec<&str> = several.iter().map(|method| method.as_str()).collect();
                format!("it takes {}", names.join(", "))
            }
        };
        Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message, hint)
    }

    /// Returns true if the request might be accepted in smaller parts.
    pub fn is_too_large(&self) -> bool {
        self.code == "too_large"
    }

    pub fn body_too_large(bytes_max: usize) -> Self {
        let message = format!("the body is larger than {} MiB", bytes_max >> 20);
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message, "send the rows in several requests")
    }

    pub fn key_reused() -> Self {
        let message = "the Idempotency-Key was used for another request";
        let hint = "give each request a key of its own; send the same one only with the same request";
        Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", message, hint)
    }

    /// Makes the refusal of a request with more headers than allowed.
    pub fn head_too_large(headers_max: usize) -> Self {
        let message = "the request has too many headers";
        let hint = format!("send at most {headers_max}; send longer values in the body");
        Failure::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too_large", message, hint)
    }

    /// Makes the refusal of a request over HTTP/2 while more requests run than there may be connections.
    pub fn too_many_requests_at_once() -> Self {
        let message = "too many requests are worked on at once";
        Failure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too_many_connections",
            message,
            "wait for some of their answers",
        )
    }

    /// Makes the refusal of a body whose client stopped in the middle of it.
    pub fn slow_body() -> Self {
        let message = "the body did not come in time";
        let hint = "send it without long pauses, or in smaller requests";
        Failure::new(StatusCode::REQUEST_TIMEOUT, "slow_body", message, hint)
    }

    pub fn cut_body() -> Self {
        let message = "the body ended before it was complete";
        Failure::new(StatusCode::BAD_REQUEST, "cut_body", message, "send it again")
    }

    /// Adds the context and the hint of `error`, an error of the same request: the work done before it, and what to do next.
    pub fn with_context_of(mut self, error: &Error) -> Self {
        let context: Vec<String> =
            error.context().iter().map(|(key, value)| format!("{key} {value}")).collect();
        if !context.is_empty() {
            self.message += &format!(" ({})", context.join(", "));
            self.hint = error.hint_text().map(Into::into).or(self.hint);
        }
        self
    }

    /// Returns message and hint in one line, for readers of plain text.
    pub fn message_and_hint(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}: {hint}", self.message),
            None => self.message.clone(),
        }
    }

    /// Adds the name of the table to the message, for a request about several tables.
    pub fn with_table(mut self, table: &str) -> Self {
        if !self.message.contains("(table ") {
            self.message += &format!(" (table {table})");
        }
        self
    }

    /// Adds the number of rows that were committed before the failure, for a body that is committed in chunks.
    pub fn with_committed_rows(mut self, rows: u64) -> Self {
        if rows == 0 {
            return self;
        }
        self.message += &format!(" (rows committed before {rows})");
        let next = "the rows before are committed: send the rest";
        self.hint = Some(match self.hint {
            Some(hint) => format!("{hint}; {next}"),
            None => next.to_owned(),
        });
        self
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the object for the member `error` of the body.
    pub fn to_json(&self) -> Json {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(hint) = &self.hint {
            error["hint"] = json!(hint);
        }
        if !self.rows.is_empty() {
            error["rows"] = self.rows.iter().map(bad_row).collect();
        }
        error
    }
}

/// Returns the JSON of a row that does not fit.
pub fn bad_row(bad: &BadRow) -> Json {
    let mut shown = json!({ "row": bad.row, "column": bad.column, "message": bad.message });
    if let Some(line) = bad.line {
        shown["line"] = json!(line);
    }
    shown
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (status, code) = status_and_code(error.kind());
        if matches!(error.kind(), Kind::DiskFull | Kind::Latched | Kind::Closed) {
            if let Some(times) = log_throttle::note_failure(code) {
                tracing::warn!(%error, code, times, "requests failed");
            }
        } else if status.is_server_error() {
            tracing::warn!(%error, code, "a request failed");
        }
        let mut message = error.message().to_owned();
        // The context (table, row) comes from the request itself, but a reader of the message still wants to see it.
        for (i, (key, value)) in error.context().iter().enumerate() {
            message += if i == 0 { " (" } else { ", " };
            message += key;
            message.push(' ');
            message += value;
        }
        if !error.context().is_empty() {
            message.push(')');
        }
        Failure { status, code, message, hint: error.hint_text().map(Into::into), rows: Vec::new() }
    }
}

impl From<RefusedBody> for Failure {
    fn from(refused: RefusedBody) -> Self {
        Failure { rows: refused.rows, ..Failure::from(refused.error) }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut body = json!({ "error": self.to_json() }).to_string();
        body.push('\n');
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_message_context_and_hint() {
        let error =
            Error::new(Kind::Conflict, "somebody was faster").with("table", "main.t").hint("look again");
        let failure = Failure::from(error);
        assert_eq!(failure.status(), StatusCode::CONFLICT);
        assert_eq!(
            failure.to_json(),
            json!({"code": "conflict", "message": "somebody was faster (table main.t)", "hint": "look again"})
        );
    }
}
