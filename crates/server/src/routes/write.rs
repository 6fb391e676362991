//! Rows in, and rows deleted by key.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use engine::{Ack, Committed, Mode, NewColumn, Op, Remembered, Transaction};
use http::{HeaderMap, Request, StatusCode, header};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::oneshot;
use types::{Error, Kind, Principal, RowId, TableDef, TableId, name};

use super::define::{Patience, commit_read};
use super::json;
use crate::app::Shared;
use crate::asked;
use crate::body;
use crate::content::{self, Encoding};
use crate::failure::{Failure, Result};
use crate::idempotency::{self, Key};
use wire::{Limits, Rows, ipc, json as wire_json, value};

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HowToWrite {
    Insert,
    #[default]
    Upsert,
    InsertIfAbsent,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Acknowledge {
    #[default]
    Durable,
    Memory,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    mode: Option<HowToWrite>,
    #[serde(default)]
    ack: Acknowledge,
    create: Option<bool>,
}

/// What a body's bytes are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Media {
    Json,
    Arrow,
}

/// What of the headers decides how rows are written.
#[derive(Clone, Copy, Debug)]
enum Condition {
    None,
    /// `If-Match: "17"`: the row's live version must be this one.
    Version(RowId),
    /// `If-None-Match: *`: the keys must be new.
    Absent,
}

pub async fn rows(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path(table): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let head = understand(&parts.uri, &parts.headers, &table, &principal)?;
    let mut held = body::read(&app, &parts.headers, body).await?;
    app.telemetry.ingest_requests.fetch_add(1, Relaxed);
    app.telemetry.ingest_bytes.fetch_add(held.bytes.len() as u64, Relaxed);

    // Writers slow down before they are refused.
    let pause = app.engine.pace_of(&head.full_name);
    if !pause.is_zero() {
        app.telemetry.paced.fetch_add(1, Relaxed);
        tokio::time::sleep(pause).await;
    }
    let inline = head.encoding == Encoding::Identity && held.bytes.len() <= app.options.inline_bytes_max;
    if head.encoding != Encoding::Identity {
        let (packed, encoding, bytes_max) = (held.bytes.clone(), head.encoding, app.options.body_bytes_max);
        app.telemetry.work_jobs.fetch_add(1, Relaxed);
        let plain = app.work.run(move || content::decompress(encoding, &packed, bytes_max)).await??;
        held.grow(plain.len())?;
        held.bytes = plain.into();
    }
    let job = Arc::new(Job { app: app.clone(), principal, head, bytes: held.bytes.clone() });
    let patience = Patience::new();
    loop {
        let seen = app.engine.root().lsn();
        let receiver = if inline {
            job.submit()?
        } else {
            let job = job.clone();
            app.telemetry.work_jobs.fetch_add(1, Relaxed);
            app.work.run(move || job.submit()).await??
        };
        let committed = match receiver {
            Submitted::Nothing => return Ok(answer(&job.head, 0, None, app.engine.root().lsn().0)),
            Submitted::Before(known) => {
                let rows = known.committed.count as usize;
                let mut answer = answer(&job.head, rows, Some(known.committed), known.committed.lsn.0);
                idempotency::replayed(answer.headers_mut());
                return Ok(answer);
            }
            Submitted::Waiting(rows, receiver) => match receiver.await {
                Ok(Ok(committed)) => (rows, committed),
                // The table's columns changed while this was decoded: decode for the new ones. Or the same request was
                // faster: its answer is there once it is durable.
                Ok(Err(e)) if is_changed(&e) || idempotency::is_repeated(&e) => {
                    match patience.newer_root(&app, seen).await {
                        true => continue,
                        false => return Err(e.into()),
                    }
                }
                Ok(Err(e)) => return Err(e.into()),
                Err(_) => return Err(Error::new(Kind::Closed, "the database is closing").into()),
            },
        };
        let (rows, committed) = committed;
        app.telemetry.rows_in.fetch_add(rows as u64, Relaxed);
        return Ok(answer(&job.head, rows, Some(committed), committed.lsn.0));
    }
}

fn is_changed(error: &Error) -> bool {
    error.kind() == Kind::Conflict && error.context().iter().any(|(key, _)| *key == "schema")
}

fn answer(head: &Head, rows: usize, committed: Option<Committed>, lsn: u64) -> Response {
    if head.ack == Acknowledge::Memory && committed.is_some() {
        let body = json!({ "count": rows, "first_row_id": null, "last_row_id": null, "lsn": null });
        return (StatusCode::ACCEPTED, json(&body)).into_response();
    }
    let id = |row: Option<RowId>| row.map(|row| row.0);
    let committed = committed.unwrap_or_default();
    json(&json!({
        "count": committed.count,
        "first_row_id": id(committed.first_row),
        "last_row_id": id(committed.last_row),
        "lsn": lsn,
    }))
}

