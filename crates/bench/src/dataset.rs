//! The table that the read benchmarks use, derived from a seed, and the requests that read it.

use bytes::Bytes;
use serde_json::{Value, json};
use types::{Error, Result};

use crate::http::{HttpClient, excerpt, render};
use crate::load::{Request, Requests};
use crate::random::{Random, WorkHash};
use crate::target::LoadTarget;
use crate::wire;

const BATCH: u64 = 1000;

/// A table of rows `{"id": n, "group_id": n % groups, "value": 60 characters}` with the key `id`.
#[derive(Clone, Debug)]
pub(crate) struct Dataset {
    pub(crate) table: String,
    pub(crate) rows: u64,
    pub(crate) hash: String,
    /// The first row id of each batch.
    first_rows: Vec<u64>,
}

impl Dataset {
    /// Recreates the table, fills it, and checks its row count.
    pub(crate) fn load(client: &mut HttpClient, table: &str, rows: u64, seed: u64) -> Result<Dataset> {
        if rows == 0 {
            return Err(Error::invalid("expected at least one row to read, found 0"));
        }
        let columns = json!([
            {"name": "id", "type": "int64", "nullable": false},
            {"name": "group_id", "type": "int64", "nullable": false},
            {"name": "value", "type": "string", "nullable": false},
        ]);
        wire::recreate(client, table, &json!({"columns": columns, "primary_key": ["id"]}))?;
        let (mut random, mut hash) = (Random::new(seed), WorkHash::default());
        let mut first_rows = Vec::new();
        let groups = (rows / 100).max(1);
        let path = format!("/v1/tables/{table}/rows");
        for first in (0..rows).step_by(BATCH as usize) {
            let mut body = Vec::new();
            let last = (first + BATCH).min(rows);
            for id in first..last {
                body.extend_from_slice(if id == first { b"[" } else { b"," });
                body.extend_from_slice(
                    format!("{{\"id\":{id},\"group_id\":{},\"value\":\"", id % groups).as_bytes(),
                );
                random.text(60, &mut body);
                body.extend_from_slice(b"\"}");
            }
            body.push(b']');
            hash.add(&body);
            let answer = client.request("POST", &path, "application/json", &body)?;
            let found: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let first_row = wire::whole(&found["first_row_id"]);
            match (answer.is_success(), wire::whole(&found["count"]), first_row) {
                (true, Some(count), Some(first_row)) if count == last - first => first_rows.push(first_row),
                _ => {
                    return Err(Error::invalid(format!(
                        "loading {table}: expected {} rows acknowledged, found {}: {}",
                        last - first,
                        answer.status,
                        excerpt(&answer.body)
                    )));
                }
            }
        }
        let stored = wire::count(client, table)?;
        if stored != rows {
            return Err(Error::invalid(format!("loaded {rows} rows into {table}, which then has {stored}")));
        }
        Ok(Dataset { table: table.to_owned(), rows, hash: hash.finish(), first_rows })
    }

    fn row_id(&self, id: u64) -> u64 {
        self.first_rows.get((id / BATCH) as usize).map_or(0, |first| first + id % BATCH)
    }

    pub(crate) fn drop(self, client: &mut HttpClient) -> Result<()> {
        client.json("DELETE", &format!("/v1/tables/{}", self.table), None).map(drop)
    }
}

/// The way in which a request reads a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadMethod {
    /// `GET …/rows/{key}`
    #[default]
    Key,
    /// `GET …/rows?from={row id}&limit=1`
    RowId,
    /// `SELECT … WHERE id = $1`
    Sql,
    /// `SELECT count(*), min(value) … WHERE group_id = $1`: about 100 rows of the table.
    SqlGroup,
}

/// Reads of single random rows, chosen by the seed and the thread. An answer without the expected row fails the run.
pub(crate) struct PointReads {
    requests: Vec<(Bytes, String)>,
    next: usize,
}

