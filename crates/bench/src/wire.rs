//! Requests that the workloads send to Polynya beside the load: tables, SQL, counts.

use serde_json::{Value, json};
use types::{Error, Result};

use crate::http::HttpClient;

/// Quotes a table's name as an SQL identifier.
pub(crate) fn quoted(table: &str) -> String {
    table.split('.').map(|part| format!("\"{}\"", part.replace('"', "\"\""))).collect::<Vec<_>>().join(".")
}

/// Runs a statement and returns its rows. A truncated answer is an error, because half a result proves nothing.
pub(crate) fn sql(client: &mut HttpClient, text: &str, params: Value) -> Result<Vec<Vec<Value>>> {
    let answer = client.json("POST", "/v1/sql", Some(&json!({"sql": text, "params": params})))?;
    if answer["truncated"].as_bool() == Some(true) {
        return Err(Error::invalid(format!("the answer to {text:?} was truncated")));
    }
    let rows = answer["rows"]
        .as_array()
        .ok_or_else(|| Error::invalid(format!("expected rows in the answer to {text:?}, found {answer}")))?;
    Ok(rows.iter().map(|row| row.as_array().cloned().unwrap_or_default()).collect())
}

/// Parses a whole number of an answer; integers beyond 2^53 arrive as strings.
pub(crate) fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Counts the rows of a table by `SELECT count(*)`.
pub(crate) fn count(client: &mut HttpClient, table: &str) -> Result<u64> {
    let rows = sql(client, &format!("SELECT count(*) FROM {}", quoted(table)), json!([]))?;
    rows.first()
        .and_then(|row| row.first())
        .and_then(whole)
        .ok_or_else(|| Error::invalid(format!("expected the number of rows of {table}, found {rows:?}")))
}

pub(crate) fn exists(client: &mut HttpClient, table: &str) -> Result<bool> {
    let answer = client.request("GET", &format!("/v1/tables/{table}"), "", b"")?;
    match answer.status {
        200..=299 => Ok(true),
        404 => Ok(false),
        status => Err(Error::invalid(format!("asking for table {table} was answered with {status}"))),
    }
}

/// Counts the rows of a table, or returns 0 if the table does not exist.
pub(crate) fn count_or_none(client: &mut HttpClient, table: &str) -> Result<u64> {
    if exists(client, table)? { count(client, table) } else { Ok(0) }
}

/// Creates a table and drops an existing one first: benchmarks own their tables' names.
pub(crate) fn recreate(client: &mut HttpClient, table: &str, definition: &Value) -> Result<()> {
    let path = format!("/v1/tables/{table}");
    if exists(client, table)? {
        client.json("DELETE", &path, None)?;
    }
    client.json("PUT", &path, Some(definition)).map(drop)
}

/// Extracts the number after `"count":` from an answer, without parsing the rest.
pub(crate) fn count_in(body: &[u8]) -> Option<u64> {
    const KEY: &[u8] = b"\"count\":";
    let at = body.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let digits = body[at..].trim_ascii_start();
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// Fetches the server's `/metrics`; returns an empty string if the server does not serve them.
pub(crate) fn metrics(client: &mut HttpClient) -> Result<String> {
    let answer = client.request("GET", "/metrics", "", b"")?;
    Ok(if answer.is_success() { String::from_utf8_lossy(&answer.body).into_owned() } else { String::new() })
}

/// Finds one metric by its name without the prefix `polynya_`, labels included.
pub(crate) fn metric(metrics: &str, name: &str) -> Option<f64> {
    let value =
        |line: &str| line.strip_prefix("polynya_")?.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
    metrics.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_an_answer_is_found() {
        assert_eq!(count_in(br#"{"count":100,"first_row_id":1}"#), Some(100));
        assert_eq!(count_in(br#"{"lsn": 7, "count": 5}"#), Some(5));
        assert_eq!(count_in(br#"{"counts":1}"#), None);
        assert_eq!(count_in(br#"{"count":"x"}"#), None);
    }

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        let text = "# HELP polynya_seals_total Seals.\npolynya_seals_total 7\npolynya_seals 1\n\
                    polynya_log_fsync_seconds{quantile=\"0.5\"} 0.0025\n";
        assert_eq!(metric(text, "seals_total"), Some(7.0));
        assert_eq!(metric(text, "log_fsync_seconds{quantile=\"0.5\"}"), Some(0.0025));
        assert_eq!(metric(text, "seal"), None);
    }

    #[test]
    fn names_become_exact_identifiers() {
        assert_eq!(quoted("main.a\"b"), "\"main\".\"a\"\"b\"");
    }
}
