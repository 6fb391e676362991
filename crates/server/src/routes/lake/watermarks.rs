//! Watermarks of a table: the rows that are acknowledged, sealed and in the lake. A request may wait until a watermark is
//! reached.
//!
//! A row has *passed* into the lake when the lake contains all row ids up to it and every delete of the commit that wrote it. By
//! the rule of positions ([`table::materializer`]) the one implies the other. So an update has passed with its new row, and the
//! old row is gone by then. A delete alone has no row, so its client waits for its lsn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use engine::View;
use http::Request;
use lake::MissingChanges;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use table::Snapshot;
use table::materializer::Position;
use types::{Error, Kind, Lsn, Principal, RowId, Scope, TableId, name};

use super::{DEADLINE_MAX, FAILURE_EVERY, check_followed, is_there, position_json, redacted, standing};
use crate::app::Shared;
use crate::auth::Admitted;
use crate::failure::Result;
use crate::input;
use crate::revocation;
use crate::routes::json;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WatermarksQuery {
    wait: Option<Watermark>,
    row: Option<u64>,
    lsn: Option<u64>,
    deadline_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Watermark {
    Acknowledged,
    Sealed,
    Lake,
}

/// Answers with the watermarks of a table. With `wait`, answers once the watermark has reached the goal.
pub async fn watermarks(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Extension(admitted): Extension<Admitted>,
    Path(table): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    let params: WatermarksQuery = input::query(request.uri())?;
    let deadline = input::deadline(params.deadline_ms)?.unwrap_or(WAIT).min(DEADLINE_MAX);
    let goal = match (params.wait, params.row, params.lsn) {
        (None, None, None) if params.deadline_ms.is_none() => None,
        (None, ..) => {
            return Err(Error::invalid("`row`, `lsn` and `deadline_ms` belong to `wait`")
                .hint("say what is waited for: `wait=acknowledged`, `wait=sealed` or `wait=lake`")
                .into());
        }
        (Some(_), Some(_), Some(_)) => {
            return Err(Error::invalid("`row` and `lsn` exclude each other")
                .hint("`lsn` is what the answer of a write says; it covers its rows and its deletes")
                .into());
        }
        (Some(mark), row, lsn) => Some((mark, row.map(RowId), lsn.map(Lsn))),
    };
    let view = app.engine.view(&principal)?;
    let found = view.table(&table)?;
    let full_name = found.def().name.clone();
    let Some((mark, row, lsn)) = goal else {
        return Ok(json(&watermarks_json(&app, &view, &found, &principal).await?));
    };
    if mark == Watermark::Lake {
        check_followed(&app, &found)?;
    }
    let goal = match (row, lsn) {
        (Some(row), _) => Goal::Row(row),
        (None, Some(lsn)) => Goal::Commit(lsn),
        (None, None) => Goal::Point(last_row(&found), found.lsn()),
    };
    let mut waiter =
        Waiter { app, principal, admitted, full_name, id: found.def().id, mark, goal, lacked: None };
    drop((view, found));
    match tokio::time::timeout(deadline, waiter.reached()).await {
        Ok(reached) => Ok(json(&reached?)),
        Err(_) => Err(waiter.timeout_error(deadline).await?.into()),
    }
}

fn last_row(table: &Snapshot) -> RowId {
    RowId(table.next_row().0 - 1)
}

/// The goal of a waiting request.
#[derive(Clone, Copy, Debug)]
enum Goal {
    /// All rows up to this one, which need not exist yet.
    Row(RowId),
    /// All rows and deletes of this commit and those before it. The last row of the commit is not known yet.
    Commit(Lsn),
    /// All rows up to this one, and all deletes up to this lsn.
    Point(RowId, Lsn),
}

struct Waiter {
    app: Shared,
    principal: Arc<Principal>,
    admitted: Admitted,
    full_name: String,
    id: TableId,
    mark: Watermark,
    goal: Goal,
    /// A position of the lake (row and lsn), and an lsn of the table. At that position the lake lacked something of the table at
    /// that lsn, so the check need not be repeated.
    lacked: Option<(RowId, Lsn, Lsn)>,
}

impl Waiter {
    /// Waits for the goal and returns the watermarks.
    async fn reached(&mut self) -> Result<Json> {
        let mut lsn = self.app.lsn.subscribe();
        let mut stopping = self.app.stopping.subscribe();
        let started = Instant::now();
        loop {
            if *stopping.borrow() {
                return Err(Error::new(Kind::Closed, "the server stops").into());
            }
            // The receiver is marked before the view is taken, so that any later change wakes this task.
            lsn.borrow_and_update();
            let (view, table) = self.look()?;
            if self.is_reached(&view, &table).await? {
                return watermarks_json(&self.app, &view, &table, &self.principal).await;
            }
            // A log that takes no more writes takes no edits either, so no watermark will move.
            if let Some(error) = self.app.engine.status().write_error {
                return Err(redacted(error, &self.principal).into());
            }
            if self.mark == Watermark::Lake
                && let Some(error) = standing(&self.app, &table).and_then(|standing| standing.error)
            {
                return Err(redacted(error, &self.principal).into());
            }
            drop((view, table));
            // Each request checks less often the longer it has waited, so that many waiting requests cost little. It is late by
            // at most a twentieth of its waiting time.
            let rest = (started.elapsed() / 20).min(REST_MAX);
            tokio::select! {
                () = async {
                    tokio::time::sleep(rest).await;
                    // A failed step publishes nothing, so this also polls.
                    let _ = tokio::time::timeout(FAILURE_EVERY.max(rest), lsn.changed()).await;
                } => {}
                _ = stopping.changed() => {}
            }
        }
    }

    /// Returns the newest view and the table, if the principal may still see it.
    fn look(&self) -> Result<(View, Arc<Snapshot>)> {
        if !self.admitted.still_holds(self.app.engine.root().keys()) {
            return Err(revocation::refusal(&self.principal));
        }
        let view = self.app.engine.view(&self.principal)?;
        let found = view.find(&self.full_name).filter(|table| table.def().id == self.id);
        let table = found.ok_or_else(|| {
            let short = name::short_table_name(&self.full_name);
            Error::not_found(format!("table `{short}` was dropped"))
        })?;
        Ok((view, table))
    }

    async fn is_reached(&mut self, view: &View, table: &Arc<Snapshot>) -> Result<bool> {
        if let Goal::Commit(lsn) = self.goal {
            if lsn > view.lsn() {
                return Ok(false);
            }
            let found = table.clone();
            let last = self.app.work.run(move || found.last_row_at(lsn)).await??;
            self.goal = Goal::Point(last, lsn.min(table.lsn()));
        }
        let (row, lsn) = match self.goal {
            Goal::Row(row) => (row, Lsn(0)),
            Goal::Point(row, lsn) => (row, lsn),
            Goal::Commit(_) => return Ok(false),
        };
        match self.mark {
            Watermark::Acknowledged => Ok(table.next_row() > row),
            Watermark::Sealed => Ok(table.sealed_next() > row),
            Watermark::Lake => {
                let Some(position) = view.derived(lake::NAME, table) else { return Ok(false) };
                if !self.has_landed(&position, table, row, lsn).await? {
                    return Ok(false);
                }
                if self.app.work.run(move || is_there(&position)).await?? {
                    return Ok(true);
                }
                Err(Error::new(Kind::Damaged, "the lake's newest metadata file is gone")
                    .with("table", short(table))
                    .hint("POST …/commit lands the table anew")
                    .into())
            }
        }
    }

    async fn has_landed(
        &mut self,
        position: &Arc<Position>,
        table: &Arc<Snapshot>,
        row: RowId,
        lsn: Lsn,
    ) -> Result<bool> {
        let checkpoint = &position.checkpoint;
        if checkpoint.row >= row && checkpoint.lsn >= lsn {
            return Ok(true);
        }
        // A lake that lacks no rows and deletes of the table commits nothing, so its lsn may stay behind for ever.
        if table.next_row() <= row || checkpoint.row < row {
            return Ok(false);
        }
        let at = (checkpoint.row, checkpoint.lsn, table.lsn());
        if self.lacked == Some(at) {
            return Ok(false);
        }
        let (found, position) = (table.clone(), position.clone());
        let lacks = self.app.work.run(move || MissingChanges::at(&position, &found)).await??;
        self.lacked = Some(at);
        Ok(!lacks.any())
    }

    /// Returns the error for a goal that was not reached in time, with the watermarks so far.
    async fn timeout_error(&self, deadline: Duration) -> Result<Error> {
        let (view, table) = self.look()?;
        let mut so_far =
            format!("acknowledged row {}, sealed row {}", last_row(&table), table.sealed_next().0 - 1);
        if let Some(position) = view.derived(lake::NAME, &table) {
            let checkpoint = &position.checkpoint;
            so_far += &format!(", in the lake row {} of lsn {}", checkpoint.row, checkpoint.lsn);
        }
        let what = match self.mark {
            Watermark::Acknowledged => "is not acknowledged",
            Watermark::Sealed => "is not in segments",
            Watermark::Lake => "is not in the lake",
        };
        let which = match self.goal {
            Goal::Row(row) => format!("row {row}"),
            Goal::Commit(lsn) => format!("lsn {lsn}"),
            Goal::Point(row, lsn) => format!("row {row} of lsn {lsn}"),
        };
        let message = format!("{which} {what} after {} ms", deadline.as_millis());
        Ok(Error::new(Kind::Timeout, message)
            .with("table", short(&table))
            .hint(format!("so far: {so_far}; ask again, or with a larger deadline_ms")))
    }
}

/// Default time limit. Rows that arrive slowly land a minute after the first of them.
const WAIT: Duration = Duration::from_secs(120);
/// Longest time between two checks, and so the largest delay of an answer.
const REST_MAX: Duration = Duration::from_millis(500);

fn short(table: &Snapshot) -> &str {
    name::short_table_name(&table.def().name)
}

async fn watermarks_json(
    app: &Shared,
    view: &View,
    table: &Arc<Snapshot>,
    principal: &Principal,
) -> Result<Json> {
    let mut shown = json!({
        "table": short(table),
        "acknowledged": { "row": last_row(table).0, "lsn": table.lsn().0 },
        "sealed": { "row": table.sealed_next().0 - 1 },
    });
    let Some(standing) = standing(app, table) else { return Ok(shown) };
    let position = view.derived(lake::NAME, table);
    shown["lake"] = match &position {
        Some(position) => position_json(position, principal)?,
        None => Json::Null,
    };
    let gone = match position {
        Some(position) => !app.work.run(move || is_there(&position)).await??,
        None => false,
    };
    if gone {
        shown["lake_error"] = json!("its newest metadata file is gone; a commit lands the table anew");
    }
    if let Some(error) = standing.error {
        let is_admin = principal.require(Scope::Admin).is_ok();
        shown["lake_error"] =
            json!(if is_admin { error.to_string() } else { error.kind().name().to_owned() });
    }
    Ok(shown)
}