/// A request's line and headers, understood before its body is read.
#[derive(Debug)]
struct Head {
    full_name: String,
    mode: Option<HowToWrite>,
    ack: Acknowledge,
    create: bool,
    media: Media,
    encoding: Encoding,
    condition: Condition,
    idempotency: Option<Key>,
    /// What besides the body makes it this request and no other.
    asked: String,
}

fn understand(uri: &http::Uri, headers: &HeaderMap, table: &str, principal: &Principal) -> Result<Head> {
    let full_name = name::full_table_name(table)?;
    let asked: Asked = asked::query(uri)?;
    let idempotency = Key::of(headers, principal, &format!("POST rows {full_name}"))?;
    if idempotency.is_some() && asked.ack == Acknowledge::Memory {
        return Err(Error::invalid("`ack=memory` and Idempotency-Key exclude each other")
            .hint("what may be lost has no answer to be remembered: leave one of them out")
            .into());
    }
    let text = |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"));
    let media = match text(header::CONTENT_TYPE)
        .map(|t| t.split(';').next().unwrap_or("").trim().to_ascii_lowercase())
    {
        None => Media::Json,
        Some(media) => match media.as_str() {
            // What curl says when nobody told it.
            "" | "application/x-www-form-urlencoded" | "application/octet-stream" | "text/plain" => {
                Media::Json
            }
            "application/json" | "application/x-ndjson" | "application/ndjson" | "application/jsonl" => {
                Media::Json
            }
            "application/vnd.apache.arrow.stream" => Media::Arrow,
            other => {
                return Err(Failure::unsupported(
                    format!("rows cannot be read from `{}`", name::printable(other)),
                    "send application/json, application/x-ndjson or application/vnd.apache.arrow.stream",
                ));
            }
        },
    };
    let encoding = text(header::CONTENT_ENCODING).unwrap_or("");
    let encoding = Encoding::parse(encoding).ok_or_else(|| {
        Failure::unsupported(
            format!("`{}` cannot be undone", name::printable(encoding)),
            "send gzip, zstd or neither",
        )
    })?;
    let condition = match (text(header::IF_MATCH), text(header::IF_NONE_MATCH)) {
        (None, None) => Condition::None,
        (Some(version), None) => Condition::Version(version_of(version)?),
        (None, Some("*")) => Condition::Absent,
        _ => return Err(Error::invalid("If-None-Match takes `*` only, and not beside If-Match").into()),
    };
    if asked.mode.is_some() && !matches!(condition, Condition::None) {
        return Err(Error::invalid("`mode` and If-Match or If-None-Match cannot both decide").into());
    }
    let query = uri.query().unwrap_or("");
    let distinct = format!("{query}\n{media:?}\n{condition:?}");
    Ok(Head {
        full_name,
        idempotency,
        asked: distinct,
        mode: asked.mode,
        ack: asked.ack,
        create: asked.create.unwrap_or(true),
        media,
        encoding,
        condition,
    })
}

pub fn version_of(header: &str) -> Result<RowId> {
    let digits = header.trim().trim_matches('"');
    digits.parse().map(RowId).map_err(|_| {
        Error::invalid(format!("If-Match: `{}` is no row id", name::printable(header)))
            .hint("send the ETag that the row was read with")
            .into()
    })
}

struct Job {
    app: Shared,
    principal: Arc<Principal>,
    head: Head,
    bytes: Bytes,
}

enum Submitted {
    /// A body without rows.
    Nothing,
    /// It was committed when it came before.
    Before(Remembered),
    Waiting(usize, oneshot::Receiver<types::Result<Committed>>),
}

