//! Erasure: makes deletes permanent in history. Rows that have been deleted or replaced are removed from the lake's files and
//! snapshots and from the table's own files. The answer reports what was done, and which copies an erasure does not reach.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use engine::Erasure;
use http::Request;
use lake::{ErasureReport, Lake};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use types::{Error, Kind, Lsn, Principal, Scope, TableDef, TableId, name};
use vfs::{Mutex, Rank};

use super::{deadline, redacted, standing};
use crate::app::Shared;
use crate::failure::Result;
use crate::input;
use crate::routes::json;

/// The last erasure of each table, so that a repeated request joins it instead of starting a second one.
pub struct Erasures(Mutex<BTreeMap<TableId, Arc<TableErasure>>>);

impl Default for Erasures {
    fn default() -> Self {
        Erasures(Mutex::new(Rank::new(28, "erasures"), BTreeMap::new()))
    }
}

/// An erasure in the local files and in the lake.
struct TableErasure {
    lsn: Lsn,
    local: Arc<Erasure>,
    /// The result in the lake, or `None` if the table has no lake.
    lake: Option<Arc<OnceLock<types::Result<ErasureReport>>>>,
    /// True if a copy of the lake from before it moved elsewhere existed on this machine and was removed.
    old_lake: AtomicBool,
}

impl TableErasure {
    fn failed(&self) -> Option<Error> {
        let lake = self.lake.as_ref().and_then(|lake| lake.get()?.clone().err());
        let local = self.local.state();
        lake.or(local.error).or(local.ended.and_then(|ended| ended.err()))
    }

