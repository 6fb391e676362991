//! `polynya tables [NAME]`.

use std::process::ExitCode;

use clap::Args;
use http::Method;
use serde_json::Value;
use types::Result;

use crate::cli::Reach;
use crate::client::{Client, escaped};
use crate::config::Config;
use crate::door::Door;
use crate::output::{self, Table};
use crate::units::{ByteSize, grouped};

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
    reach: Reach,
}

pub fn run(config: &Config, options: &Options) -> Result<ExitCode> {
    super::block_on(async {
        let ask = async |door: &mut Door| match &options.name {
            None => list(door.client()).await,
            Some(name) => describe(door.client(), name).await,
        };
        let answer = Door::open(config, &options.reach).await?.with(ask).await?;
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

pub async fn list(client: &mut Client) -> Result<Value> {
    client.json(Method::GET, "/v1/tables", None).await
}

pub async fn describe(client: &mut Client, name: &str) -> Result<Value> {
    client.json(Method::GET, &format!("/v1/tables/{}", escaped(name)), None).await
}

/// For a terminal.
pub fn list_table(answer: &Value) -> String {
    let empty = Vec::new();
    let tables = answer["tables"].as_array().unwrap_or(&empty);
    if tables.is_empty() {
        return "There is no table yet; `polynya ingest FILE` makes one.\n".into();
    }
    let mut out = Table::new(["table", "rows", "size", "columns", "key"])
        .right(|title| ["rows", "size", "columns"].contains(&title));
    for table in tables {
        out.push([
            text(&table["name"]),
            grouped(number(&table["rows"])),
            ByteSize(number(&table["bytes"])).to_string(),
            table["columns"].as_array().map_or(0, Vec::len).to_string(),
            key_columns(table),
        ]);
    }
    out.render()
}

/// One table's columns, for a terminal.
pub fn description(table: &Value) -> String {
    let mut out = Table::new(["column", "type", "nullable", "default"]);
    for column in table["columns"].as_array().unwrap_or(&Vec::new()) {
        let default = match &column["default"] {
            Value::Null => String::new(),
            value => output::shown(value),
        };
        let nullable = if column["nullable"] == Value::Bool(false) { "not null" } else { "" };
        out.push([text(&column["name"]), text(&column["type"]), nullable.to_owned(), default]);
    }
    let key = match key_columns(table) {
        key if key.is_empty() => "no key".to_owned(),
        key => format!("key ({key})"),
    };
    format!(
        "{}: {} rows, {}, {key}\n{}",
        text(&table["name"]),
        grouped(number(&table["rows"])),
        ByteSize(number(&table["bytes"])),
        out.render()
    )
}

fn key_columns(table: &Value) -> String {
    let names = table["primary_key"].as_array().map(|key| key.iter().map(text).collect::<Vec<_>>());
    names.unwrap_or_default().join(", ")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A count; beyond 2^53 the server writes it as text.
pub fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}
