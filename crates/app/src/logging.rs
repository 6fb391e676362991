//! The program's log, on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;
use types::{Error, Result};

use crate::config::{Log, LogFormat};

/// Installs the log. Must be called once, before anything is logged. Fails with `invalid` for a malformed filter.
pub fn start(log: &Log) -> Result<()> {
    let filter = filter(&log.level)?;
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    let installed = match log.format {
        LogFormat::Text => {
            builder.with_ansi(io::stderr().is_terminal()).with_span_events(FmtSpan::NONE).try_init()
        }
        LogFormat::Json => builder.event_format(json::JsonLines).try_init(),
    };
    // In tests a second start in one process fails and keeps the first log.
    let _ = installed;
    Ok(())
}

/// The names of the levels, which are recognised in upper and lower case.
pub const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Returns the first word of a filter that stands where a level must and is not one: a word alone, or the word after a `=`.
/// `EnvFilter` itself would take a word alone for the name of a module, and silence all others. A filter with spans or
/// fields is not checked here.
pub fn wrong_level(filter: &str) -> Option<&str> {
    if filter.contains(['[', '{']) {
        return None;
    }
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    let levels = filter.split(',').map(|part| part.rsplit_once('=').map_or(part, |(_, level)| level).trim());
    levels.into_iter().find(|level| !is_level(level))
}

/// Parses the filter. At `info` it limits the crate rmcp to warnings, since rmcp logs three lines for each message, more
/// than all other modules together.
fn filter(level: &str) -> Result<EnvFilter> {
    let is_info = level.split(',').any(|part| part.trim().eq_ignore_ascii_case("info"));
    let directives =
        if is_info && !level.contains("rmcp") { format!("{level},rmcp=warn") } else { level.to_owned() };
    EnvFilter::try_new(directives).map_err(|error| {
        Error::invalid(format!("`{level}` is not a log level"))
            .hint("use error, warn, info, debug or trace, or name a part: `warn,commitlog=debug`")
            .caused_by(error)
    })
}

mod json {
    use std::fmt;

    use serde_json::{Map, Value};
    use tracing::field::{Field, Visit};
    use tracing::{Event, Subscriber};
    use tracing_subscriber::fmt::format::Writer;
    use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
    use tracing_subscriber::registry::LookupSpan;
    use vfs::Clock;

    /// Formats each event as one JSON object a line: `time_us`, `level`, `message`, and the event's fields.
    pub struct JsonLines;

    impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N>
        for JsonLines
    {
        fn format_event(
            &self,
            _: &FmtContext<'_, S, N>,
            mut writer: Writer<'_>,
            event: &Event<'_>,
        ) -> fmt::Result {
            let mut fields = Fields(Map::new());
            fields.0.insert("time_us".into(), vfs::RealClock::new().now().into());
            fields.0.insert("level".into(), event.metadata().level().as_str().into());
            event.record(&mut fields);
            writeln!(writer, "{}", Value::Object(fields.0))
        }
    }

    struct Fields(Map<String, Value>);

    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            self.0.insert(field.name().into(), format!("{value:?}").into());
        }

        fn record_str(&mut self, field: &Field, value: &str) {
            self.0.insert(field.name().into(), value.into());
        }

        fn record_i64(&mut self, field: &Field, value: i64) {
            self.0.insert(field.name().into(), value.into());
        }

        fn record_u64(&mut self, field: &Field, value: u64) {
            self.0.insert(field.name().into(), value.into());
        }

        fn record_bool(&mut self, field: &Field, value: bool) {
            self.0.insert(field.name().into(), value.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Each request to `/mcp` filled the log with three lines.
    #[test]
    fn a_library_speaks_of_each_message_only_where_it_is_asked_to() {
        let said = |level: &str| {
            let buffer = Buffer::default();
            let writer = buffer.clone();
            let subscriber = tracing_subscriber::fmt()
                .with_env_filter(filter(level).unwrap())
                .with_writer(move || writer.clone())
                .finish();
            tracing::subscriber::with_default(subscriber, || {
                tracing::info!(target: "rmcp::service", "chatter");
                tracing::warn!(target: "rmcp::service", "trouble");
                tracing::info!(target: "polynya", "news");
            });
            let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
            ["chatter", "trouble", "news"].map(|word| text.contains(word))
        };
        for level in ["info", "INFO", "info,lake=debug"] {
            assert_eq!(said(level), [false, true, true], "{level}");
        }
        assert_eq!(said("info,rmcp=info"), [true; 3]);
        assert_eq!(said("debug"), [true; 3]);
        assert_eq!(said("error"), [false; 3]);
        assert!(filter("loud=very=much").is_err());
    }

    /// `--log-level loud` was taken for the name of a module, and silenced all others.
    #[test]
    fn a_word_where_a_level_must_stand_is_none() {
        for right in [
            "info",
            "INFO",
            "warn,commitlog=debug",
            " warn , lake = trace",
            "off",
            "info,[span{a=b,c}]=debug",
        ] {
            assert_eq!(wrong_level(right), None, "{right}");
        }
        for (wrong, word) in [
            ("loud", "loud"),
            ("", ""),
            ("warn,lake", "lake"),
            ("lake=loud", "loud"),
            ("info,", ""),
            ("lake=", ""),
        ] {
            assert_eq!(wrong_level(wrong), Some(word), "{wrong}");
        }
    }
}
