//! What can be typed: the commands and their flags. Each help text carries an example that works as it stands.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands::{bench, config, demo, doctor, ingest, key, serve, sql, tables};
use crate::config::Sources;

/// Events in, durable, and answered by SQL: one program, one directory.
#[derive(Debug, Parser)]
#[command(
    name = "polynya",
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "Start here:\n  polynya demo                     a server with live data of this machine, and four things to try\n  \
                  polynya ingest access.log        your own data into a table\n  \
                  polynya sql                      a shell for questions\n\n\
                  A command talks to the running server of its data directory, else it opens the directory itself."
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Flags that every command takes.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// Settings file [default: polynya.toml, if there is one]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Settings")]
    pub config: Option<PathBuf>,
    /// Data directory [default: ./polynya-data]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Settings")]
    pub data: Option<PathBuf>,
    /// Any setting, as in polynya.toml: --set sql.threads=4
    #[arg(long, global = true, value_name = "NAME=VALUE", help_heading = "Settings")]
    pub set: Vec<String>,
    /// error, warn, info, debug or trace
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Settings")]
    pub log_level: Option<String>,
    /// Log one JSON object a line
    #[arg(long, global = true, help_heading = "Settings")]
    pub log_json: bool,
}

/// How a command finds the data.
#[derive(Clone, Debug, Default, Args)]
pub struct Reach {
    /// Talk to this server instead of the one of the data directory
    #[arg(long, env = "POLYNYA_URL", value_name = "URL", help_heading = "Server")]
    pub url: Option<String>,
    /// API key, where one is needed
    #[arg(long, env = "POLYNYA_KEY", value_name = "SECRET", hide_env_values = true, help_heading = "Server")]
    pub key: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the server
    Serve(serve::Options),
    /// Run the server with live data of this machine, and show four things to try
    Demo(demo::Options),
    /// Read files into a table: NDJSON, CSV, Parquet, web server logs
    Ingest(ingest::Options),
    /// Ask in SQL: one statement, a file, or an interactive shell
    Sql(sql::Options),
    /// List the tables, or describe one
    Tables(tables::Options),
    /// Make, list and remove API keys
    Key(key::Options),
    /// Check every checksum and invariant of a data directory
    Doctor(doctor::Options),
    /// Measure this machine with Polynya on it
    Bench(bench::Options),
    /// Print the effective settings and where each came from
    Config(config::Options),
}

impl Global {
    /// Where settings may come from, given what the command's own flags say.
    pub fn sources(&self, mut flags: Vec<(String, String, String)>) -> types::Result<Sources> {
        let mut flag = |path: &str, value: String, name: &str| flags.push((path.into(), value, name.into()));
        if let Some(data) = &self.data {
            flag("server.data", data.to_string_lossy().into_owned(), "--data");
        }
        if let Some(level) = &self.log_level {
            flag("log.level", level.clone(), "--log-level");
        }
        if self.log_json {
            flag("log.format", "json".into(), "--log-json");
        }
        for pair in &self.set {
            let (path, value) = pair.split_once('=').ok_or_else(|| {
                types::Error::invalid(format!("--set {pair} has no value"))
                    .hint("write --set server.listen=127.0.0.1:8080")
            })?;
            flag(path.trim(), value.to_owned(), "--set");
        }
        let readable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let variables =
            std::env::vars_os().filter_map(readable).filter(|(name, _)| name.starts_with("POLYNYA_"));
        Ok(Sources { file: self.config.clone(), variables: variables.collect(), flags })
    }
}
