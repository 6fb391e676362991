//! `polynya key create|list|remove`.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};
use types::{Result, Scope};

use crate::cli::ServerArgs;
use crate::client::{HttpClient, escaped};
use crate::config::Config;
use crate::connection::DataConnection;
use crate::output::{self, Table};

#[derive(Debug, Args)]
#[command(
    long_about = "Make, list and remove API keys. While no key exists, every program of this machine may do everything and \
                  no other machine is answered; from the first key on, every request needs one. Keys are managed by the owner of the \
                  data directory, on its machine, with or without its server running.",
    after_help = "Examples:\n  polynya key create me --scope admin\n  \
                  polynya key create sensors --scope write --tables readings,lab.*\n  polynya key list\n  \
                  polynya key remove sensors\n\nThe secret goes into `Authorization: Bearer …`, --key or POLYNYA_KEY."
)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a key and print its secret, which is shown only this once
    #[command(after_help = "Example:\n  polynya key create sensors --scope write --tables readings")]
    Create {
        /// Name of the key
        name: String,
        /// read, write or admin; each includes the ones before it
        #[arg(long, value_parser = parse_scope)]
        scope: Scope,
        /// Tables that the key may use [default: all]; `lab.*` is a whole namespace
        #[arg(long, value_delimiter = ',', value_name = "TABLES")]
        tables: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the keys
    #[command(after_help = "Example:\n  polynya key list --json")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a key; requests with it are refused from then on
    #[command(after_help = "Example:\n  polynya key remove sensors")]
    Remove {
        /// Name of the key
        name: String,
    },
}

/// Warns after the last key was removed, because that opens the server to every program of this machine.
const NO_KEY: &str = "It was the last one: without keys every program of this machine may do everything, and no other machine is answered.\n";

fn parse_scope(text: &str) -> std::result::Result<Scope, String> {
    Scope::parse(text).map_err(|error| error.to_string())
}

pub fn run(config: &Config, options: &Options) -> Result<ExitCode> {
    let server = ServerArgs::default();
    let text = super::block_on(async {
        let connection = match &options.action {
            Action::Create { .. } => DataConnection::open_or_create(config, &server).await?,
            Action::List { .. } | Action::Remove { .. } => DataConnection::open(config, &server).await?,
        };
        connection
            .with(async |connection: &mut DataConnection| {
                perform(super::control(connection)?, &options.action).await
            })
            .await
    })?;
    output::print(&text);
    Ok(ExitCode::SUCCESS)
}

/// Performs the action and returns the text to print.
async fn perform(control: &mut HttpClient, action: &Action) -> Result<String> {
    match action {
        Action::Create { name, scope, tables, json } => {
            let tables = if tables.is_empty() { Value::Null } else { json!(tables) };
            let body = json!({ "name": name, "scope": scope.name(), "tables": tables });
            let made = control.json(Method::POST, "/keys", Some(&body)).await?;
            Ok(match json {
                true => format!("{made}\n"),
                false => format!(
                    "{}\n\nThis is the secret of `{name}`; only its hash is kept, so it is not shown again.\n\
                     From now on every request needs a key.\n",
                    made["secret"].as_str().unwrap_or_default()
                ),
            })
        }
        Action::List { json } => {
            let answer = control.json(Method::GET, "/keys", None).await?;
            Ok(if *json { format!("{answer}\n") } else { list(&answer) })
        }
        Action::Remove { name } => {
            control.json(Method::DELETE, &format!("/keys/{}", escaped(name)), None).await?;
            let left = control.json(Method::GET, "/keys", None).await?;
            let was_last = left["keys"].as_array().is_some_and(Vec::is_empty);
            let open = if was_last { NO_KEY } else { "" };
            Ok(format!("Key `{name}` is gone.\n{open}"))
        }
    }
}

fn list(answer: &Value) -> String {
    let empty = Vec::new();
    let keys = answer["keys"].as_array().unwrap_or(&empty);
    if keys.is_empty() {
        return "There is no key: programs of this machine may do everything, others nothing.\n".into();
    }
    let mut table = Table::new(["key", "scope", "tables", "created"]);
    for key in keys {
        let tables = match key["tables"].as_array() {
            None => "all".to_owned(),
            Some(names) => names.iter().map(output::cell_text).collect::<Vec<_>>().join(", "),
        };
        table.push([
            output::cell_text(&key["name"]),
            output::cell_text(&key["scope"]),
            tables,
            output::cell_text(&key["created"]),
        ]);
    }
    table.render()
}
