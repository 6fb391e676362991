//! The binary `polynya`: configuration, commands, wiring.
//!
//! What it is not: no storage, no SQL, no protocol of its own. A command reads its settings ([`config`]), reaches the
//! data ([`door`]: a running server, else the directory through a server of its own) and prints. Only `serve` and `demo`
//! run for longer; they own the process's signals. What records the machine is [`recorder`], what reads files is
//! [`ingest`], what examines a directory is [`doctor`].
//!
//! ## Invariants
//! - Every failure is one sentence that says what to do, on standard error; exit code 1, 2 for wrong usage.
//! - Answers go to standard output, everything else to standard error.
//! - What one command does is the same with and without a running server.
//! - Threads of Polynya that outlive a command's answer do not exist: a command ends when it has answered.
//!
//! Start at [`cli`], which lists what can be typed, then `commands/`.

mod access_log;
mod cli;
mod client;
mod commands;
mod config;
mod control;
mod doctor;
mod door;
mod import;
mod ingest;
mod job;
mod logging;
mod memory;
mod output;
mod port;
mod recorder;
mod remote;
mod running;
mod service;
mod syslog;
mod units;
mod vault;
mod warehouse;
mod words;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A page of 2 MiB is cleared as a whole by the thread that touches it first, where often a few KiB of it are used: in an
    // index of a few new documents, in a batch. Readers wait for that. (A kernel without such pages has nothing to turn off.)
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let args = words::sorted(cli::Cli::command(), std::env::args_os().collect());
    let cli = cli::Cli::try_parse_from(args).unwrap_or_else(|error| cli::in_words(error).exit());
    match commands::run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("polynya: {error}");
            ExitCode::FAILURE
        }
    }
}
