//! Routes that show the contents of a table's lake: its progress, snapshots and files.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use http::Request;
use iceberg::manifest::{Content, Entry};
use lake::Lake;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use table::Snapshot;
use table::materializer::Position;
use types::{Error, Principal, RowId, Scope, TIME, name};

use super::{check_followed, is_there, position_json, standing};
use crate::app::Shared;
use crate::failure::Result;
use crate::input;
use crate::routes::json;

/// A table and its lake's position.
struct VisibleLake {
    table: Arc<Snapshot>,
    position: Option<Arc<Position>>,
}

fn find(app: &Shared, principal: &Principal, table: &str) -> Result<VisibleLake> {
    let view = app.engine.view(principal)?;
    let table = view.table(table)?;
    check_followed(app, &table)?;
    let position = view.derived(lake::NAME, &table);
    Ok(VisibleLake { table, position })
}

fn lake_of(found: &VisibleLake) -> Result<Arc<Lake>> {
    let lake = found.position.as_ref().and_then(|position| position.published::<Lake>());
    let table = name::short_table_name(&found.table.def().name);
    lake.ok_or_else(|| {
        Error::not_found(format!("the table `{table}` has not landed yet"))
            .hint("`polynya lake commit`, or POST …/lake/commit, lands it now; GET …/lake says why if it cannot")
            .into()
    })
}

/// Answers with the progress of a table's lake, its size, and the reason why it does not land.
pub async fn status(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path(table): Path<String>,
) -> Result<Response> {
    let found = find(&app, &principal, &table)?;
    let standing = standing(&app, &found.table);
    let last = RowId(found.table.next_row().0 - 1);
    let mut answer = json!({
        "table": name::short_table_name(&found.table.def().name),
        "acknowledged": { "row": last.0, "lsn": found.table.lsn().0 },
    });
    let landed = found.position.as_ref().map_or(RowId(0), |position| position.checkpoint.row);
    let snapshot = found.table.clone();
    let now = app.engine.env().clock.now();
    let position = found.position.clone();
    let look = move || {
        let first = snapshot.scan_from(landed.next(), 1, &snapshot.projection(&[TIME])?)?;
        let waits = first.column_by_name(types::TIME_NAME).filter(|times| !times.is_empty()).map(|times| {
            match types::Value::from_array(times, &types::DataType::Timestamp, 0) {
                types::Value::Timestamp(time) => now.saturating_sub(time).max(0),
                _ => 0,
            }
        });
        let rows = snapshot.rows_between(landed.next(), last)?;
        let gone = match &position {
            Some(position) => !is_there(position)?,
            None => false,
        };
        Ok::<_, Error>((waits, rows, gone))
    };
    let (waits, rows, gone) = app.work.run(look).await??;
    answer["lag"] = json!({ "rows": rows, "seconds": waits.map_or(0.0, |us| us as f64 / 1e6) });
    let lake = found.position.as_ref().and_then(|position| Some((position, position.published::<Lake>()?)));
    answer["lake"] = match lake {
        None => Json::Null,
        Some((position, lake)) => {
            let mut all = position_json(position, &principal)?;
            let extent = lake.extent();
            all["deleted_rows"] = json!(extent.deleted_rows);
            all["snapshots"] = json!(extent.snapshots);
            all["manifests"] = json!(extent.manifests);
            all["metadata_files"] = json!(extent.metadata_files);
            all
        }
    };
    if gone {
        answer["error"] = json!("its newest metadata file is gone; a commit lands the table anew");
    }
    if let Some(error) = standing.and_then(|standing| standing.error) {
        let is_admin = principal.require(Scope::Admin).is_ok();
        answer["error"] = json!(if is_admin { error.to_string() } else { error.kind().name().to_owned() });
    }
    Ok(json(&answer))
}

