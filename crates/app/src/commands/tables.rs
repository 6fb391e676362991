//! `polynya tables [NAME]`: lists the tables, or describes one.

use std::process::ExitCode;

use clap::Args;
use http::Method;
use serde_json::Value;
use types::Result;

use crate::cli::ServerArgs;
use crate::client::{HttpClient, escaped};
use crate::config::Config;
use crate::connection::DataConnection;
use crate::output::{self, Table};
use crate::units::{ByteSize, counted, grouped};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  polynya tables                      all tables with rows and sizes\n  \
                        polynya tables polynya.metrics      the columns of one\n  polynya tables --json")]
pub struct Options {
    /// Describe this table
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Title of the column that lists a table's indexes and its lake.
const FOLLOWING: &str = "index, lake";
/// Rows from which the progress of an index is shown in percent. For fewer rows the number of missing rows says more.
const PERCENT_ROWS_MIN: u64 = 10_000;

pub fn run(config: &Config, options: &Options) -> Result<ExitCode> {
    super::block_on(async {
        let ask = async |connection: &mut DataConnection| match &options.name {
            None => list(connection.client()).await,
            Some(name) => describe(connection.client(), name).await,
        };
        let answer = DataConnection::open(config, &options.server).await?.with(ask).await?;
        let text = match (options.json, &options.name) {
            (true, _) => format!("{answer}\n"),
            (false, None) => list_table(&answer),
            (false, Some(_)) => description(&answer),
        };
        output::print(&text);
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

pub async fn list(client: &mut HttpClient) -> Result<Value> {
    client.json(Method::GET, "/v1/tables", None).await
}

pub async fn describe(client: &mut HttpClient, name: &str) -> Result<Value> {
    client.json(Method::GET, &format!("/v1/tables/{}", escaped(name)), None).await
}

/// Formats the list of tables for a terminal.
pub fn list_table(answer: &Value) -> String {
    let empty = Vec::new();
    let tables = answer["tables"].as_array().unwrap_or(&empty);
    if tables.is_empty() {
        return "There is no table yet; `polynya ingest FILE` makes one.\n".into();
    }
    let mut out = Table::new(["table", "rows", "size", "columns", "key", FOLLOWING])
        .right(|title| ["rows", "size", "columns"].contains(&title));
    for table in tables {
        out.push([
            text(&table["name"]),
            grouped(number(&table["rows"])),
            size(table),
            table["columns"].as_array().map_or(0, Vec::len).to_string(),
            key_columns(table),
            derived_cell(table),
        ]);
    }
    out.render()
}

/// Formats the description of one table for a terminal.
pub fn description(table: &Value) -> String {
    let mut out = Table::new(["column", "type", "nullable", "default"]);
    for column in table["columns"].as_array().unwrap_or(&Vec::new()) {
        let default = match &column["default"] {
            Value::Null => String::new(),
            value => output::cell_text(value),
        };
        let nullable = if column["nullable"] == Value::Bool(false) { "not null" } else { "" };
        out.push([text(&column["name"]), text(&column["type"]), nullable.to_owned(), default]);
    }
    let key = match key_columns(table) {
        key if key.is_empty() => "no key".to_owned(),
        key => format!("key ({key})"),
    };
    let mut more = String::new();
    for index in table["indexes"].as_array().unwrap_or(&Vec::new()) {
        let columns: Vec<String> =
            index["columns"].as_array().map(|c| c.iter().map(text).collect()).unwrap_or_default();
        let options = index["options"].as_object().into_iter().flatten();
        let options: Vec<String> =
            options.map(|(key, value)| format!("{key} {}", output::cell_text(value))).collect();
        let options = if options.is_empty() { String::new() } else { format!(", {}", options.join(", ")) };
        let unique = if index["unique"] == Value::Bool(true) { "unique " } else { "" };
        more += &format!(
            "index {}: {unique}{} ({}){options}\n",
            text(&index["name"]),
            text(&index["kind"]),
            columns.join(", ")
        );
    }
    for (name, state) in derived(table) {
        let state = if state.is_empty() { "up to date" } else { state.as_str() };
        more += &format!("{name}: {state}\n");
    }
    if table["tiers"].is_object() {
        let of = |name: &str| number(&table["tiers"][name]);
        more += &format!(
            "hot: {}, {}; only in the lake: {}, about {}\n",
            counted(of("hot_rows"), "row"),
            ByteSize(of("hot_bytes")),
            counted(of("lake_only_rows"), "row"),
            ByteSize(of("lake_only_bytes"))
        );
    }
    if let Some((bytes, raw)) = compressed(table) {
        more += &format!("compressed: {bytes} of files that were {raw}\n");
    }
    let more = output::visible(&more);
    format!(
        "{}: {}, {}, {key}\n{}{more}",
        text(&table["name"]),
        counted(number(&table["rows"]), "row"),
        ByteSize(number(&table["bytes"])),
        out.render()
    )
}

/// Formats the size of a table, with its compressed part and the rows that are only in the lake.
fn size(table: &Value) -> String {
    let all = ByteSize(number(&table["bytes"]));
    let all = compressed(table).map_or_else(|| all.to_string(), |(bytes, _)| format!("{all} ({bytes} zstd)"));
    match number(&table["tiers"]["lake_only_rows"]) {
        0 => all,
        rows => format!("{all}, {} more in the lake", counted(rows, "row")),
    }
}

/// Returns the bytes of a table's compressed files, and their bytes before compression.
fn compressed(table: &Value) -> Option<(ByteSize, ByteSize)> {
    let of = |name: &str| ByteSize(number(&table["compressed"][name]));
    table["compressed"].is_object().then(|| (of("bytes"), of("raw_bytes")))
}

/// Formats a table's indexes and its lake, with their state, for one cell.
fn derived_cell(table: &Value) -> String {
    let one =
        |(name, state): (String, String)| if state.is_empty() { name } else { format!("{name} {state}") };
    derived(table).into_iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Returns the names and states of a table's indexes and its lake. The state is empty if one is up to date, else it tells
/// the missing rows and the error.
fn derived(table: &Value) -> Vec<(String, String)> {
    let all = table["derived"].as_array().map(Vec::as_slice).unwrap_or_default();
    let one = |derived: &Value| {
        let missing = number(&derived["missing_rows"]);
        let (done, name) = (number(&derived["row_id"]), text(&derived["name"]));
        let state = match (derived["state"].as_str(), missing) {
            (_, 0) => String::new(),
            (Some("building"), _) if done + missing >= PERCENT_ROWS_MIN => {
                format!("{} %", done * 100 / (done + missing))
            }
            (_, missing) => format!("{} behind", counted(missing, "row")),
        };
        let error = derived["error"].as_str().map(|error| format!("failing: {error}"));
        let parts = [Some(state).filter(|state| !state.is_empty()), error];
        (name, parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    };
    all.iter().map(one).collect()
}

fn key_columns(table: &Value) -> String {
    let names = table["primary_key"].as_array().map(|key| key.iter().map(text).collect::<Vec<_>>());
    names.unwrap_or_default().join(", ")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Reads a count of an answer. The server writes counts beyond 2^53 as text.
pub fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn compressed_bytes_are_shown_with_their_original_size() {
        let mut table = json!({"name": "t", "rows": 9, "bytes": 5 << 20, "columns": [], "primary_key": []});
        assert!(!list_table(&json!({"tables": [table]})).contains("zstd"));
        table["compressed"] = json!({"bytes": 3 << 20, "raw_bytes": 12 << 20});
        assert!(list_table(&json!({"tables": [table]})).contains("5 MiB (3 MiB zstd)"));
        let said = description(&table);
        assert!(said.ends_with("\ncompressed: 3 MiB of files that were 12 MiB\n"), "{said}");
    }

    #[test]
    fn rows_only_in_the_lake_are_shown() {
        let mut table = json!({"name": "t", "rows": 9, "bytes": 5 << 20, "columns": [], "primary_key": []});
        table["tiers"] =
            json!({"hot_rows": 2, "hot_bytes": 5 << 20, "lake_only_rows": 7, "lake_only_bytes": 9 << 20});
        let said = description(&table);
        assert!(said.ends_with("\nhot: 2 rows, 5 MiB; only in the lake: 7 rows, about 9 MiB\n"), "{said}");
        assert!(list_table(&json!({"tables": [table]})).contains("5 MiB, 7 rows more in the lake"));
    }

    #[test]
    fn an_index_that_is_unique_is_called_so() {
        let index =
            |unique: bool| json!({"name": "i", "kind": "column", "columns": ["a", "b"], "unique": unique});
        let table = json!({"name": "t", "rows": 0, "bytes": 0, "columns": [], "primary_key": [],
            "indexes": [index(true), index(false)]});
        let said = description(&table);
        assert!(said.ends_with("\nindex i: unique column (a, b)\nindex i: column (a, b)\n"), "{said}");
    }

    #[test]
    fn one_row_is_a_row_and_a_hundredth_of_few_rows_is_not_said() {
        let table = |rows: u64, state: &str, done: u64| {
            json!({"name": "t", "rows": rows, "bytes": 10, "columns": [], "primary_key": [],
                "derived": [{"name": "text", "state": state, "row_id": done, "missing_rows": rows - done}]})
        };
        let said = description(&table(1, "building", 0));
        assert!(said.starts_with("t: 1 row, ") && said.ends_with("\ntext: 1 row behind\n"), "{said}");
        assert!(description(&table(20_000, "building", 5_000)).ends_with("\ntext: 25 %\n"));
        assert!(description(&table(3, "following", 3)).ends_with("\ntext: up to date\n"));
        let mut failing = table(3, "following", 1);
        failing["derived"][0]["error"] = json!("no room");
        assert!(description(&failing).ends_with("\ntext: 2 rows behind, failing: no room\n"));
        let list = list_table(&json!({"tables": [table(3, "following", 1)]}));
        assert!(list.contains("index, lake") && list.contains("text 2 rows behind"), "{list}");
    }
}
