//! Every setting: its place in `polynya.toml`, its environment variable, its default, what it does.
//! The file reader, the environment reader, the example file and `polynya config` all go through this list.

/// How a setting's value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    /// `64 MiB`
    Size,
    /// `30 s`
    Span,
    /// A whole number.
    Count,
    Switch,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// `section.name`, as in the file and in `--set`.
    pub path: &'static str,
    pub env: &'static str,
    pub form: Form,
    pub default: &'static str,
    pub help: &'static str,
}

const fn setting(
    path: &'static str,
    env: &'static str,
    form: Form,
    default: &'static str,
    help: &'static str,
) -> Setting {
    Setting { path, env, form, default, help }
}

/// By section, in the order of the example file.
pub const SETTINGS: &[Setting] = &[
    setting(
        "server.listen",
        "POLYNYA_LISTEN",
        Form::Text,
        "127.0.0.1:8484",
        "Address and port. While no key exists, only programs of this machine are answered.",
    ),
    setting(
        "server.data",
        "POLYNYA_DATA",
        Form::Text,
        "./polynya-data",
        "Where everything is kept. One process at a time has it open.",
    ),
    setting(
        "server.body_bytes_max",
        "POLYNYA_BODY_BYTES_MAX",
        Form::Size,
        "64 MiB",
        "The largest request body; a body is one commit.",
    ),
    setting(
        "server.connections_max",
        "POLYNYA_CONNECTIONS_MAX",
        Form::Count,
        "20000",
        "Connections at a time; more are closed at once.",
    ),
    setting(
        "server.idle_timeout",
        "POLYNYA_IDLE_TIMEOUT",
        Form::Span,
        "150 s",
        "How long a connection without a request stays open.",
    ),
    setting(
        "server.request_timeout",
        "POLYNYA_REQUEST_TIMEOUT",
        Form::Span,
        "5 min",
        "How long a request may take to arrive.",
    ),
    setting(
        "sql.threads",
        "POLYNYA_SQL_THREADS",
        Form::Count,
        "0",
        "Threads for SQL; 0 is one for each core.",
    ),
    setting(
        "sql.memory_bytes_max",
        "POLYNYA_SQL_MEMORY_BYTES_MAX",
        Form::Size,
        "256 MiB",
        "Memory of all running statements together; beyond it they spill to disk.",
    ),
    setting(
        "sql.concurrent_max",
        "POLYNYA_SQL_CONCURRENT_MAX",
        Form::Count,
        "0",
        "Statements that run at a time; 64 more wait, a further one is answered 429. 0 is one for each thread, at least 4.",
    ),
    setting("sql.deadline", "POLYNYA_SQL_DEADLINE", Form::Span, "60 s", "How long one statement may run."),
    setting(
        "record.enabled",
        "POLYNYA_RECORD",
        Form::Switch,
        "false",
        "Record this machine each second into polynya.metrics and polynya.processes. `polynya demo` turns it on.",
    ),
    setting("record.keep", "POLYNYA_RECORD_KEEP", Form::Span, "24 h", "How long what was recorded is kept."),
    setting(
        "record.processes",
        "POLYNYA_RECORD_PROCESSES",
        Form::Count,
        "5",
        "How many of the busiest and of the largest processes are recorded; 0 is none.",
    ),
    setting(
        "log.level",
        "POLYNYA_LOG_LEVEL",
        Form::Text,
        "info",
        "error, warn, info, debug or trace; `warn,commitlog=debug` names one part.",
    ),
    setting(
        "log.format",
        "POLYNYA_LOG_FORMAT",
        Form::Text,
        "text",
        "text for people, json for one object a line.",
    ),
    setting(
        "bench.sync_delay",
        "POLYNYA_BENCH_SYNC_DELAY",
        Form::Span,
        "0 s",
        "Added to each fsync of the commit log, to learn how a slower disk would do. For measurements only.",
    ),
];

/// Environment variables that are no settings, so that they are not reported as unknown.
pub const OTHER_VARIABLES: &[&str] =
    &["POLYNYA_CONFIG", "POLYNYA_KEY", "POLYNYA_URL", "POLYNYA_TEST_SCALE", "POLYNYA_TEST_SEEDS"];

pub fn find(path: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.path == path)
}

/// Of `names` the one most like `wanted`, if any is like it at all.
pub fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = names.map(|name| (distance(&wanted.to_lowercase(), &name.to_lowercase()), name));
    let (edits, name) = scored.min_by_key(|(edits, _)| *edits)?;
    (edits <= 2 + wanted.len() / 5).then_some(name)
}

/// How many characters must be inserted, removed or replaced (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_mistake_finds_its_setting() {
        let paths = || SETTINGS.iter().map(|s| s.path);
        assert_eq!(nearest("server.listn", paths()), Some("server.listen"));
        assert_eq!(nearest("sql.thread", paths()), Some("sql.threads"));
        assert_eq!(nearest("weather.report", paths()), None);
    }

    #[test]
    fn no_setting_stands_twice() {
        for (i, one) in SETTINGS.iter().enumerate() {
            assert!(
                SETTINGS[..i].iter().all(|other| other.path != one.path && other.env != one.env),
                "{one:?}"
            );
        }
    }
}
