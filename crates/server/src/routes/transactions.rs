//! `POST /v1/transactions`: several operations in one request, all or none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use bytes::Bytes;
use engine::{Mode, Op, OpenTransaction, TransactionOutcome, WrittenRows};
use http::Request;
use query::{Answer, AnswerRows, Limits, Overflow};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use types::{DataType, Error, Kind, Principal, Result as CoreResult, RowId, TableDef, TableId, Value, name};

use super::define::RetryDeadline;
use super::write::is_changed;
use super::{json, milliseconds};
use crate::app::Shared;
use crate::auth::Admitted;
use crate::body;
use crate::failure::{Failure, Result};
use crate::idempotency::{self, Key};
use crate::input;
use crate::values::{self, BoundedList};
use wire::{RefusedBody, json as wire_json, out, value};

/// Maximum number of operations. More rows fit into fewer operations with many rows each.
const OPS_MAX: usize = 10_000;
/// Maximum number of rows that RETURNING may give in all operations of a transaction.
const RETURNED_ROWS_MAX: u64 = 10_000;
/// Maximum bytes that RETURNING may give in all operations of a transaction.
const RETURNED_BYTES_MAX: usize = 16 << 20;
/// Maximum bytes that RETURNING may give if the answer is stored with an Idempotency-Key.
const RETURNED_KEPT_MAX: usize = 64 << 10;
/// Number of returned rows that are encoded between two checks of the size.
const RETURNED_ROWS_STEP: usize = 64;
const EXAMPLE: &str =
    r#"{"ops":[{"op":"insert","table":"t","rows":[{"a":1}]},{"op":"sql","sql":"DELETE FROM u"}]}"#;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TransactionBody {
    ops: BoundedList<Operation, OPS_MAX>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Operation {
    op: OpKind,
    table: Option<String>,
    /// The rows as JSON text, because their numbers are parsed according to the table's columns.
    rows: Option<Box<RawValue>>,
    keys: Option<Box<RawValue>>,
    sql: Option<String>,
    params: Option<Box<RawValue>>,
}

impl Operation {
    /// Returns the parts whose values take far more memory than their text once they are parsed.
    fn values(&self) -> impl Iterator<Item = &[u8]> {
        [&self.keys, &self.params].into_iter().flatten().map(|part| part.get().as_bytes())
    }
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum OpKind {
    Insert,
    Upsert,
    InsertIfAbsent,
    Delete,
    Sql,
}

impl OpKind {
    fn name(self) -> &'static str {
        match self {
            OpKind::Insert => "insert",
            OpKind::Upsert => "upsert",
            OpKind::InsertIfAbsent => "insert_if_absent",
            OpKind::Delete => "delete",
            OpKind::Sql => "sql",
        }
    }
}

/// The result of an operation.
enum OpResult {
    Rows(WrittenRows),
    Statement {
        kind: &'static str,
        count: u64,
    },
    /// Rows of RETURNING.
    Returned(Returned),
}

/// The answer for an operation before the final row ids are known. Stored with a transaction that has an Idempotency-Key.
#[derive(Debug, Serialize, Deserialize)]
struct OpAnswer {
    answer: Json,
    /// The table's id, and the first and last inserted row by their ids within the transaction.
    inserted: Option<(u32, u64, u64)>,
}

/// Rows in the form of `POST /v1/sql`.
struct Returned {
    columns: Vec<Json>,
    rows: Json,
    count: u64,
}

/// The rows and bytes that RETURNING may still give.
struct ReturningBudget {
    rows: u64,
    bytes: usize,
    /// True if the answer is stored with an `Idempotency-Key`.
    is_kept: bool,
}

impl ReturningBudget {
    /// Fails if fewer than `bytes` are left.
    fn check(&self, bytes: usize) -> CoreResult<()> {
        match (bytes <= self.bytes, self.is_kept) {
            (true, _) => Ok(()),
            (false, false) => {
                let what = format!("RETURNING gives more than {} MiB", RETURNED_BYTES_MAX >> 20);
                Err(Error::new(Kind::TooLarge, what).hint("return fewer columns, or the key alone"))
            }
            (false, true) => {
                let kib = RETURNED_KEPT_MAX >> 10;
                let what =
                    format!("RETURNING gives more than {kib} KiB, which an Idempotency-Key does not keep");
                Err(Error::new(Kind::TooLarge, what)
                    .hint("return fewer columns, or the key alone; or read the rows afterwards"))
            }
        }
    }
}

