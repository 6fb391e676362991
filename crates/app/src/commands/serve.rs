//! `polynya serve`: runs the server until a signal comes.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use types::{Error, Result};

use crate::config::Config;
use crate::memory::share;
use crate::output;
use crate::service::Service;

#[derive(Clone, Debug, Args)]
#[command(
    long_about = "Run the server: HTTP at 127.0.0.1:8484, everything kept in ./polynya-data. While no API key exists only \
                  programs of this machine are answered; `polynya key create me --scope admin` makes one. SIGINT or SIGTERM stops it after \
                  the requests under way; a second one stops it at once.\n\nSettings come from polynya.toml, then \
                  POLYNYA_… variables, then flags. No file is needed: `polynya config` prints what is in force.",
    after_help = "Examples:\n  polynya serve\n  polynya serve --data /var/lib/polynya --listen 0.0.0.0:8484\n  \
                  POLYNYA_SQL_THREADS=2 polynya serve --set server.idle_timeout=60s\n\n\
                  Then:\n  curl -d '{\"kind\":\"hello\"}' http://127.0.0.1:8484/v1/tables/events/rows\n  \
                  polynya sql 'SELECT * FROM events'"
)]
pub struct Options {
    /// Address and port [default: 127.0.0.1:8484]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Record this machine each second into polynya.metrics and polynya.processes
    #[arg(long)]
    record: bool,
    /// Print the effective settings and where each came from, and end
    #[arg(long)]
    print_config: bool,
    /// End at once when the process that started this one ends
    #[arg(long, hide = true)]
    with_parent: bool,
}

impl Options {
    /// Returns the flags as `(setting, value, flag)`.
    pub fn flags(&self) -> Vec<(String, String, String)> {
        let listen =
            self.listen.iter().map(|listen| ("server.listen".into(), listen.clone(), "--listen".into()));
        let record = self.record.then(|| ("record.enabled".into(), "true".into(), "--record".into()));
        listen.chain(record).collect()
    }
}

pub fn run(config: &Config, options: &Options) -> Result<ExitCode> {
    serve(config, options, async |service| {
        tracing::info!("listening on {}, data in {}", service.url(), config.server.data.display());
        if !config.server.listen.ip().is_loopback() && service.engine().keys().is_empty() {
            tracing::warn!(
                "no key exists, so only this machine is answered; `polynya key create me --scope admin` makes one"
            );
        }
    })
}

/// Serves until SIGINT or SIGTERM, or only prints the settings for `--print-config`. `started` runs once the server answers;
/// it may take long, and a signal ends it.
pub fn serve(config: &Config, options: &Options, started: impl AsyncFnOnce(&Service)) -> Result<ExitCode> {
    if options.print_config {
        output::print(&config.explain());
        return Ok(ExitCode::SUCCESS);
    }
    if options.with_parent {
        let signal = Some(rustix::process::Signal::KILL);
        rustix::process::set_parent_process_death_signal(signal)
            .map_err(|error| Error::io("asking to end with the parent", error.into()))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::io("starting threads", error))?;
    runtime.block_on(async {
        let handler = |kind| signal(kind).map_err(|error| Error::io("listening for signals", error));
        let mut interrupted = handler(SignalKind::interrupt())?;
        let mut terminated = handler(SignalKind::terminate())?;
        if let Some(warning) = share::memory_warning(config) {
            tracing::warn!("{warning}");
        }
        let starting = config.clone();
        let joined = tokio::task::spawn_blocking(move || Service::start(&starting)).await;
        let service = joined.map_err(|error| Error::internal("starting failed").caused_by(error))??;
        let running = async {
            started(&service).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = running => {}
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
        tracing::info!("stopping after the requests under way; once more stops at once");
        let stopping = tokio::task::spawn_blocking(move || service.stop());
        tokio::select! {
            stopped = stopping => {
                stopped.map_err(|error| Error::internal("stopping failed").caused_by(error))??;
                tracing::info!("stopped");
                Ok(ExitCode::SUCCESS)
            }
            _ = interrupted.recv() => exit_at_once(),
            _ = terminated.recv() => exit_at_once(),
        }
    })
}

/// Exits at once with status 130. That is safe at any moment, because acknowledged commits are durable.
fn exit_at_once() -> Result<ExitCode> {
    let _ = io::stderr().flush();
    std::process::exit(130)
}
