//! Starts the syslog listener of the settings, and reports its state in `/ready` and `/metrics`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use engine::Engine;
use feeds::syslog::{Counters, Listener, Options};
use serde_json::json;
use server::{Component, Figure, Report};
use types::{Error, Result};

use crate::config::{Syslog, parse_address};

/// Starts the listener; `None` if the settings name no address.
pub fn start(engine: &Engine, settings: &Syslog) -> Result<Option<Listener>> {
    let listen = settings.listen.trim();
    if listen.is_empty() {
        return Ok(None);
    }
    let wrong = |what: String| Error::invalid(format!("syslog.listen: {what}"));
    let listen = parse_address(listen)
        .map_err(|what| wrong(what).hint("write 127.0.0.1:5514, or 0.0.0.0:5514 for other machines"))?;
    let listener = Listener::start(engine.clone(), Options::new(listen, &settings.table))?;
    let address = listener.local_addr();
    tracing::info!("listening for syslog on {address}, into table `{}`", settings.table);
    if !address.ip().is_loopback() {
        tracing::warn!("syslog on {address}: anyone who can reach it can write, since syslog has no keys");
    }
    Ok(Some(listener))
}

/// Returns the listener's part of `/ready` and `/metrics`.
pub fn part(listener: &Listener) -> Arc<dyn Component> {
    Arc::new(SyslogPart { counters: listener.counters(), connections_max: listener.connections_max() as u64 })
}

struct SyslogPart {
    counters: Arc<Counters>,
    connections_max: u64,
}

impl Component for SyslogPart {
    fn name(&self) -> &'static str {
        "syslog"
    }

    fn report(&self) -> Report {
        let counters = &self.counters;
        let open = counters.connections_open.load(Relaxed);
        let refusing = counters.refusing.load(Relaxed);
        let figure = |name, kind, help, value: u64| Figure {
            name,
            kind,
            help,
            value: value as f64,
            // The figures describe one table, which not every key may see.
            for_admins: true,
        };
        Report {
            ok: !counters.failing.load(Relaxed) && !refusing,
            detail: json!({ "connections": open, "connections_max": self.connections_max, "refusing": refusing }),
            figures: vec![
                figure(
                    "syslog_messages_total",
                    "counter",
                    "Syslog messages that were committed.",
                    counters.messages.load(Relaxed),
                ),
                figure(
                    "syslog_unparsed_total",
                    "counter",
                    "Committed syslog messages of no known form, stored unchanged.",
                    counters.unparsed.load(Relaxed),
                ),
                figure(
                    "syslog_cut_total",
                    "counter",
                    "Committed syslog messages that were truncated.",
                    counters.cut.load(Relaxed),
                ),
                figure(
                    "syslog_dead_letters_total",
                    "counter",
                    "Syslog messages that did not fit their table and were stored in the table of bad rows.",
                    counters.dead_letters.load(Relaxed),
                ),
                figure(
                    "syslog_lost_total",
                    "counter",
                    "Syslog messages that could not be committed at all.",
                    counters.lost.load(Relaxed),
                ),
                figure(
                    "syslog_datagrams_dropped_total",
                    "counter",
                    "Syslog datagrams that the kernel dropped because they came faster than they were read.",
                    counters.datagrams_dropped.load(Relaxed),
                ),
                figure("syslog_connections_open", "gauge", "Open syslog connections.", open),
                figure(
                    "syslog_connections_open_max",
                    "gauge",
                    "Largest number of open syslog connections.",
                    self.connections_max,
                ),
                figure(
                    "syslog_connections_gave_way_total",
                    "counter",
                    "Quiet syslog connections that were ended for new ones.",
                    counters.connections_gave_way.load(Relaxed),
                ),
                figure(
                    "syslog_connections_refused_total",
                    "counter",
                    "Syslog connections that were refused because all others were busy.",
                    counters.connections_refused.load(Relaxed),
                ),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_that_refuses_connections_says_so() {
        let counters = Arc::new(Counters::default());
        counters.connections_open.store(2, Relaxed);
        let part = SyslogPart { counters: counters.clone(), connections_max: 2 };
        let detail = |refusing: bool| json!({ "connections": 2, "connections_max": 2, "refusing": refusing });
        let report = part.report();
        assert_eq!((report.ok, report.detail), (true, detail(false)));
        counters.refusing.store(true, Relaxed);
        let report = part.report();
        assert_eq!((report.ok, report.detail), (false, detail(true)));
    }
}