pub async fn transactions(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Extension(asker): Extension<Admitted>,
    request: Request<Body>,
) -> Result<Response> {
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let key = Key::of(&parts.headers, &asker, "POST transactions")?;
    let held = body::read(&app, &parts.headers, body).await?;
    let Some(key) = key else {
        let (answers, outcome) =
            run(&app, &principal, &held.bytes, None).await.map_err(NotCommitted::into_failure)?;
        return Ok(answer(answers, &outcome, started));
    };
    let retries = RetryDeadline::new();
    loop {
        let seen = app.engine.root().lsn();
        if let Some(answer) = replayed(&app, &key, &held.bytes, started)? {
            return Ok(answer);
        }
        match run(&app, &principal, &held.bytes, Some(&key)).await {
            Ok((answers, outcome)) => return Ok(answer(answers, &outcome, started)),
            Err(NotCommitted::Retry(error)) => {
                if !retries.wait_for_newer_root(&app, seen).await {
                    return Err(error.into());
                }
            }
            // The failure may be a conflict with the same request, which was sent twice and has committed.
            Err(NotCommitted::Failed(failure)) => {
                return replayed(&app, &key, &held.bytes, started)?.ok_or(failure);
            }
        }
    }
}

/// The reason why a transaction was not committed.
enum NotCommitted {
    /// The transaction should be retried. Either the same request was faster and its answer appears once it is durable, or
    /// another request made or changed a table.
    Retry(Error),
    Failed(Failure),
}

impl NotCommitted {
    fn into_failure(self) -> Failure {
        match self {
            NotCommitted::Retry(error) => error.into(),
            NotCommitted::Failed(failure) => failure,
        }
    }
}

impl<E: Into<Failure>> From<E> for NotCommitted {
    fn from(error: E) -> Self {
        NotCommitted::Failed(error.into())
    }
}

/// Returns the stored answer if the request was committed before.
fn replayed(app: &Shared, key: &Key, body: &[u8], started: Instant) -> Result<Option<Response>> {
    let Some(known) = key.find(&app.engine, &[body])? else { return Ok(None) };
    let (outcome, note) = known.outcome()?;
    let answers = serde_json::from_str(note)
        .map_err(|e| Error::damaged(format!("the answer of a transaction that was remembered: {e}")))?;
    let mut answer = answer(answers, &outcome, started);
    idempotency::mark_replayed(answer.headers_mut());
    Ok(Some(answer))
}

/// Runs a transaction from its beginning to its commit.
async fn run(
    app: &Shared,
    principal: &Principal,
    body: &Bytes,
    key: Option<&Key>,
) -> std::result::Result<(Vec<OpAnswer>, TransactionOutcome), NotCommitted> {
    let asked: TransactionBody = input::json(body, "transaction", EXAMPLE)?;
    let ops = asked.ops.all().map_err(too_many)?;
    check(&ops)?;
    let _room = values::room(app, ops.iter().flat_map(Operation::values))?;
    // Writers are slowed down before they are refused.
    let tables: BTreeSet<&str> = ops.iter().filter_map(|op| op.table.as_deref()).collect();
    let pause = tables.into_iter().map(|table| app.engine.pace_of(table)).max().unwrap_or_default();
    if !pause.is_zero() {
        app.telemetry.paced.fetch_add(1, Relaxed);
        tokio::time::sleep(pause).await;
    }
    let inline = body.len() <= app.options.inline_bytes_max;
    // Dropping the transaction rolls it back: after an error, and when the client leaves.
    let transaction = app.engine.begin(principal)?;
    let mut done = Vec::with_capacity(ops.len());
    let bytes = if key.is_some() { RETURNED_KEPT_MAX } else { RETURNED_BYTES_MAX };
    let mut budget = ReturningBudget { rows: RETURNED_ROWS_MAX, bytes, is_kept: key.is_some() };
    for (at, op) in ops.into_iter().enumerate() {
        let what = op.op;
        let did = match what {
            OpKind::Sql => statement(app, &transaction, op, &mut budget).await.map_err(RefusedBody::from),
            _ if inline => rows(&transaction, &op),
            _ => {
                let transaction = transaction.clone();
                app.telemetry.work_jobs.fetch_add(1, Relaxed);
                app.work.run(move || rows(&transaction, &op)).await?
            }
        };
        let numbered =
            |e: RefusedBody| RefusedBody { error: e.error.with("operation", at + 1), rows: e.rows };
        done.push(op_answer(what, did.map_err(numbered)?));
    }
    let remember = match key {
        Some(key) => Some(key.remember(&[body], Vec::new(), Some(to_note(&done)?))),
        None => None,
    };
    let outcome = match query::commit(&transaction, remember).await {
        Err(e) if key.is_some() && (is_changed(&e) || idempotency::is_repeated(&e)) => {
            return Err(NotCommitted::Retry(e));
        }
        outcome => outcome?,
    };
    app.telemetry.rows_in.fetch_add(outcome.committed.count, Relaxed);
    Ok((done, outcome))
}

fn to_note(answers: &[OpAnswer]) -> CoreResult<String> {
    serde_json::to_string(answers).map_err(|e| Error::internal(format!("an answer that is not JSON: {e}")))
}

