//! Implements the tools. None of them writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use ask::Question;
use query::{Limits, Overflow};
use rmcp::model::JsonObject;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use types::{Error, Kind, Principal, ROW_ID, RowId, name};

use super::schema;
use crate::app::Shared;
use crate::definition;
use crate::failure::{Failure, Result};
use crate::input;
use crate::routes::{rows, search};
use crate::values;
use wire::out;

/// Maximum number of tables in an answer of `tables`.
const TABLES_MAX: usize = 200;
/// Maximum number of bytes of one answer, because a model has to read it.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The table of notes if the server's settings name none.
const VAULT: &str = "vault";

/// One call of a tool.
pub struct Call<'a> {
    pub app: &'a Shared,
    pub principal: &'a Arc<Principal>,
}

/// The answer of a tool.
pub struct ToolAnswer {
    /// The answer for clients that read only text.
    pub text: String,
    pub value: Json,
}

impl ToolAnswer {
    fn json(value: Json) -> ToolAnswer {
        ToolAnswer { text: value.to_string(), value }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TablesArguments {
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchArguments {
    query: String,
    #[serde(default)]
    tables: Vec<String>,
    filter: Option<String>,
    limit: Option<u64>,
    fields: Option<Vec<String>>,
    deadline_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SqlArguments {
    sql: String,
    #[serde(default)]
    params: Vec<Json>,
    rows_max: Option<u64>,
    deadline_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskArguments {
    question: String,
    #[serde(default)]
    sources: Vec<String>,
    deadline_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GetArguments {
    table: Option<String>,
    key: Option<Json>,
    note: Option<String>,
}

impl Call<'_> {
    pub fn tables(&self, arguments: JsonObject) -> Result<ToolAnswer> {
        let arguments: TablesArguments = read_arguments(arguments)?;
        let view = self.app.engine.view(self.principal)?;
        let tables = match &arguments.name {
            Some(name) => vec![view.table(name)?],
            None => view.tables(),
        };
        let shown = |table: &Arc<table::Snapshot>| {
            let def = table.def();
            let described = definition::describe(def);
            json!({
                "name": described["name"],
                "rows": table.rows(),
                "columns": described["columns"].as_array().into_iter().flatten().map(column).collect::<Vec<_>>(),
                "primary_key": described["primary_key"],
                "searchable": def.indexes.iter().any(|index| index.kind == "text"),
            })
        };
        let list: Vec<Json> = tables.iter().take(TABLES_MAX).map(shown).collect();
        let mut answer = json!({ "tables": list, "lsn": view.lsn().0 });
        if tables.len() > TABLES_MAX {
            answer["more"] = json!(tables.len() - TABLES_MAX);
        }
        Ok(ToolAnswer::json(answer))
    }

    pub async fn search(&self, arguments: JsonObject) -> Result<ToolAnswer> {
        let arguments: SearchArguments = read_arguments(arguments)?;
        let Some(searcher) = &self.app.options.search else {
            return Err(Error::not_found("this server was started without search").into());
        };
        let started = Instant::now();
        let limit = within(arguments.limit, schema::SEARCH_LIMIT_DEFAULT, schema::SEARCH_LIMIT_MAX, "limit")?;
        let request = query::search::Request {
            tables: arguments.tables,
            filter: arguments.filter,
            // Without `fields` a hit has its snippets only; `get` returns the full texts.
            brief: arguments.fields.is_none(),
            fields: arguments.fields,
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            deadline: Some(deadline(arguments.deadline_ms)?),
            ..query::search::Request::new(arguments.query)
        };
        let found = searcher.run(self.principal, request).await?;
        let bytes = search::answer_json(&found, false, started)?;
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err(too_long("name the columns to show as `fields`, or ask for fewer rows"));
        }
        let answer: Json = serde_json::from_slice(&bytes)
            .map_err(|e| Error::internal(format!("an answer is not JSON: {e}")))?;
        Ok(ToolAnswer::json(answer))
    }

    pub async fn sql(&self, arguments: JsonObject) -> Result<ToolAnswer> {
        let arguments: SqlArguments = read_arguments(arguments)?;
        let rows_max =
            within(arguments.rows_max, schema::SQL_ROWS_DEFAULT, schema::SQL_ROWS_MAX, "rows_max")?;
        let limits = Limits {
            deadline: Some(deadline(arguments.deadline_ms)?),
            rows_max: Some(rows_max),
            overflow: Overflow::Truncate,
        };
        let params = values::parameters(&arguments.params)?;
        let view = self.app.engine.view(self.principal)?;
        let mut rows = self.app.sql.read(view, &arguments.sql, params, limits).await?;
        let columns: Vec<Json> =
            rows.columns().into_iter().map(|c| json!({ "name": c.name, "type": c.data_type })).collect();
        let writer = out::json::Writer::new(rows.schema());
        let (mut text, mut first, mut count) = (b"[".to_vec(), true, 0);
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            count += batch.num_rows();
            // A batch is small because the number of rows is bounded, but a single row may be long.
            writer.arrays(&batch, &mut first, &mut text);
            if text.len() > ANSWER_BYTES_MAX {
                return Err(too_long("select fewer columns or rows, or aggregate"));
            }
        }
        text.push(b']');
        let list: Json =
            serde_json::from_slice(&text).map_err(|e| Error::internal(format!("rows are not JSON: {e}")))?;
        let lsn = rows.lsn().0;
        Ok(ToolAnswer::json(
            json!({ "columns": columns, "rows": list, "count": count, "truncated": rows.truncated(), "lsn": lsn }),
        ))
    }

    pub async fn ask(&self, arguments: JsonObject) -> Result<ToolAnswer> {
        let arguments: AskArguments = read_arguments(arguments)?;
        let deadline = arguments.deadline_ms.map(|ms| deadline(Some(ms))).transpose()?;
        let question = Question { text: arguments.question, sources: arguments.sources, deadline };
        let answer = self.app.ask.ask(self.principal, &question).await?;
        let sources: Vec<String> = answer
            .sources
            .iter()
            .map(|source| {
                let state = json!(source.state);
                format!("{} {}", source.name, state.as_str().unwrap_or_default())
            })
            .collect();
        let text = format!("{}\n\n(asked: {}; lsn {})", answer.answer, sources.join(", "), answer.lsn);
        Ok(ToolAnswer { text, value: json!(answer) })
    }

    pub async fn get(&self, arguments: JsonObject) -> Result<ToolAnswer> {
        let arguments: GetArguments = read_arguments(arguments)?;
        let usage =
            || Error::invalid("`get` reads exactly one row").hint("give `table` and `key`, or `note`");
        let is_note = arguments.note.is_some();
        let (table, key) = match arguments {
            GetArguments { note: Some(path), table: None, key: None } => {
                (self.app.options.site.clone().unwrap_or_else(|| VAULT.into()), Json::String(path))
            }
            GetArguments { note: None, table: Some(table), key: Some(key) } => (table, key),
            _ => return Err(usage().into()),
        };
        let key = match key {
            Json::String(text) => text,
            // A key of several columns is written as an array.
            other @ (Json::Array(_) | Json::Number(_) | Json::Bool(_)) => other.to_string(),
            _ => return Err(usage().into()),
        };
        let view = self.app.engine.view(self.principal)?;
        // In a vault, a principal without the scope admin gets published rows only, and of those the columns of the site (A1).
        let snapshot = match view.searchable(&table) {
            Err(e) if is_note && e.kind() == Kind::NotFound => {
                return Err(Error::not_found("there are no notes here")
                    .hint("`polynya publish FOLDER` takes in a folder of them; `tables` lists what there is")
                    .into());
            }
            snapshot => snapshot?,
        };
        let filter = view.row_filter(&snapshot);
        let lsn = view.lsn().0;
        let get = move || -> Result<Json> {
            let def = snapshot.def();
            let (row, visible) = look_up(&snapshot, filter.as_ref(), &key)?;
            let Some(row) = row else {
                return Err(if is_note {
                    no_note(&snapshot, visible.as_ref(), &key)?
                } else {
                    rows::no_row(def, &key)
                }
                .into());
            };
            let projection = match &filter {
                Some(filter) => snapshot.projection(&filter.columns)?,
                None => snapshot.all_columns().clone(),
            };
            let batch = snapshot.fetch(&[row], &projection)?;
            if batch.num_rows() == 0 {
                return Err(rows::no_row(def, &key).into());
            }
            let mut text = Vec::new();
            out::json::Writer::new(projection.schema()).rows(&batch, &mut text);
            if text.len() > ANSWER_BYTES_MAX {
                return Err(too_long("read it with `sql`, column by column"));
            }
            let row: Json = serde_json::from_slice(&text)
                .map_err(|e| Error::internal(format!("a row is not JSON: {e}")))?;
            Ok(json!({ "table": name::short_table_name(&def.name), "row": row, "lsn": lsn }))
        };
        // This runs on a work thread, because a filter reads a column of the whole table.
        Ok(ToolAnswer::json(self.app.work.run(get).await??))
    }
}

/// Finds the row of a key if it may be seen, and returns the set of visible rows (`None`: all). The visible rows are read even if
/// there is no such key, so that the response time does not reveal whether it exists.
fn look_up(
    snapshot: &table::Snapshot,
    filter: Option<&engine::RowFilter>,
    key: &str,
) -> Result<(Option<RowId>, Option<engine::VisibleRows>)> {
    let visible = filter.map(|filter| filter.rows(snapshot)).transpose()?;
    let row = rows::find(snapshot, key)?;
    let row = row.filter(|row| visible.as_ref().is_none_or(|rows| rows.contains(*row)));
    Ok((row, visible))
}

/// Returns the error for a missing note, with similar paths among the visible notes as a hint.
fn no_note(
    snapshot: &table::Snapshot,
    visible: Option<&engine::VisibleRows>,
    path: &str,
) -> types::Result<Error> {
    let error = Error::not_found(format!("there is no note `{}`", name::printable(path)));
    let Some(column) = snapshot.def().key_columns().next() else { return Ok(error) };
    let projection = snapshot.projection(&[ROW_ID, column.id])?;
    let mut paths = Vec::new();
    for piece in snapshot.pieces() {
        let batch = piece.read(&projection)?;
        let ids = batch.column(0).as_primitive_opt::<Int64Type>();
        let (Some(ids), Some(texts)) = (ids, batch.column(1).as_string_opt::<i32>()) else { continue };
        for (id, text) in ids.values().iter().zip(texts.iter()) {
            let may_see = visible.is_none_or(|rows| rows.contains(RowId(*id as u64)));
            paths.extend(text.filter(|_| may_see).map(str::to_owned));
        }
    }
    Ok(match engine::name_hints::similar_names(path, paths.iter().map(String::as_str)).as_slice() {
        [] => error.hint("`search` finds notes by their words"),
        near => error.hint(engine::name_hints::did_you_mean(near)),
    })
}

fn column(column: &Json) -> Json {
    json!({ "name": column["name"], "type": column["type"], "nullable": column["nullable"] })
}

fn read_arguments<T: DeserializeOwned>(arguments: JsonObject) -> Result<T> {
    serde_json::from_value(Json::Object(arguments)).map_err(|e| {
        Error::invalid(format!("the arguments do not fit: {}", input::plain_message(&e)))
            .hint("tools/list has each tool's schema")
            .into()
    })
}

fn within(value: Option<u64>, default: u64, max: u64, name: &str) -> Result<u64> {
    match value.unwrap_or(default) {
        value if (1..=max).contains(&value) => Ok(value),
        value => Err(Error::invalid(format!("`{name}` is 1 to {max}, not {value}")).into()),
    }
}

fn deadline(value: Option<u64>) -> Result<Duration> {
    within(value, schema::DEADLINE_MS, schema::DEADLINE_MS_MAX, "deadline_ms").map(Duration::from_millis)
}

fn too_long(hint: &str) -> Failure {
    Error::new(Kind::TooLarge, format!("the answer is longer than {} KiB", ANSWER_BYTES_MAX >> 10))
        .hint(hint)
        .into()
}

#[cfg(test)]
mod tests {
    use types::{Lsn, TableId};

    use super::*;

    /// The answer that there is no such note took a quarter longer if a private note had that path, because only then the
    /// published notes were read.
    #[test]
    fn what_is_read_for_a_private_note_is_read_for_none_too() {
        let mut def = site::definition("main.vault").unwrap();
        def.id = TableId(1);
        let notes: Vec<site::Row> = ["open.md", "diary.md"]
            .into_iter()
            .map(|path| site::Row {
                path: path.into(),
                published: path == "open.md",
                words: None,
                content: Vec::new().into(),
                modified: None,
            })
            .collect();
        let mut tip = table::Tip::new(def);
        let batch = table::conform(&site::batch(&notes).unwrap(), tip.def()).unwrap();
        tip.append(RowId(1), 1, &[(Lsn(1), 2)], &batch).unwrap();
        let snapshot = tip.snapshot(Lsn(1));
        let published = snapshot.def().schema.columns.iter().find(|c| c.name == "published").map(|c| c.id);
        let filter = engine::RowFilter { published, columns: Vec::new() };
        for (path, found) in [("open.md", Some(RowId(1))), ("diary.md", None), ("nothing.md", None)] {
            let (row, visible) = look_up(&snapshot, Some(&filter), path).unwrap();
            assert_eq!((row, visible), (found, Some(filter.rows(&snapshot).unwrap())), "{path}");
        }
        assert_eq!(look_up(&snapshot, None, "diary.md").unwrap(), (Some(RowId(2)), None));
    }
}
