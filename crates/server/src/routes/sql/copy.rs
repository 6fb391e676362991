//! `COPY … TO STDOUT`: the answer is a file.

use std::sync::Arc;
use std::time::Instant;

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use query::Limits;
use query::files::{self, Copy, CopyDirection, CopyEndpoint};
use types::{Error, Principal};

use super::{AnswerForm, Encoder, POLYNYA_LSN, SqlBody, Statement, view_at};
use crate::app::Shared;
use crate::connection::Connection;
use crate::failure::Result;
use crate::input;

/// The trailer with the number of rows of the file, which is known only at its end. Sent to clients that send `TE: trailers`.
const POLYNYA_COUNT: HeaderName = HeaderName::from_static("polynya-count");

pub async fn out(
    app: Shared,
    principal: &Principal,
    copy: &Copy,
    asked: &SqlBody,
    started: Instant,
    connection: Arc<Connection>,
) -> Result<Response> {
    if let CopyEndpoint::File(_) = copy.endpoint {
        return Err(files::forbidden().into());
    }
    let CopyDirection::To { query } = &copy.direction else {
        return Err(Error::invalid("COPY … FROM STDIN needs a body of its own for the file")
            .hint("send the file as the body of POST /v1/copy?sql=COPY … FROM STDIN")
            .into());
    };
    if !asked.params.is_empty() {
        return Err(files::no_params().into());
    }
    let limits = Limits {
        deadline: input::deadline(asked.deadline_ms)?,
        rows_max: asked.rows_max,
        ..Limits::default()
    };
    let view = asked.as_of.as_ref().map(|point| view_at(&app, principal, point)).transpose()?;
    let place = app.copies.place_out().await?;
    let rows = app.sql.copy_out(principal, view, query, limits).await?;
    let lsn = rows.lsn();
    let encoder = Encoder::new(AnswerForm::File(files::Writer::new(copy, rows.schema())?));
    let statement = Statement { place: Some(place), ..Statement::new(app, rows, encoder, started) };
    let headers = [
        (header::CONTENT_TYPE, copy.format.media_type().to_owned()),
        (POLYNYA_LSN, lsn.to_string()),
        (header::TRAILER, POLYNYA_COUNT.to_string()),
    ];
    Ok((headers, statement.answer(connection).await?).into_response())
}

/// Returns the trailers of a complete file; `None` for other statements.
pub fn trailers(statement: &Statement) -> Option<HeaderMap> {
    let count = statement.encoder.as_ref().filter(|_| statement.is_copy())?.count;
    Some(HeaderMap::from_iter([(POLYNYA_COUNT, HeaderValue::from(count))]))
}