    fn is_done(&self) -> bool {
        let lake = self.lake.as_ref().is_none_or(|lake| lake.get().is_some());
        lake && self.local.state().ended.is_some()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EraseQuery {
    /// Rows that were deleted up to this commit are erased; by default all that were deleted so far.
    lsn: Option<u64>,
    deadline_ms: Option<u64>,
}

/// Initial time between two checks of the progress.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Erases the rows that have been deleted from a table so far, and answers once that is done.
pub async fn erase(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path(table): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    let params: EraseQuery = input::query(request.uri())?;
    let deadline = deadline(params.deadline_ms)?;
    let view = app.engine.view(&principal)?;
    let found = view.table(&table)?;
    let lsn = match params.lsn.map(Lsn) {
        Some(lsn) if lsn > view.lsn() => {
            return Err(Error::invalid(format!(
                "lsn {lsn} does not exist yet; the newest is {}",
                view.lsn()
            ))
            .hint("leave `lsn` out to erase what was deleted so far")
            .into());
        }
        // Commits after the table's last change did not touch it. Background work on the table counts as a change.
        lsn => lsn.unwrap_or(found.lsn()).min(found.lsn()),
    };
    let def = found.def().clone();
    let has_lake = standing(&app, &found).is_some();
    drop((view, found));
    let erasure = begin(&app, &def, lsn, has_lake)?;
    let until = Instant::now() + deadline;
    let mut stopping = app.stopping.subscribe();
    let mut rest = CHECK_INTERVAL;
    loop {
        if *stopping.borrow() {
            return Err(Error::new(Kind::Closed, "the server stops; ask again when it runs").into());
        }
        if let Some(error) = erasure.failed().or(app.engine.status().write_error) {
            return Err(failure_for(error, &principal).into());
        }
        if erasure.is_done() {
            return Ok(json(&report(&app, &def, &erasure, &principal).await?));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(timeout_error(&def, &erasure, deadline).into());
        }
        tokio::select! {
            () = tokio::time::sleep(rest.min(left)) => {}
            _ = stopping.changed() => {}
        }
        rest = (rest * 2).min(Duration::from_millis(200));
    }
}

/// Joins an erasure that runs or is done for this commit or a later one, or starts a new one.
fn begin(app: &Shared, def: &TableDef, lsn: Lsn, has_lake: bool) -> types::Result<Arc<TableErasure>> {
    let id = def.id;
    let materializer = app.options.lake.clone().filter(|_| has_lake);
    {
        let known = app.erasures.0.lock();
        let fits = |erasure: &&Arc<TableErasure>| {
            erasure.lsn >= lsn
                && erasure.lake.is_some() == materializer.is_some()
                && erasure.failed().is_none()
        };
        if let Some(erasure) = known.get(&id).filter(fits) {
            return Ok(erasure.clone());
        }
    }
    let local = app.engine.erase(id, lsn)?;
    let lake = materializer.map(|materializer| {
        let outcome = Arc::new(OnceLock::new());
        let result = outcome.clone();
        // The callback is called once, so `set` cannot fail.
        materializer.erase(id, lsn, Box::new(move |erased| drop(result.set(erased))));
        app.engine.hurry(lake::NAME, id);
        outcome
    });
    let erasure = Arc::new(TableErasure { lsn, local, lake, old_lake: AtomicBool::new(false) });
    let root = app.engine.root();
    let mut known = app.erasures.0.lock();
    // Entries of dropped tables are removed, since nobody can request them.
    known.retain(|id, _| root.tables().any(|table| table.def().id == *id));
    known.insert(id, erasure.clone());
    Ok(erasure)
}

/// Returns the error of a failed erasure. Only admins see paths and messages.
fn failure_for(error: Error, principal: &Principal) -> Error {
    match error.kind() {
        Kind::NotFound | Kind::Closed | Kind::Busy => error,
        _ => redacted(error, principal),
    }
}

fn timeout_error(def: &TableDef, erasure: &TableErasure, deadline: Duration) -> Error {
    let local = erasure.local.state();
    let indexes = match local.indexes_left.as_slice() {
        [] => String::new(),
        left => format!(
            ", files of the {} index are being rewritten or are held by a reader",
            left.join(" and the ")
        ),
    };
    let lake = match &erasure.lake {
        None => "",
        Some(lake) if lake.get().is_some() => ", the lake is done",
        Some(_) => ", the lake is not done",
    };
    let held = match local.segments_held {
        0 => String::new(),
        n => format!(", {n} replaced ones are held by a reader or wait for a manifest"),
    };
    let table = name::short_table_name(&def.name);
    let rewritten = local.segments_rewritten;
    Error::new(Kind::Timeout, format!("`{table}` is not erased after {} ms", deadline.as_millis())).hint(
        format!(
            "it goes on: {rewritten} segments rewritten{held}{indexes}{lake}; ask again with lsn={} for the result",
            erasure.lsn
        ),
    )
}

/// The former lakes of a table: copies on this machine from before its lake moved elsewhere.
struct FormerLake {
    env: vfs::Env,
    warehouse: PathBuf,
    table: TableId,
    /// The directory of the table's current lake.
    written: Option<PathBuf>,
}

impl FormerLake {
    /// Returns `None` if lakes are still written where they have always been.
    fn of(app: &Shared, def: &TableDef) -> Option<FormerLake> {
        let warehouse = app.options.lake.as_ref()?.options().former.clone()?;
        let root = app.engine.root();
        let lake = root.derived(lake::NAME, def.id).and_then(|position| position.published::<Lake>());
        let written = lake.map(|lake| lake.dir.clone());
        Some(FormerLake { env: app.engine.env().clone(), warehouse, table: def.id, written })
    }

    fn find(&self) -> types::Result<Vec<PathBuf>> {
        lake::abandoned_lakes::find(&self.env, &self.warehouse, self.table, self.written.as_deref())
    }

    fn remove(&self) -> types::Result<bool> {
        lake::abandoned_lakes::remove(&self.env, &self.warehouse, self.table, self.written.as_deref())
    }
}

async fn report(app: &Shared, def: &TableDef, erasure: &TableErasure, principal: &Principal) -> Result<Json> {
    // The old copies are removed only after the current lake was erased: that proves that it contains the whole table.
    let erased = erasure.lake.as_ref().and_then(|lake| lake.get()?.clone().ok());
    if erased.is_some()
        && let Some(former) = FormerLake::of(app, def)
        && app.work.run(move || former.remove()).await??
    {
        erasure.old_lake.store(true, Ordering::Release);
    }
    let local = erasure.local.state();
    let mut answer = json!({
        "table": name::short_table_name(&def.name),
        "lsn": erasure.lsn.0,
        "local": {
            "history_segments": local.history_segments,
            "segments_rewritten": local.segments_rewritten,
            "segments_damaged": local.segments_damaged,
            "segments_removed": local.segments_removed,
            "bytes_removed": local.bytes_removed,
            "old_lake_removed": erasure.old_lake.load(Ordering::Acquire),
        },
    });
    let root = app.engine.root();
    let table = root.tables().find(|table| table.def().id == def.id).cloned();
    if let Some(table) = &table {
        answer["local"]["past_from_lsn"] = json!(table.past_floor().0);
    }
    answer["lake"] = match erased {
        None => Json::Null,
        Some(erased) => {
            let mut shown = json!({
                "rows": erased.rows,
                "files_rewritten": erased.files_rewritten,
                "snapshots_dropped": erased.snapshots_dropped,
                "files_removed": erased.files_removed,
                "bytes_removed": erased.bytes_removed,
                "foreign_files": erased.foreign_files,
            });
            let position = root.derived(lake::NAME, def.id);
            if let Some(lake) = position.and_then(|position| position.published::<Lake>()) {
                shown["snapshot_id"] = json!(lake.snapshot_id().map(|id| id.to_string()));
                (shown["row"], shown["lsn"]) = (json!(lake.row.0), json!(lake.lsn.0));
            }
            shown
        }
    };
    answer["elsewhere"] = elsewhere(app, def, principal, erasure).await?;
    Ok(answer)
}

/// Returns the places with copies that an erasure does not reach, each with the condition under which the copy goes away.
async fn elsewhere(
    app: &Shared,
    def: &TableDef,
    principal: &Principal,
    erasure: &TableErasure,
) -> Result<Json> {
    let status = app.engine.status();
    let mut all = vec![json!({
        "what": "log",
        "until": "its files, and those that wait to be used again, are overwritten by newer commits",
        "files": status.log.files,
    })];
    if let Some(archive) = &status.archive {
        let mut of = json!({ "what": "archive", "until": "files of it are removed by hand" });
        if principal.require_unlimited().is_ok() {
            of["path"] = json!(archive.dir.display().to_string());
        }
        all.push(of);
    }
    all.push(json!({ "what": "backups", "until": "those that were taken before are removed" }));
    if erasure.lake.is_some()
        && app.options.lake.as_ref().is_some_and(|lake| lake.options().objects.is_some())
    {
        all.push(json!({
            "what": "older versions of objects and parts of unfinished uploads, where the bucket keeps them",
            "until": "the bucket's own rules remove them",
        }));
    }
    // Rejected rows are stored as they were sent.
    let dead = engine::dead_letters::table_of(&def.name);
    if app.engine.view(principal)?.find(&dead).is_some() {
        all.push(json!({
            "what": format!("dead letters in {}", name::short_table_name(&dead)),
            "until": "they are deleted there, and that table is erased too",
        }));
    }
    if app.engine.root().table(engine::idempotency::TABLE).is_some() {
        all.push(json!({
            "what": "remembered answers",
            "until": "requests with an Idempotency-Key whose answers had the row are forgotten",
        }));
    }
    if erasure.lake.is_none()
        && let Some(materializer) = app.options.lake.clone()
    {
        let (env, of) = (app.engine.env().clone(), def.clone());
        if app.work.run(move || materializer.lake_exists(&env, &of)).await?? {
            all.push(json!({
                "what": "an Iceberg table of it that is not written any more",
                "until": "its directory in the lake is removed by hand",
            }));
        }
    }
    if let Some(former) = FormerLake::of(app, def) {
        for dir in app.work.run(move || former.find()).await?? {
            let mut of = json!({
                "what": "an Iceberg table of it on this machine that is not written any more",
                "until": "its directory in `lake/` is removed by hand",
            });
            if principal.require(Scope::Admin).is_ok() {
                of["path"] = json!(dir.display().to_string());
            }
            all.push(of);
        }
    }
    Ok(json!(all))
}
