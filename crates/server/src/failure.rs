//! Errors on the wire: `{"error": {"code", "message", "hint"}}`, and the one table of statuses and codes.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value as Json, json};
use types::{Error, Kind};

use wire::{BadRow, RefusedBody};

use crate::told;

/// Why a request is refused.
#[derive(Debug)]
pub struct Failure {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: Option<String>,
    rows: Vec<BadRow>,
}

pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// A kind's status and stable code. Each code has a page in `docs/errors/`.
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
        // A statement over its deadline is refused like one that found no place.
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

    /// `near`: what was probably meant.
    pub fn no_route(path: &str, near: Option<String>) -> Self {
        let message = format!("there is nothing at `{}`", types::name::printable(path));
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "/openapi.json lists what there is".to_owned(),
        };
        Failure::new(StatusCode::NOT_FOUND, "not_found", message, hint)
    }

    /// `takes`: the methods that there are.
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

    /// Whether it might be taken in smaller parts.
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

    /// More headers than a request may have.
    pub fn head_too_large(headers_max: usize) -> Self {
        let message = "the request has too many headers";
        let hint = format!("send at most {headers_max}; what is longer belongs into the body");
        Failure::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too_large", message, hint)
    }

    /// More requests over HTTP/2 than there may be connections.
    pub fn too_many_requests_at_once() -> Self {
        let message = "too many requests are worked on at once";
        Failure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too_many_connections",
            message,
            "wait for some of their answers",
        )
    }

    /// The client stopped in the middle of its body.
    pub fn slow_body() -> Self {
        let message = "the body did not come in time";
        let hint = "send it without long pauses, or in smaller requests";
        Failure::new(StatusCode::REQUEST_TIMEOUT, "slow_body", message, hint)
    }

    pub fn cut_body() -> Self {
        let message = "the body ended before it was complete";
        Failure::new(StatusCode::BAD_REQUEST, "cut_body", message, "send it again")
    }

    /// With what an error of the same request says beside its message: what was done before, and what to do next.
    pub fn told(mut self, error: &Error) -> Self {
        let context: Vec<String> =
            error.context().iter().map(|(key, value)| format!("{key} {value}")).collect();
        if !context.is_empty() {
            self.message += &format!(" ({})", context.join(", "));
            self.hint = error.hint_text().map(Into::into).or(self.hint);
        }
        self
    }

    /// For readers of plain text.
    pub fn message_and_hint(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}: {hint}", self.message),
            None => self.message.clone(),
        }
    }

    /// Of one table among several.
    pub fn of_table(mut self, table: &str) -> Self {
        if !self.message.contains("(table ") {
            self.message += &format!(" (table {table})");
        }
        self
    }

    /// Of what was committed in pieces: how many rows are there.
    pub fn after(mut self, rows: u64) -> Self {
        if rows == 0 {
            return self;
        }
        self.message += &format!(" (rows committed before {rows})");
        let next = "those before are there: send the rest";
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

    /// The object under `error`.
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

/// A row that does not fit, as answers name it.
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
            if let Some(times) = told::of_requests(code) {
                tracing::warn!(%error, code, times, "requests failed");
            }
        } else if status.is_server_error() {
            tracing::warn!(%error, code, "a request failed");
        }
        let mut message = error.message().to_owned();
        // The table and the row are the request's own; a reader of the message still wants to know which.
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
