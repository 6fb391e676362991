//! Routes for questions in plain words.

use std::sync::Arc;

use ask::{Event, Question};
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use http::{Request, header};
use serde::Deserialize;
use serde_json::json;
use types::{Error, Principal};

use crate::app::Shared;
use crate::body;
use crate::failure::{Failure, Result};
use crate::input;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionBody {
    q: String,
    #[serde(default)]
    sources: Vec<String>,
    deadline_ms: Option<u64>,
}

pub async fn ask(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    request: Request<Body>,
) -> Result<Response> {
    let question = question(&app, request).await?;
    let answer = app.ask.ask(&principal, &question).await?;
    let lsn = answer.lsn;
    let mut response = super::json(&json!(answer));
    response.headers_mut().insert("polynya-lsn", http::HeaderValue::from(lsn));
    Ok(response)
}

/// Streams server-sent events: each section when it is ready, then the complete answer.
pub async fn stream(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    request: Request<Body>,
) -> Result<Response> {
    let question = question(&app, request).await?;
    let mut events = app.ask.stream(&principal, &question);
    // An error before the first event is answered with its own status.
    let first = match events.recv().await {
        Some(first) => first?,
        None => return Err(Error::internal("an answer ended before it began").into()),
    };
    let rest = stream::unfold((Some(Ok(first)), events), |(next, mut events)| async move {
        let event = match next {
            Some(event) => event,
            None => events.recv().await?,
        };
        Some((Ok::<_, std::convert::Infallible>(written(event)), (None, events)))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(rest)).into_response())
}

fn written(event: types::Result<Event>) -> Bytes {
    let (name, data) = match event {
        Ok(Event::Section(section)) => ("section", json!(section)),
        Ok(Event::Answer(answer)) => ("answer", json!(answer)),
        Err(error) => ("error", json!({ "error": Failure::from(error).to_json() })),
    };
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

async fn question(app: &Shared, request: Request<Body>) -> Result<Question> {
    let (parts, body) = request.into_parts();
    let mut held = body::read(app, &parts.headers, body).await?;
    let asked: QuestionBody = input::body(&mut held, "question", r#"{"q":"is the disk nearly full?"}"#)?;
    Ok(Question { text: asked.q, sources: asked.sources, deadline: input::deadline(asked.deadline_ms)? })
}
