//! The commands, one file for each.

pub mod ask;
pub mod backup;
pub mod bench;
pub mod config;
mod copy;
pub mod demo;
pub mod doctor;
pub mod ingest;
pub mod key;
pub mod lake;
pub mod publish;
pub mod restore;
pub mod search;
pub mod serve;
pub mod shell;
pub mod sql;
pub mod storm;
pub mod tables;

use std::process::ExitCode;

use types::{Error, Result};

use crate::cli::{Cli, Command};
use crate::client::HttpClient;
use crate::config::{Config, Sources};
use crate::connection::DataConnection;
use crate::memory::Limit;

/// Loads the settings, starts the log and runs the command that was typed.
pub fn run(cli: Cli) -> Result<ExitCode> {
    let flags = match &cli.command {
        Command::Serve(options) => options.flags(),
        Command::Demo(options) => options.serve.flags(),
        Command::Publish(options) => options.serve.flags(),
        Command::Backup(options) => options.flags(),
        Command::Restore(options) => options.flags(),
        _ => Vec::new(),
    };
    let sources = Sources { memory: Limit::of_process(), ..cli.global.sources(flags)? };
    let config = Config::load(&sources)?;
    crate::logging::start(&config.log)?;
    for warning in Config::unknown_variables(&sources) {
        tracing::warn!("{warning}");
    }
    match cli.command {
        Command::Serve(options) => serve::run(&config, &options),
        Command::Demo(options) => demo::run(config, &options),
        Command::Publish(options) => publish::run(config, &options),
        Command::Ingest(options) => ingest::run(&config, &options),
        Command::Sql(options) => sql::run(&config, &options),
        Command::Search(options) => search::run(&config, &options),
        Command::Ask(options) => ask::run(&config, &options),
        Command::Tables(options) => tables::run(&config, &options),
        Command::Lake(options) => lake::run(&config, &options),
        Command::Key(options) => key::run(&config, &options),
        Command::Backup(options) => backup::run(&config, &options),
        Command::Restore(options) => self::restore::run(&config, &options),
        Command::Doctor(options) => doctor::run(&config, &options),
        Command::Bench(options) => bench::run(&config, &options),
        Command::Storm(options) => storm::run(&config, &options),
        Command::Config(options) => self::config::run(&config, &options),
    }
}

/// Runs a future on a runtime of its own, for a command that talks to a server.
fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Error::io("starting threads", error))?;
    let outcome = runtime.block_on(future);
    // A thread may be blocked in a read of standard input, and a full shutdown would wait for it.
    runtime.shutdown_background();
    outcome
}

/// Returns the client of the directory's control socket. Fails with `invalid` if the command talks to a server by its URL,
/// where there is no such socket.
fn control(connection: &mut DataConnection) -> Result<&mut HttpClient> {
    connection.control().ok_or_else(|| Error::invalid("this is done on the server's own machine"))
}