/// Lists the kept snapshots, oldest first.
pub async fn snapshots(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path(table): Path<String>,
) -> Result<Response> {
    let found = find(&app, &principal, &table)?;
    let lake = lake_of(&found)?;
    let current = lake.snapshot_id();
    let snapshot = |snapshot: &iceberg::metadata::Snapshot| {
        let number = |key: &str| snapshot.summary.get(key).and_then(|text| text.parse::<u64>().ok());
        let stored = number("total-records").zip(number("total-position-deletes"));
        json!({
            // Snapshot ids may exceed 2^53, so they are written as text.
            "snapshot_id": snapshot.snapshot_id.to_string(),
            "parent_id": snapshot.parent_snapshot_id.map(|id| id.to_string()),
            "sequence": snapshot.sequence_number,
            "committed_ms": snapshot.timestamp_ms,
            "operation": snapshot.summary.get("operation"),
            "rows": stored.map(|(rows, deleted)| rows.saturating_sub(deleted)),
            "data_files": number("total-data-files"),
            "delete_files": number("total-delete-files"),
            "bytes": number("total-files-size"),
            "added_rows": number("added-records").unwrap_or(0),
            "row": number(iceberg::metadata::ROW),
            "lsn": number(iceberg::metadata::LSN),
            "schema_id": snapshot.schema_id,
            "current": Some(snapshot.snapshot_id) == current,
        })
    };
    let all: Vec<Json> = lake.metadata.snapshots.iter().map(|kept| snapshot(kept)).collect();
    let table = name::short_table_name(&found.table.def().name);
    Ok(json(&json!({ "table": table, "snapshots": all })))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilesQuery {
    from: Option<usize>,
    limit: Option<usize>,
}

/// Number of files in an answer if the request does not set `limit`.
const FILES: usize = 1_000;
const FILES_MAX: usize = 10_000;

/// Lists the files of the current snapshot: data files by their first row, then position delete files.
pub async fn files(
    State(app): State<Shared>,
    Extension(principal): Extension<Arc<Principal>>,
    Path(table): Path<String>,
    request: Request<Body>,
) -> Result<Response> {
    let params: FilesQuery = input::query(request.uri())?;
    let (from, limit) = (params.from.unwrap_or(0), params.limit.unwrap_or(FILES));
    if !(1..=FILES_MAX).contains(&limit) {
        return Err(Error::invalid(format!("`limit` is from 1 to {FILES_MAX}, {limit} was given"))
            .hint("`next` of an answer is the `from` of the one after it")
            .into());
    }
    let found = find(&app, &principal, &table)?;
    let lake = lake_of(&found)?;
    let is_admin = principal.require(Scope::Admin).is_ok();
    let place = |entry: &Entry| {
        // Full paths are shown to admins only.
        let path = &entry.file.path;
        if is_admin { path.clone() } else { path.rsplit('/').next().unwrap_or_default().to_owned() }
    };
    let file = |entry: &Entry| {
        let spec = lake.specs().get(&entry.file.spec);
        let values =
            spec.map(|spec| iceberg::partition_text::values(spec, &entry.file.partition)).unwrap_or_default();
        let partition: serde_json::Map<String, Json> =
            values.into_iter().map(|(name, value)| (name, json!(value))).collect();
        json!({
            "content": match entry.file.content { Content::Data => "data", Content::Deletes => "deletes" },
            "partition": partition,
            "spec": entry.file.spec,
            "sort_order": entry.file.sort_order,
            "sequence": entry.sequence,
            "rows": entry.file.rows,
            "bytes": entry.file.bytes,
            "path": place(entry),
        })
    };
    let data = lake.data.iter().map(|live| {
        let mut all = file(&live.entry);
        all["deleted_rows"] = json!(live.deleted);
        (all["first_row"], all["last_row"]) = (json!(live.first.0), json!(live.last.0));
        all
    });
    let deletes = lake.deletes.iter().map(|deletes| file(&deletes.entry));
    let all: Vec<Json> = data.chain(deletes).skip(from).take(limit).collect();
    let count = lake.data.len() + lake.deletes.len();
    let next = Some(from.saturating_add(all.len())).filter(|next| *next < count && !all.is_empty());
    let table = name::short_table_name(&found.table.def().name);
    let snapshot = lake.snapshot_id().map(|id| id.to_string());
    Ok(json(&json!({
        "table": table, "snapshot_id": snapshot, "count": count, "files": all, "next": next,
    })))
}