fn answer(answers: Vec<OpAnswer>, outcome: &TransactionOutcome, started: Instant) -> Response {
    let ops: Vec<Json> = answers.into_iter().map(|one| with_row_ids(one, outcome)).collect();
    json(&json!({
        "lsn": outcome.committed.lsn.0,
        "ops": ops,
        "took_ms": milliseconds(started.elapsed()),
    }))
}

fn too_many(sent: usize) -> Error {
    Error::new(Kind::TooLarge, format!("a transaction has at most {OPS_MAX} operations, {sent} were sent"))
        .hint("one operation takes many rows")
}

/// Parses an array of an operation.
fn list<'a, T: Deserialize<'a>>(field: &str, given: Option<&'a RawValue>) -> CoreResult<Vec<T>> {
    serde_json::from_str(given.map_or("[]", RawValue::get)).map_err(|e| {
        let why = input::plain_message(&e);
        // The position would be relative to the array, not to the body, so it is left out.
        let why = why.split(" at line ").next().unwrap_or_default();
        Error::invalid(format!("`{field}` does not fit: {why}")).hint(format!("send {EXAMPLE}"))
    })
}

/// Checks that each operation has the fields that it needs and no others.
fn check(ops: &[Operation]) -> CoreResult<()> {
    if ops.is_empty() {
        return Err(Error::invalid("`ops` is empty").hint(format!("send {EXAMPLE}")));
    }
    for (at, op) in ops.iter().enumerate() {
        let needs: &[&str] = match op.op {
            OpKind::Insert | OpKind::Upsert | OpKind::InsertIfAbsent => &["table", "rows"],
            OpKind::Delete => &["table", "keys"],
            OpKind::Sql => &["sql"],
        };
        let given = [
            ("table", op.table.is_some()),
            ("rows", op.rows.is_some()),
            ("keys", op.keys.is_some()),
            ("sql", op.sql.is_some()),
            ("params", op.params.is_some()),
        ];
        let what = op.op.name();
        for (field, is_given) in given {
            let belongs = needs.contains(&field) || field == "params" && op.op == OpKind::Sql;
            let wrong = match (is_given, belongs) {
                (true, false) => format!("`{what}` takes no `{field}`"),
                (false, true) if field != "params" => format!("`{what}` needs `{field}`"),
                _ => continue,
            };
            return Err(Error::invalid(wrong).with("operation", at + 1).hint(format!("send {EXAMPLE}")));
        }
    }
    Ok(())
}

/// Applies an operation that writes or deletes rows.
fn rows(transaction: &OpenTransaction, op: &Operation) -> Result<OpResult, RefusedBody> {
    let wanted = op.table.as_deref().unwrap_or_default();
    let snapshot = transaction.view()?.table(wanted)?;
    let def = snapshot.def();
    let table = def.name.clone();
    let change = match op.op {
        OpKind::Delete => deleted(def, &list::<&RawValue>("keys", op.keys.as_deref())?)?,
        what => {
            let body = op.rows.as_deref().map_or("[]", RawValue::get);
            let target = wire_json::DecodeTarget {
                table: name::short_table_name(&table),
                def: Some(def),
                may_add_columns: false,
            };
            let read = wire_json::decode(body.as_bytes(), target, &wire::Limits::default())?;
            let mode = match what {
                OpKind::Upsert if def.is_keyed() => Mode::Upsert,
                OpKind::InsertIfAbsent if def.is_checked() => Mode::InsertIfAbsent,
                OpKind::Upsert | OpKind::InsertIfAbsent => return Err(no_key(def, what.name()).into()),
                _ => Mode::Append,
            };
            // Without rows there is nothing to check against the table's columns, so nothing is applied.
            if read.batch.num_rows() == 0 {
                return Ok(OpResult::Rows(WrittenRows::default()));
            }
            Op::Insert { table, batch: read.batch, mode }
        }
    };
    Ok(OpResult::Rows(transaction.apply(vec![change])?.pop().unwrap_or_default()))
}

/// Parses the keys of a delete: primary keys, or row ids if the table has no primary key.
fn deleted(def: &TableDef, keys: &[&RawValue]) -> CoreResult<Op> {
    let table = def.name.clone();
    if !def.is_keyed() {
        let row = |key: &RawValue| {
            key.get().parse().map(RowId).map_err(|_| {
                Error::invalid(format!("`{}` is not a row id", name::printable(key.get())))
                    .with("table", name::short_table_name(&def.name))
                    .hint("rows of a table without a primary key are named by their row ids")
            })
        };
        let rows = keys.iter().map(|key| row(key)).collect::<CoreResult<_>>()?;
        return Ok(Op::Delete { table, rows, must_exist: false });
    }
    let types: Vec<DataType> = def.key_columns().map(|c| c.data_type.clone()).collect();
    let key = |key: &RawValue| -> CoreResult<Vec<Value>> {
        if let [one] = &types[..] {
            return Ok(vec![value::of_key(key.get(), one)?]);
        }
        let parts: Vec<&RawValue> = serde_json::from_str(key.get()).unwrap_or_default();
        if parts.len() != types.len() {
            return Err(Error::invalid(format!("a key of this table is an array of {} values", types.len())));
        }
        parts.iter().zip(&types).map(|(part, data_type)| value::of_key(part.get(), data_type)).collect()
    };
    let of_table = |e: Error| e.with("table", name::short_table_name(&def.name));
    let keys = keys.iter().map(|one| key(one)).collect::<CoreResult<_>>().map_err(of_table)?;
    Ok(Op::DeleteKeys { table, keys })
}

