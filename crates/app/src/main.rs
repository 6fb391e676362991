//! The binary `polynya`: configuration, commands, wiring.
//!
//! It contains no storage, no SQL and no protocol of its own. A command reads its settings ([`config`]), reaches the
//! data ([`connection`]: a running server, else the directory through a private server) and prints. Only `serve`, `demo`
//! and `publish` run for longer; they handle the process's signals. [`recorder`] records the machine's metrics, [`ingest`]
//! reads files into tables, [`doctor`] examines a data directory.
//!
//! ## Invariants
//! - Every failure is one sentence on standard error that says what to do. The exit code is 1, or 2 for wrong usage.
//! - Answers go to standard output, everything else to standard error.
//! - A command does the same with and without a running server.
//! - No thread of Polynya outlives a command's answer: a command ends when it has answered.
//!
//! Start at [`cli`], which lists the commands and their flags, then `commands/`.

mod access_log;
mod argument_order;
mod cli;
mod client;
mod commands;
mod config;
mod connection;
mod control;
mod doctor;
mod import;
mod ingest;
mod job;
mod logging;
mod memory;
mod output;
mod port;
mod recorder;
mod remote;
mod server_file;
mod service;
mod syslog;
mod units;
mod vault;
mod warehouse;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The thread that first touches a huge page clears all its 2 MiB, and readers wait for that. Often only a few KiB of the
    // page are used: by an index of a few new documents, or by a batch. The call fails on a kernel without huge pages, which
    // is harmless.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let args = argument_order::options_first(cli::Cli::command(), std::env::args_os().collect());
    let cli = cli::Cli::try_parse_from(args).unwrap_or_else(|error| cli::in_plain_words(error).exit());
    match commands::run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("polynya: {error}");
            ExitCode::FAILURE
        }
    }
}
