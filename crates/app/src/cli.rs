//! The command line: every command and its flags. Each help text has an example that works without changes.

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand};

use crate::commands::{
    ask, backup, bench, config, demo, doctor, ingest, key, lake, publish, restore, search, serve, sql, storm,
    tables,
};
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

/// Flags that choose the server a command talks to.
#[derive(Clone, Debug, Default, Args)]
pub struct ServerArgs {
    /// Talk to this server instead of the one of the data directory
    #[arg(long, env = "POLYNYA_URL", value_name = "URL", help_heading = "Server")]
    pub url: Option<String>,
    /// API key, if the server requires one
    #[arg(long, env = "POLYNYA_KEY", value_name = "SECRET", hide_env_values = true, help_heading = "Server")]
    pub key: Option<String>,
}

// The variants use `about` and not doc comments, which would replace the long help of the commands' own structs.
#[derive(Debug, Subcommand)]
pub enum Command {
    #[command(about = "Run the server")]
    Serve(serve::Options),
    #[command(about = "Run the server with live data of this machine, and show four things to try")]
    Demo(demo::Options),
    #[command(about = "Run the server with a folder of Markdown notes as its site")]
    Publish(publish::Options),
    #[command(about = "Read files into a table: NDJSON, CSV, Parquet, web server logs")]
    Ingest(ingest::Options),
    #[command(about = "Ask in SQL: one statement, a file, or an interactive shell")]
    Sql(sql::Options),
    #[command(about = "Find rows by words")]
    Search(search::Options),
    #[command(about = "Ask in plain words: the disk, slow requests, your tables and notes, what changed")]
    Ask(ask::Options),
    #[command(about = "List the tables, or describe one")]
    Tables(tables::Options),
    #[command(about = "Tables as Apache Iceberg: show, land, maintain, import and verify them")]
    Lake(lake::Options),
    #[command(about = "Make, list and remove API keys")]
    Key(key::Options),
    #[command(about = "Take a backup into a folder or to S3, beside a running server or without one")]
    Backup(backup::Options),
    #[command(about = "Make a data directory out of a backup")]
    Restore(restore::Options),
    #[command(about = "Check every checksum and invariant of a data directory")]
    Doctor(doctor::Options),
    #[command(about = "Measure this machine with Polynya on it")]
    Bench(bench::Options),
    #[command(about = "Run everything at once for a minute: does anything freeze, is anything lost?")]
    Storm(storm::Options),
    #[command(about = "Print the effective settings and where each came from")]
    Config(config::Options),
}

impl Global {
    /// Collects the sources of settings: the file, the environment, the global flags, and `flags`, those of the command.
    /// Fails with `invalid` if a `--set` has no `=`.
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
            let (path, value) =
                pair.split_once('=').ok_or_else(|| crate::config::without_value(pair.trim()))?;
            flag(path.trim(), value.to_owned(), "--set");
        }
        let readable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let variables =
            std::env::vars_os().filter_map(readable).filter(|(name, _)| name.starts_with("POLYNYA_"));
        Ok(Sources { file: self.config.clone(), variables: variables.collect(), flags, memory: None })
    }
}

/// Rewrites clap's error about a malformed number in plain words. Returns any other error unchanged.
pub fn in_plain_words(error: clap::Error) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let is_about_number =
        std::error::Error::source(&error).is_some_and(|source| source.is::<std::num::ParseIntError>());
    if error.kind() != ErrorKind::ValueValidation || !is_about_number {
        return error;
    }
    // `--limit <N>`
    let name = text(ContextKind::InvalidArg).split(' ').next().unwrap_or_default();
    let value = types::name::printable(text(ContextKind::InvalidValue));
    clap::Error::raw(
        ErrorKind::ValueValidation,
        format!("`{name}` is a whole number, `{value}` was given\n\nFor more information, try '--help'.\n"),
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn files(dir: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                files(&path, endings, found);
            } else if endings.iter().any(|ending| path.extension().is_some_and(|e| e == *ending)) {
                found.push(path);
            }
        }
    }

    /// Returns the commands that a source file quotes: between backticks in code, in `<code>` on a page.
    fn quoted(text: &str) -> Vec<String> {
        let text = text.replace("<code>", "`").replace("</code>", "`");
        let spoken = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let joined = spoken.collect::<Vec<_>>().join("\n");
        let parts = joined.split('`').filter(|part| part.starts_with("polynya ") && !part.contains('\n'));
        parts.map(str::to_owned).collect()
    }

    /// `--limit x` was refused with "invalid digit found in string".
    #[test]
    fn a_flag_that_wants_a_number_says_so() {
        for (line, said) in [
            ("polynya search --limit x -- a", "error: `--limit` is a whole number, `x` was given\n"),
            ("polynya storm --seconds 1.5", "error: `--seconds` is a whole number, `1.5` was given\n"),
        ] {
            let error = in_plain_words(Cli::try_parse_from(line.split(' ')).unwrap_err());
            assert!(error.to_string().starts_with(said), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
        let error = in_plain_words(Cli::try_parse_from(["polynya", "storm", "--seconds", "0"]).unwrap_err());
        assert!(error.to_string().contains("1..=3600"), "{error}");
    }

    /// Hints recommended `polynya key create NAME` and `polynya key create --scope read`, which both fail.
    #[test]
    fn every_command_in_a_hint_can_be_typed_as_it_stands() {
        let package = testkit::package();
        let crates = package.parent().unwrap();
        let mut paths = Vec::new();
        files(crates, &["rs", "html", "js"], &mut paths);
        let mut checked = 0;
        for path in paths.iter().filter(|path| !path.components().any(|part| part.as_os_str() == "tests")) {
            for line in quoted(&fs::read_to_string(path).unwrap()) {
                let words: Vec<String> = line
                    .split_whitespace()
                    // Placeholders of a format string stand for a value.
                    .map(|word| word.trim_matches('\'').replace("{}", "read").replace(['{', '}'], ""))
                    .collect();
                let parsed = Cli::try_parse_from(&words);
                let is_overview = words.len() == 2
                    && parsed.as_ref().is_err_and(|error| {
                        // A hint such as `polynya ingest` names the command only, without its required arguments.
                        error.kind() == clap::error::ErrorKind::MissingRequiredArgument
                    });
                assert!(
                    parsed.is_ok() || is_overview,
                    "{}: `{line}`: {}",
                    path.display(),
                    parsed.unwrap_err()
                );
                checked += 1;
            }
        }
        assert!(checked > 15, "{checked} commands found");
    }
}
