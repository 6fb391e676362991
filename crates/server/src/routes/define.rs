//! Routes of tables: list, describe, make, change and drop them. Also the functions that commit transactions for other routes.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::{IntoResponse, Response};
use engine::{MaterializerProgress, NewColumn, Op, Resolved, Transaction, View};
use http::{Request, StatusCode};
use serde_json::{Value as Json, json};
use tokio::sync::oneshot;
use types::{AlterAction, Error, Kind, Lsn, Principal, TableDef, name};

use super::json;
use crate::app::Shared;
use crate::body;
use crate::definition::{self, Definition, IndexDefinition, ParsedColumn};
use crate::failure::Result;
use crate::values;

pub async fn list(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
) -> Result<Response> {
    let view = app.engine.view(&principal)?;
    let tables: Vec<Json> = view.tables().iter().map(|table| shown(&app, table)).collect();
    Ok(json(&json!({ "tables": tables, "lsn": view.lsn().0 })))
}

pub async fn describe(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path(table): Path<String>,
) -> Result<Response> {
    Ok(json(&shown(&app, &*app.engine.view(&principal)?.table(&table)?)))
}

fn shown(app: &Shared, table: &table::Snapshot) -> Json {
    let mut shown = definition::describe(table.def());
    shown["rows"] = json!(table.rows());
    shown["bytes"] = json!(table.bytes());
    let (compressed, raw) = table.compressed_bytes();
    if compressed > 0 {
        shown["compressed"] = json!({ "bytes": compressed, "raw_bytes": raw });
    }
    if table.def().options.hot.is_some() || table.has_evicted() {
        let (lake_rows, lake_bytes) = table.evicted();
        shown["tiers"] = json!({
            "hot_rows": table.rows() - lake_rows,
            "hot_bytes": engine::hot_bytes(table),
            "lake_only_rows": lake_rows,
            "lake_only_bytes": lake_bytes,
            "hot_from_row_id": table.hot_from().0,
        });
    }
    shown["lsn"] = json!(table.lsn().0);
    let standing = app.engine.materializer_progress(table);
    if !standing.is_empty() {
        shown["derived"] = standing.iter().map(standing_shown).collect();
    }
    shown
}

/// Returns the JSON of a materializer's progress in a table.
fn standing_shown(standing: &MaterializerProgress) -> Json {
    let mut shown = json!({
        "name": standing.materializer,
        "state": standing.state.name(),
        "row_id": standing.row.0,
        "lsn": standing.lsn.0,
        "missing_rows": standing.missing,
    });
    if let Some(error) = &standing.error {
        // Paths and messages are for the log.
        shown["error"] = json!(error.kind().name());
    }
    shown
}

/// Makes the table, or adds the columns that it lacks. Everything that exists must agree with the body, or the request fails.
pub async fn put(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path(table): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let mut held = body::read(&app, &parts.headers, body).await?;
    values::admit(&mut held)?;
    let wanted = Definition::parse(&held.bytes)?;
    let full_name = name::full_table_name(&table)?;
    let retries = RetryDeadline::new();
    loop {
        let seen = app.engine.root().lsn();
        let view = app.engine.view(&principal)?;
        let (ops, status) = match view.resolve(&full_name) {
            Resolved::View(known) => {
                let short = name::short_table_name(&known.name);
                return Err(Error::new(Kind::Exists, format!("there is a view `{short}` already"))
                    .hint("choose another name, or drop the view first: DROP VIEW")
                    .into());
            }
            Resolved::Table(existing) => (evolve(existing.def(), &wanted)?, StatusCode::OK),
            // The engine decides whether the name may be used.
            Resolved::Missing | Resolved::Hidden | Resolved::Vault(_) | Resolved::Reserved(_) => (
                vec![Op::CreateTable { def: wanted.new_table(&full_name)?, if_absent: false }],
                StatusCode::CREATED,
            ),
        };
        // An index that already exists is one of this list itself, so retrying would not help.
        let may_race = ops.iter().any(|op| !matches!(op, Op::AlterIndexes { .. }));
        if !ops.is_empty() {
            match commit(&app, &principal, Transaction::new(ops)).await {
                Ok(_) => {}
                // Another request made or changed the table in the meantime, so the difference is computed again.
                Err(e) if e.kind() == Kind::Conflict || may_race && e.kind() == Kind::Exists => {
                    if !retries.wait_for_newer_root(&app, seen).await {
                        break;
                    }
                    continue;
                }
                Err(e) => return Err(e.into()),
            }
        }
        let table = app.engine.view(&principal)?.table(&full_name)?;
        return Ok((status, json(&shown(&app, &table))).into_response());
    }
    Err(Error::conflict("other requests keep changing the table").into())
}