impl PointReads {
    pub(crate) fn new(
        target: &LoadTarget,
        data: &Dataset,
        method: ReadMethod,
        random: &mut Random,
    ) -> PointReads {
        let groups = (data.rows / 100).max(1);
        let requests = (0..4096)
            .map(|_| {
                let id = random.below(data.rows);
                let get = |path: String| render(target, "GET", &path, "", b"");
                let sql = |text: String, param: u64| {
                    let body = json!({"sql": text, "params": [param]}).to_string();
                    render(target, "POST", "/v1/sql", "application/json", body.as_bytes())
                };
                let table = wire::quoted(&data.table);
                match method {
                    ReadMethod::Key => {
                        (get(format!("/v1/tables/{}/rows/{id}", data.table)), format!("\"id\":{id},"))
                    }
                    ReadMethod::RowId => {
                        let row = data.row_id(id);
                        (
                            get(format!("/v1/tables/{}/rows?from={row}&limit=1", data.table)),
                            format!("\"id\":{id},"),
                        )
                    }
                    ReadMethod::Sql => {
                        let text = format!("SELECT id, value FROM {table} WHERE id = $1");
                        (sql(text, id), format!("[{id},"))
                    }
                    ReadMethod::SqlGroup => {
                        let group = id % groups;
                        let members = data.rows / groups + u64::from(group < data.rows % groups);
                        let text =
                            format!("SELECT count(*) AS n, min(value) FROM {table} WHERE group_id = $1");
                        (sql(text, group), format!("[{members},"))
                    }
                }
            })
            .collect();
        PointReads { requests, next: 0 }
    }
}

impl Requests for PointReads {
    fn next(&mut self) -> Request {
        let tag = self.next;
        self.next = (self.next + 1) % self.requests.len();
        Request { bytes: self.requests[tag].0.clone().into(), tag: tag as u64 }
    }

    fn on_answer(&mut self, tag: u64, body: &[u8]) -> Result<u64, String> {
        let expected = &self.requests[tag as usize].1;
        if contains_ignoring_spaces(body, expected.as_bytes()) {
            return Ok(1);
        }
        Err(format!("expected a row with {expected} in the answer, found {}", excerpt(body)))
    }
}

/// Returns true if `body` contains `part`, ignoring spaces: the server may format its JSON as it likes.
fn contains_ignoring_spaces(body: &[u8], part: &[u8]) -> bool {
    let found = |body: &[u8]| {
        // The value may be the last one of its row.
        let end = [&part[..part.len() - 1], b"}"].concat();
        body.windows(part.len()).any(|window| window == part || window == end)
    };
    found(body) || found(&body.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect::<Vec<_>>())
}

/// Statements that keep every core busy: a self-join, a sort of all rows with a window, and a count of distinct strings. Each
/// contains a new random number, so that no result cache can answer it.
pub(crate) struct HeavyStatements {
    target: LoadTarget,
    table: String,
    random: Random,
    number: u64,
}

impl HeavyStatements {
    pub(crate) fn new(target: &LoadTarget, data: &Dataset, random: Random) -> HeavyStatements {
        HeavyStatements { target: target.clone(), table: wire::quoted(&data.table), random, number: 0 }
    }

    fn statement(&mut self) -> String {
        let (table, salt) = (&self.table, self.random.below(1 << 40));
        self.number += 1;
        match self.number % 3 {
            0 => format!(
                "SELECT a.group_id, count(*) AS pairs, sum(b.id + {salt}) AS total FROM {table} a \
                 JOIN {table} b ON a.group_id = b.group_id GROUP BY a.group_id ORDER BY total DESC LIMIT 5"
            ),
            1 => format!(
                "SELECT max(place) FROM (SELECT row_number() OVER (PARTITION BY group_id + {salt} ORDER BY value DESC) \
                 AS place FROM {table}) AS places"
            ),
            _ => format!(
                "SELECT count(DISTINCT substr(value, 1, 12) || CAST({salt} AS VARCHAR)) AS n, max(reverse(value)) AS last \
                 FROM {table}"
            ),
        }
    }
}

impl Requests for HeavyStatements {
    fn next(&mut self) -> Request {
        let body = json!({"sql": self.statement(), "params": []}).to_string();
        Request {
            bytes: render(&self.target, "POST", "/v1/sql", "application/json", body.as_bytes()).into(),
            tag: 0,
        }
    }

    fn on_answer(&mut self, _: u64, _: &[u8]) -> Result<u64, String> {
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_recognised_with_and_without_spaces() {
        assert!(contains_ignoring_spaces(br#"{"id":7,"value":"x"}"#, b"\"id\":7,"));
        assert!(contains_ignoring_spaces(br#"{"value":"x","id": 7}"#, b"\"id\":7,"));
        assert!(!contains_ignoring_spaces(br#"{"id":77,"value":"x"}"#, b"\"id\":7,"));
        assert!(!contains_ignoring_spaces(b"", b"\"id\":7,"));
    }
}
