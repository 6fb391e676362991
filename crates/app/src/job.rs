//! The command's side of a long job of the control socket (`control/job.rs` is the server's side).

use http::Method;
use http_body_util::BodyExt;
use serde_json::Value;
use types::{Error, Kind, Result};

use crate::client::{HttpClient, error_of};

/// Requests a job and waits for its result. `report` is called with each report of progress. Fails with the job's error, or
/// with `closed` if the server ended first.
pub async fn run(
    client: &mut HttpClient,
    method: Method,
    path: &str,
    body: &Value,
    report: &mut dyn FnMut(&Value),
) -> Result<Value> {
    let response = client.send(method, path, &[], body.to_string().into()).await?;
    let mut body = response.into_body();
    let mut rest: Vec<u8> = Vec::new();
    let ended = || Error::new(Kind::Closed, "the server ended before it was done").hint("its log says why");
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ended().caused_by(error))?;
        let Ok(bytes) = frame.into_data() else { continue };
        rest.extend_from_slice(&bytes);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let mut value: Value = serde_json::from_slice(&line).map_err(|error| {
                Error::internal("the server sent something that is not JSON").caused_by(error)
            })?;
            if !value["progress"].is_null() {
                report(&value["progress"]);
            } else if !value["error"].is_null() {
                return Err(error_of(&value));
            } else {
                return Ok(value["done"].take());
            }
        }
    }
    Err(ended())
}