fn no_key(def: &TableDef, what: &str) -> Error {
    Error::invalid(format!("{what} needs a primary key, and the table has none"))
        .with("table", name::short_table_name(&def.name))
        .hint("use insert")
}

async fn statement(
    app: &Shared,
    transaction: &OpenTransaction,
    op: Operation,
    budget: &mut ReturningBudget,
) -> CoreResult<OpResult> {
    let params = values::parameters(&list("params", op.params.as_deref())?)?;
    let text = op.sql.unwrap_or_default();
    let limits = Limits { rows_max: Some(budget.rows), overflow: Overflow::Error, ..Limits::default() };
    match app.sql.run_in(transaction, &text, params, limits).await? {
        Answer::Done(done) => Ok(OpResult::Statement { kind: done.kind.name(), count: done.count }),
        Answer::Rows(rows) if rows.is_returned() => returned(rows, budget).await.map(OpResult::Returned),
        Answer::Rows(_) => {
            Err(Error::invalid("a query is not allowed here, because its rows would not be returned")
                .hint("read with POST /v1/sql"))
        }
    }
}

/// Collects the rows of RETURNING. This runs before the commit, so that too many rows fail without any change.
async fn returned(mut rows: AnswerRows, budget: &mut ReturningBudget) -> CoreResult<Returned> {
    let columns: Vec<Json> =
        rows.columns().into_iter().map(|c| json!({ "name": c.name, "type": c.data_type })).collect();
    // The names of columns count too: they may be long even if there are no rows.
    let named = columns.iter().map(|column| column.to_string().len() + 1).sum();
    budget.check(named)?;
    budget.bytes -= named;
    let writer = out::json::Writer::new(rows.schema());
    let (mut text, mut first, mut count) = (vec![b'['], true, 0);
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        count += batch.num_rows() as u64;
        // Few rows are encoded at a time, so that long texts are noticed early.
        for at in (0..batch.num_rows()).step_by(RETURNED_ROWS_STEP) {
            let part = batch.slice(at, RETURNED_ROWS_STEP.min(batch.num_rows() - at));
            writer.arrays(&part, &mut first, &mut text);
            budget.check(text.len())?;
        }
    }
    text.push(b']');
    budget.rows = budget.rows.saturating_sub(count);
    budget.bytes -= text.len().min(budget.bytes);
    let rows = serde_json::from_slice(&text)
        .map_err(|e| Error::internal(format!("returned rows are not JSON: {e}")))?;
    Ok(Returned { columns, rows, count })
}

fn op_answer(what: OpKind, did: OpResult) -> OpAnswer {
    let written = match did {
        OpResult::Statement { kind, count } => {
            let answer = json!({ "op": what.name(), "statement": kind, "count": count });
            return OpAnswer { answer, inserted: None };
        }
        OpResult::Returned(Returned { columns, rows, count }) => {
            let answer = json!({ "op": what.name(), "count": count, "columns": columns, "rows": rows });
            return OpAnswer { answer, inserted: None };
        }
        OpResult::Rows(written) => written,
    };
    if what == OpKind::Delete {
        return OpAnswer { answer: json!({ "op": what.name(), "count": written.deleted }), inserted: None };
    }
    let ids = written.first_row.zip(written.last_row);
    OpAnswer {
        answer: json!({
            "op": what.name(),
            "count": written.count,
            "first_row_id": null,
            "last_row_id": null,
        }),
        inserted: ids.map(|(first, last)| (written.table.0, first.0, last.0)),
    }
}

/// Fills in the final ids of inserted rows. Rows that a later operation replaced or deleted have none.
fn with_row_ids(op: OpAnswer, outcome: &TransactionOutcome) -> Json {
    let OpAnswer { mut answer, inserted } = op;
    let ids =
        inserted.and_then(|(table, first, last)| outcome.rows(TableId(table), RowId(first), RowId(last)));
    if let Some((first, last)) = ids {
        answer["first_row_id"] = first.0.into();
        answer["last_row_id"] = last.0.into();
    }
    answer
}