/// A time limit for retries after conflicts with other writers. After it the request is refused as a conflict.
pub struct RetryDeadline {
    end: tokio::time::Instant,
}

impl RetryDeadline {
    const MAX: Duration = Duration::from_secs(15);

    pub fn new() -> Self {
        RetryDeadline { end: tokio::time::Instant::now() + Self::MAX }
    }

    /// Waits until one of these tables, given by full names, or a view of such a name exists. Returns false after the time limit.
    pub async fn wait_for_tables(&self, app: &Shared, tables: &[String]) -> bool {
        let mut seen = app.engine.root().lsn();
        while !any_exists(app, tables) {
            if !self.wait_for_newer_root(app, seen).await {
                return false;
            }
            seen = app.engine.root().lsn();
        }
        true
    }

    /// Waits until readers see a commit after `seen`. A change by another writer becomes visible once it is durable, which takes
    /// a while on a slow disk. Returns false after the time limit.
    pub async fn wait_for_newer_root(&self, app: &Shared, seen: Lsn) -> bool {
        let mut pause = Duration::from_millis(1);
        while app.engine.root().lsn() <= seen {
            if tokio::time::Instant::now() >= self.end {
                return false;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        tokio::time::Instant::now() < self.end
    }
}

/// Returns true if a table or view has one of these full names, visible to the client or not.
pub fn any_exists(app: &Shared, names: &[String]) -> bool {
    let root = app.engine.root();
    let is_one = |known: &str| names.iter().any(|name| name.to_lowercase() == known.to_lowercase());
    root.tables().any(|table| is_one(&table.def().name)) || root.views().any(|view| is_one(&view.name))
}

/// Returns the operations that change an existing table to a definition: new columns, other indexes and options. They are empty
/// if it already agrees.
fn evolve(def: &TableDef, wanted: &Definition) -> Result<Vec<Op>> {
    let differs =
        |what: String, hint: &str| Error::new(Kind::Schema, what).with("table", &def.name).hint(hint);
    let mut columns = Vec::new();
    let all = wanted.columns()?;
    for ParsedColumn { name, data_type, nullable, default, .. } in &all {
        let Some(existing) = def.schema.column_named(name) else {
            let (name, data_type, default) = (name.clone(), data_type.clone(), default.clone());
            columns.push(NewColumn { name, data_type, nullable: *nullable, default });
            continue;
        };
        if existing.data_type.to_string() != data_type.to_string() {
            let what = format!("column `{}` is {}, not {data_type}", existing.name, existing.data_type);
            return Err(differs(what, "a column keeps its type; add one with another name").into());
        }
        if !nullable && existing.takes_null() {
            let what = format!("column `{}` is nullable and may hold nulls", existing.name);
            return Err(differs(what, "add a NOT NULL column with a default instead").into());
        }
    }
    if let Some(key) = &wanted.primary_key {
        let same = key.len() == def.primary_key.len()
            && key.iter().zip(def.key_columns()).all(|(wanted, column)| *wanted == column.name);
        if !same {
            let key: Vec<&str> = def.key_columns().map(|c| c.name.as_str()).collect();
            let what = format!("the primary key is ({}) and cannot change", key.join(", "));
            return Err(differs(what, "make a new table and copy the rows").into());
        }
    }
    // A `retention` that an earlier version stored is shown by GET, so it may be repeated.
    if wanted
        .retention_seconds()
        .is_some_and(|seconds| def.options.retention != seconds.checked_mul(1_000_000))
    {
        return Err(definition::retention_alone().into());
    }
    if wanted.time.is_some() || wanted.lake.is_some() {
        let shown = definition::describe(def);
        let as_is = wanted.time.as_ref().is_none_or(|time| shown["time"] == json!(time))
            && wanted.lake.is_none_or(|lake| def.options.lake == Some(lake));
        if !as_is {
            let what = "time and lake are set when a table is made".to_owned();
            let hint = "columns, indexes, ttl, what is hot, partition_by and sort_by may change later";
            return Err(differs(what, hint).into());
        }
    }
    let mut ops = Vec::new();
    let mut changed_def = def.clone();
    for column in &columns {
        changed_def.add_column(&column.name, &column.data_type, column.nullable, column.default.clone())?;
    }
    let indexes = match &wanted.indexes {
        Some(indexes) => indexes_changed(def, &changed_def, indexes)?,
        None => None,
    };
    let mut changes = definition::input_changes(&changed_def, &all)?;
    if !columns.is_empty() {
        ops.push(Op::AddColumns { table: def.name.clone(), columns });
    }
    ops.extend(indexes);
    let ttl = wanted.ttl_micros()?.map(|ttl| AlterAction::SetTtl { to: Some(ttl) });
    let partitions = wanted.partition_by.clone().map(|to| AlterAction::SetPartitionBy { to });
    let sorts = wanted.sort_by.clone().map(|to| AlterAction::SetSortBy { to });
    let hot = wanted.hot()?.map(|to| AlterAction::SetHot { to });
    changes.extend([ttl, hot, partitions, sorts].into_iter().flatten());
    // Options come after the new columns, which they may name. Changes without effect are not committed.
    if !changes.is_empty() && !has_no_effect(def, &changes) {
        ops.push(Op::AlterTable { table: def.name.clone(), changes });
    }
    Ok(ops)
}

/// Returns true if changes of options have no effect. A change that names a new column has one.
fn has_no_effect(def: &TableDef, changes: &[AlterAction]) -> bool {
    def.altered(changes).is_ok_and(|changed| changed.is_none())
}

/// Returns the operation that changes a table's indexes to `wanted`, if they differ. `changed_def` is the table with its new
/// columns.
fn indexes_changed(def: &TableDef, changed_def: &TableDef, wanted: &[IndexDefinition]) -> Result<Option<Op>> {
    let mut kept: Vec<&str> = Vec::new();
    let mut add = Vec::new();
    // A vault's own index stays even if the list lacks it, and the list may contain it as GET shows it.
    let is_own = |wanted: &&IndexDefinition| {
        let is_site = |known: &&types::IndexDef| known.kind == types::INDEX_SITE;
        wanted.kind == types::INDEX_SITE
            && def.indexes.iter().find(is_site).is_some_and(|own| wanted.name.as_ref() == Some(&own.name))
    };
    for wanted in wanted.iter().filter(|wanted| !is_own(wanted)) {
        let new = wanted.parse()?;
        let index = changed_def.index_of(&new)?;
        let same = |known: &&types::IndexDef| {
            (&known.kind, &known.columns, &known.options) == (&index.kind, &index.columns, &index.options)
                && known.unique.is_some() == index.unique.is_some()
                && (new.name.is_empty() || known.name == new.name)
        };
        match def.indexes.iter().find(same) {
            Some(known) => kept.push(&known.name),
            None => add.push(new),
        }
    }
    let is_gone =
        |index: &&types::IndexDef| index.kind != types::INDEX_SITE && !kept.contains(&index.name.as_str());
    let gone = def.indexes.iter().filter(is_gone);
    let drop: Vec<String> = gone.map(|index| index.name.clone()).collect();
    if drop.is_empty() && add.is_empty() {
        return Ok(None);
    }
    Ok(Some(Op::AlterIndexes { table: def.name.clone(), drop, add }))
}

pub async fn remove(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path(table): Path<String>,
) -> Result<Response> {
    let op = Op::DropTable { table, if_exists: false };
    let committed = commit(&app, &principal, Transaction::new(vec![op])).await?;
    Ok(json(&json!({ "lsn": committed.lsn.0 })))
}

/// Submits a transaction and waits for it without blocking the thread.
pub async fn commit(
    app: &Shared,
    principal: &Principal,
    transaction: Transaction,
) -> types::Result<engine::Committed> {
    let (sender, outcome) = outcome_channel();
    app.engine.submit(principal, transaction, sender);
    outcome.await
}

/// Commits a transaction that depends on rows read in `view`. Waits without blocking the thread.
pub async fn commit_read(
    app: &Shared,
    view: &View,
    principal: &Principal,
    transaction: Transaction,
) -> types::Result<engine::Committed> {
    let (sender, outcome) = outcome_channel();
    app.engine.submit_read(view, principal, transaction, sender);
    outcome.await
}

type Outcome = types::Result<engine::Committed>;

/// Returns a callback for the outcome of a transaction, and a future that resolves with it.
fn outcome_channel() -> (impl FnOnce(Outcome) + Send + 'static, impl Future<Output = Outcome>) {
    let (sender, receiver) = oneshot::channel();
    let tell = move |result| {
        // The send fails if the client is gone. The commit stays.
        let _ = sender.send(result);
    };
    let closing = |_| Err(Error::new(Kind::Closed, "the database is closing"));
    (tell, async move { receiver.await.unwrap_or_else(closing) })
}