impl Job {
    /// Decodes for the table as it is now and hands the rows to the commit thread.
    fn submit(&self) -> Result<Submitted> {
        let head = &self.head;
        let request: [&[u8]; 2] = [head.asked.as_bytes(), &self.bytes];
        if let Some(key) = &head.idempotency
            && let Some(known) = key.find(&self.app.engine, &request)?
        {
            return Ok(Submitted::Before(known));
        }
        let snapshot = self.app.engine.view(&self.principal)?;
        let existing = match snapshot.find(&head.full_name) {
            Some(table) => Some(table),
            // Gives the error with near names.
            None if !head.create => Some(snapshot.table(&head.full_name)?),
            None => None,
        };
        let def = existing.as_ref().map(|table| table.def().as_ref());
        let target = wire_json::Target {
            table: name::short_table_name(&head.full_name),
            def,
            may_add_columns: head.create,
        };
        let limits = Limits::default();
        let Rows { batch, new_columns } = match head.media {
            Media::Json => {
                if self.bytes.is_empty() {
                    return Err(Error::invalid("the body is empty").hint("send at least one row").into());
                }
                wire_json::decode(&self.bytes, target, &limits)?
            }
            Media::Arrow => ipc::decode(&self.bytes, target, &limits)?,
        };
        let rows = batch.num_rows();
        if rows == 0 {
            return Ok(Submitted::Nothing);
        }
        let mode = self.mode(def, rows)?;
        let table = def.map_or_else(|| head.full_name.clone(), |def| def.name.clone());
        let mut ops = Vec::with_capacity(2);
        match def {
            None => {
                let mut def = TableDef::new(TableId(0), &head.full_name);
                for column in &new_columns {
                    def.add_column(&column.name, &column.data_type, true, None)?;
                }
                ops.push(Op::CreateTable { def, if_absent: false });
            }
            Some(_) if !new_columns.is_empty() => {
                let columns = new_columns
                    .into_iter()
                    .map(|c| NewColumn {
                        name: c.name,
                        data_type: c.data_type,
                        nullable: true,
                        default: None,
                    })
                    .collect();
                ops.push(Op::AddColumns { table: table.clone(), columns });
            }
            Some(_) => {}
        }
        ops.push(Op::Insert { table, batch, mode });
        let ack = if head.ack == Acknowledge::Memory { Ack::Memory } else { Ack::Durable };
        let (sender, receiver) = oneshot::channel();
        let made_here = def.is_none();
        let mut transaction = Transaction::new(ops).ack(ack);
        transaction.remember = head.idempotency.map(|key| key.remember(&request, None));
        self.app.engine.submit(&self.principal, transaction, move |result| {
            // Somebody else made the table in the meantime: as if its columns had changed.
            let result = result.map_err(|e| match e.kind() {
                Kind::Exists if made_here => Error::conflict(e.message()).with("schema", "created"),
                _ => e,
            });
            // The client may be gone; what was committed stays.
            let _ = sender.send(result);
        });
        Ok(Submitted::Waiting(rows, receiver))
    }

    fn mode(&self, def: Option<&TableDef>, rows: usize) -> Result<Mode> {
        let keyed = def.is_some_and(TableDef::is_keyed);
        let no_key = |what: &str| -> Failure {
            Error::invalid(format!("{what} needs a primary key, and the table has none"))
                .with("table", name::short_table_name(&self.head.full_name))
                .hint("make the table with one: PUT /v1/tables/{table} {\"columns\":[…],\"primary_key\":[…]}")
                .into()
        };
        Ok(match (self.head.condition, self.head.mode) {
            (Condition::Version(row), _) => {
                if !keyed {
                    return Err(no_key("If-Match"));
                }
                if rows != 1 {
                    return Err(
                        Error::invalid(format!("If-Match goes with one row, the body has {rows}")).into()
                    );
                }
                Mode::CompareAndSet(vec![Some(row)])
            }
            (Condition::Absent, _) if !keyed => return Err(no_key("If-None-Match")),
            (Condition::Absent, _) => Mode::CompareAndSet(vec![None; rows]),
            (Condition::None, Some(HowToWrite::InsertIfAbsent)) if !keyed => {
                return Err(no_key("insert_if_absent"));
            }
            (Condition::None, Some(HowToWrite::InsertIfAbsent)) => Mode::InsertIfAbsent,
            (Condition::None, Some(HowToWrite::Upsert)) if !keyed => return Err(no_key("upsert")),
            (Condition::None, Some(HowToWrite::Insert)) => Mode::Append,
            (Condition::None, _) => {
                if keyed {
                    Mode::Upsert
                } else {
                    Mode::Append
                }
            }
        })
    }
}

/// Deletes the row of a key; of a table without key, the row of this id.
pub async fn delete(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path((table, key)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response> {
    let view = app.engine.view(&principal)?;
    let snapshot = view.table(&table)?;
    let def = snapshot.def();
    let row = super::read::find(&snapshot, &key)?.ok_or_else(|| super::read::no_row(def, &key))?;
    let expected = match headers.get(header::IF_MATCH) {
        Some(version) => Some(version_of(version.to_str().unwrap_or("\u{fffd}"))?),
        None => None,
    };
    let op = match expected {
        Some(version) if version != row => {
            return Err(Error::conflict(format!("the row's version is {row}, not {version}"))
                .hint("read it again")
                .into());
        }
        Some(_) => Op::Delete { table: def.name.clone(), rows: vec![row], must_exist: true },
        None if def.is_keyed() => {
            let types: Vec<_> = def.key_columns().map(|c| c.data_type.clone()).collect();
            Op::DeleteKeys { table: def.name.clone(), keys: vec![value::key(&key, &types)?] }
        }
        None => Op::Delete { table: def.name.clone(), rows: vec![row], must_exist: false },
    };
    let committed = commit_read(&app, &view, &principal, Transaction::new(vec![op])).await?;
    Ok(json(&json!({ "count": committed.deleted, "lsn": committed.lsn.0 })))
}
