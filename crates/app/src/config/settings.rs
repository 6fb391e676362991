//! The list of all settings: path in `polynya.toml`, environment variable, form, default, range and description.
//! The file reader, the environment reader, the example file and `polynya config` all use this list.

use engine::name_hints::{one_of, similar_names};
use types::name::printable;

use crate::logging::{LEVELS, wrong_level};

/// The form in which a setting's value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueForm {
    Text,
    /// A text that is never shown.
    Secret,
    /// An address and a port, such as `127.0.0.1:8484`.
    Address,
    /// A number of bytes, such as `64 MiB`.
    Size,
    /// A length of time, such as `30 s`.
    Span,
    /// A length of time, such as `7 d`, or `off`.
    SpanOrOff,
    /// A list: `docs, notes` in a variable or flag, `["docs", "notes"]` in a file.
    Texts,
    /// A whole number.
    Count,
    /// `true` or `false`.
    Switch,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A filter of log levels, such as `info` or `warn,commitlog=debug`.
    Level,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// `section.name`, as in the file and in `--set`.
    pub path: &'static str,
    pub env: &'static str,
    pub form: ValueForm,
    pub default: &'static str,
    /// The smallest and the largest value, in the setting's form. A value outside of them would crash the process or keep
    /// it from working at all. `None` for a setting that is not a quantity.
    pub range: Option<(&'static str, &'static str)>,
    pub help: &'static str,
}

const fn setting(
    path: &'static str,
    env: &'static str,
    form: ValueForm,
    default: &'static str,
    range: Option<(&'static str, &'static str)>,
    help: &'static str,
) -> Setting {
    Setting { path, env, form, default, range, help }
}

/// All settings, by section, in the order of the example file.
pub const SETTINGS: &[Setting] = &[
    setting(
        "profile",
        "POLYNYA_PROFILE",
        ValueForm::OneOf(&["server", "edge"]),
        "server",
        None,
        "edge is for small machines: other defaults, smaller buffers, fewer threads. Other settings override it.",
    ),
    setting(
        "server.listen",
        "POLYNYA_LISTEN",
        ValueForm::Address,
        "127.0.0.1:8484",
        None,
        "Address and port; a port alone is on 127.0.0.1. While no key exists, only programs of this machine are answered.",
    ),
    setting(
        "server.data",
        "POLYNYA_DATA",
        ValueForm::Text,
        "./polynya-data",
        None,
        "The data directory. One process at a time has it open.",
    ),
    setting(
        "server.body_bytes_max",
        "POLYNYA_BODY_BYTES_MAX",
        ValueForm::Size,
        "64 MiB",
        Some(("1 KiB", "1 GiB")),
        "The largest request body; a body is one commit.",
    ),
    setting(
        "server.connections_max",
        "POLYNYA_CONNECTIONS_MAX",
        ValueForm::Count,
        "20000",
        Some(("1", "1000000")),
        "Connections at a time; further ones are closed at once.",
    ),
    setting(
        "server.idle_timeout",
        "POLYNYA_IDLE_TIMEOUT",
        ValueForm::Span,
        "150 s",
        Some(("100 ms", "24 h")),
        "How long a connection without a request stays open.",
    ),
    setting(
        "server.request_timeout",
        "POLYNYA_REQUEST_TIMEOUT",
        ValueForm::Span,
        "5 min",
        Some(("100 ms", "24 h")),
        "How long a request may take to arrive.",
    ),
    setting(
        "sql.threads",
        "POLYNYA_SQL_THREADS",
        ValueForm::Count,
        "0",
        Some(("0", "1024")),
        "Threads for light statements, and as many for the others; 0 is one for each core.",
    ),
    setting(
        "sql.memory_bytes_max",
        "POLYNYA_SQL_MEMORY_BYTES_MAX",
        ValueForm::Size,
        "512 MiB",
        Some(("1 MiB", "16 TB")),
        "Memory of all running heavy statements together, and an eighth as much besides for light ones; beyond it they spill to disk.",
    ),
    setting(
        "sql.concurrent_max",
        "POLYNYA_SQL_CONCURRENT_MAX",
        ValueForm::Count,
        "0",
        Some(("0", "10000")),
        "Statements that run at a time, light ones (lookups, small scans) not counted; 64 more wait, a further one is answered 429. 0 is one for each thread, at least 4.",
    ),
    setting(
        "sql.deadline",
        "POLYNYA_SQL_DEADLINE",
        ValueForm::Span,
        "60 s",
        Some(("1 ms", "24 h")),
        "How long one statement may run.",
    ),
    setting(
        "history.keep",
        "POLYNYA_HISTORY_KEEP",
        ValueForm::Span,
        "10 min",
        Some(("0 s", "30 d")),
        "How long rows that were changed or deleted can still be read by AS OF.",
    ),
    setting(
        "history.bytes_max",
        "POLYNYA_HISTORY_BYTES_MAX",
        ValueForm::Size,
        "1 GiB",
        Some(("0 B", "16 TB")),
        "Size of the files of such rows, of all tables together; beyond it the oldest are removed early.",
    ),
    setting(
        "segments.zstd_after",
        "POLYNYA_SEGMENTS_ZSTD_AFTER",
        ValueForm::SpanOrOff,
        "off",
        Some(("0 s", "3650 d")),
        "Files of rows that all arrived longer ago than this are compressed; `off` compresses no more of them.",
    ),
    setting(
        "record.enabled",
        "POLYNYA_RECORD",
        ValueForm::Switch,
        "false",
        None,
        "Record this machine each second into polynya.metrics and polynya.processes. `polynya demo` turns it on.",
    ),
    setting(
        "record.keep",
        "POLYNYA_RECORD_KEEP",
        ValueForm::Span,
        "24 h",
        Some(("1 s", "3650 d")),
        "How long recorded rows are kept.",
    ),
    setting(
        "record.processes",
        "POLYNYA_RECORD_PROCESSES",
        ValueForm::Count,
        "5",
        Some(("0", "50")),
        "Number of the busiest and of the largest processes that are recorded; 0 records none.",
    ),
    setting(
        "lake.enabled",
        "POLYNYA_LAKE",
        ValueForm::Switch,
        "true",
        None,
        "Tables land in Apache Iceberg, in lake/ below the data directory, unless they say `lake: false`. Those that say true always do.",
    ),
    setting(
        "lake.commit_wait",
        "POLYNYA_LAKE_COMMIT_WAIT",
        ValueForm::Span,
        "10 s",
        Some(("100 ms", "24 h")),
        "A row is in the lake after this; where fewer than 1,000 wait, after six times this. 64 MiB of rows land at once.",
    ),
    setting(
        "lake.keep",
        "POLYNYA_LAKE_KEEP",
        ValueForm::Span,
        "10 min",
        Some(("0 s", "3650 d")),
        "How long old Iceberg snapshots stay readable. The newest 20 stay in any case, and never more than 1,000.",
    ),
    setting(
        "lake.read_bytes_max",
        "POLYNYA_LAKE_READ_BYTES_MAX",
        ValueForm::Size,
        "128 MiB",
        Some(("1 MiB", "16 TB")),
        "Memory for unpacked parts of row groups, for readers of rows that are only in the lake, of all tables.",
    ),
    setting(
        "lake.locations",
        "POLYNYA_LAKE_LOCATIONS",
        ValueForm::Texts,
        "",
        None,
        "Directories in which clients of the Iceberg catalog may create tables, besides lake/_catalog/ below the data directory.",
    ),
    setting(
        "lake.warehouse",
        "POLYNYA_LAKE_WAREHOUSE",
        ValueForm::Text,
        "",
        None,
        "Where tables land: s3://BUCKET/PREFIX, with the key in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or handed out by lake.catalog. Without one it is lake/ below the data directory.",
    ),
    setting(
        "lake.s3_endpoint",
        "POLYNYA_LAKE_S3_ENDPOINT",
        ValueForm::Text,
        "",
        None,
        "The address of a store that speaks S3, such as http://127.0.0.1:7070, for the warehouse, for backups and for the archive of the log. The default is Amazon's.",
    ),
    setting(
        "lake.s3_region",
        "POLYNYA_LAKE_S3_REGION",
        ValueForm::Text,
        "",
        None,
        "The region of the bucket; the default is AWS_REGION.",
    ),
    setting(
        "lake.s3_credentials",
        "POLYNYA_LAKE_S3_CREDENTIALS",
        ValueForm::OneOf(&["auto", "own", "catalog"]),
        "auto",
        None,
        "The key that opens the warehouse: own, from the environment (AWS_…) or the machine's role; catalog, handed out by lake.catalog for each table; auto, own if the environment has one, else the catalog's.",
    ),
    setting(
        "lake.catalog",
        "POLYNYA_LAKE_CATALOG",
        ValueForm::Text,
        "",
        None,
        "An Iceberg REST catalog elsewhere that has the tables and takes the commits: its address before /v1, such as http://127.0.0.1:8181/catalog. Without one commits are metadata files beside the data.",
    ),
    setting(
        "lake.catalog_warehouse",
        "POLYNYA_LAKE_CATALOG_WAREHOUSE",
        ValueForm::Text,
        "",
        None,
        "The warehouse of that catalog, if it has several.",
    ),
    setting(
        "lake.catalog_token",
        "POLYNYA_LAKE_CATALOG_TOKEN",
        ValueForm::Secret,
        "",
        None,
        "The token for that catalog; better in the environment than in a file. Never shown.",
    ),
    setting(
        "lake.catalog_credential",
        "POLYNYA_LAKE_CATALOG_CREDENTIAL",
        ValueForm::Secret,
        "",
        None,
        "ID:SECRET, exchanged for a new token whenever one expires (OAuth2 client credentials). Never shown.",
    ),
    setting(
        "lake.catalog_scope",
        "POLYNYA_LAKE_CATALOG_SCOPE",
        ValueForm::Text,
        "catalog",
        None,
        "The scope to request with the credential.",
    ),
    setting(
        "lake.catalog_oauth2_uri",
        "POLYNYA_LAKE_CATALOG_OAUTH2_URI",
        ValueForm::Text,
        "",
        None,
        "The address that issues tokens for the credential; the default is /v1/oauth/tokens of the catalog.",
    ),
    setting(
        "idempotency.keep",
        "POLYNYA_IDEMPOTENCY_KEEP",
        ValueForm::Span,
        "24 h",
        Some(("1 min", "3650 d")),
        "How long a request with an Idempotency-Key is remembered.",
    ),
    setting(
        "idempotency.keys_max",
        "POLYNYA_IDEMPOTENCY_KEYS_MAX",
        ValueForm::Count,
        "10000000",
        Some(("1000", "1000000000")),
        "The number of such requests that are remembered; the oldest are forgotten first.",
    ),
    setting(
        "syslog.listen",
        "POLYNYA_SYSLOG_LISTEN",
        ValueForm::Text,
        "",
        None,
        "Address and port for syslog over TCP and UDP, such as 127.0.0.1:5514. Syslog has no keys: anyone who can reach it can write. Without an address syslog is off.",
    ),
    setting(
        "syslog.table",
        "POLYNYA_SYSLOG_TABLE",
        ValueForm::Text,
        "syslog",
        None,
        "The table of syslog messages; it is created with the first one.",
    ),
    setting(
        "site.vault",
        "POLYNYA_SITE_VAULT",
        ValueForm::Texts,
        "",
        None,
        "Folders of Markdown notes that are published; `PLACE=FOLDER` puts one below an address. Without any there is no site.",
    ),
    setting(
        "site.publish",
        "POLYNYA_SITE_PUBLISH",
        ValueForm::Texts,
        "",
        None,
        "Notes that are public besides those that say `publish: true`: patterns of paths, such as blog/**; ** is all. `publish: false` in a note always wins.",
    ),
    setting(
        "site.title",
        "POLYNYA_SITE_TITLE",
        ValueForm::Text,
        "Notes",
        None,
        "The site's name, on every page.",
    ),
    setting(
        "site.description",
        "POLYNYA_SITE_DESCRIPTION",
        ValueForm::Text,
        "",
        None,
        "One sentence about the site, for the feed and for search engines.",
    ),
    setting(
        "site.language",
        "POLYNYA_SITE_LANGUAGE",
        ValueForm::Text,
        "en",
        None,
        "Language of the notes, as in HTML.",
    ),
    setting(
        "site.base_url",
        "POLYNYA_SITE_BASE_URL",
        ValueForm::Text,
        "",
        None,
        "The address of the site for its readers, such as https://example.org; sitemap and feed need it.",
    ),
    setting(
        "site.raw_html",
        "POLYNYA_SITE_RAW_HTML",
        ValueForm::Switch,
        "false",
        None,
        "Harmless HTML in notes stays HTML; otherwise all HTML is shown as text. Scripts and forms never work.",
    ),
    setting(
        "site.line_breaks",
        "POLYNYA_SITE_LINE_BREAKS",
        ValueForm::Switch,
        "false",
        None,
        "A line break in a paragraph is shown as one, as Obsidian does.",
    ),
    setting(
        "log.level",
        "POLYNYA_LOG_LEVEL",
        ValueForm::Level,
        "info",
        None,
        "error, warn, info, debug or trace; `warn,commitlog=debug` names one part.",
    ),
    setting(
        "log.format",
        "POLYNYA_LOG_FORMAT",
        ValueForm::OneOf(&["text", "json"]),
        "text",
        None,
        "text for people, json for one object a line.",
    ),
    setting(
        "log.archive",
        "POLYNYA_LOG_ARCHIVE",
        ValueForm::Text,
        "",
        None,
        "A folder, best on another disk, or s3://BUCKET/PREFIX that the commit log is copied to, so that a backup can be carried forward to any later commit. Nothing is ever removed there.",
    ),
    setting(
        "bench.sync_delay",
        "POLYNYA_BENCH_SYNC_DELAY",
        ValueForm::Span,
        "0 s",
        Some(("0 s", "10 s")),
        "Time added to each fsync of the commit log, to simulate a slower disk. For measurements only.",
    ),
    setting(
        "bench.seal_rows",
        "POLYNYA_BENCH_SEAL_ROWS",
        ValueForm::Count,
        "1048576",
        Some(("100", "1048576")),
        "Number of a table's newest rows that become a segment: a small number causes many seals and merges in a short time. For measurements only.",
    ),
    setting(
        "bench.log_file_bytes",
        "POLYNYA_BENCH_LOG_FILE_BYTES",
        ValueForm::Size,
        "64 MiB",
        Some(("16 KiB", "64 MiB")),
        "Size of a file of the commit log: a small size causes many files. For measurements only.",
    ),
];

/// The defaults that `profile = "edge"` changes, as paths and values.
pub const EDGE: &[(&str, &str)] = &[
    ("server.body_bytes_max", "4 MiB"),
    ("server.connections_max", "256"),
    ("sql.threads", "1"),
    ("sql.memory_bytes_max", "16 MiB"),
    ("sql.concurrent_max", "2"),
    ("lake.read_bytes_max", "16 MiB"),
    ("history.keep", "60 s"),
    ("history.bytes_max", "64 MiB"),
];

/// Environment variables of Polynya that are not settings and are not reported as unknown.
pub const OTHER_VARIABLES: &[&str] =
    &["POLYNYA_CONFIG", "POLYNYA_KEY", "POLYNYA_URL", "POLYNYA_TEST_SCALE", "POLYNYA_TEST_SEEDS"];

impl Setting {
    /// Returns why `text` is none of the setting's words or log levels, with the word that was probably meant. Returns
    /// `None` for a valid text, and for every other form of setting.
    pub fn check_word(&self, text: &str) -> Option<(String, Option<&'static str>)> {
        let near =
            |word: &str, known: &[&'static str]| similar_names(word, known.iter().copied()).first().copied();
        match self.form {
            ValueForm::OneOf(words) if !words.contains(&text) => Some((
                format!("{} is expected, `{}` was given", one_of(words), printable(text)),
                near(text, words),
            )),
            ValueForm::Level => {
                let word = wrong_level(text)?;
                Some((format!("`{}` is not a log level", printable(word)), near(word, &LEVELS)))
            }
            _ => None,
        }
    }

    /// Describes a valid value of this setting, for hints.
    pub fn hint_text(&self) -> String {
        let form = match self.form {
            ValueForm::Text => return format!("for example \"{}\"", self.default),
            ValueForm::Secret => return "write a text".into(),
            ValueForm::Address => {
                return "write an address and a port, like 127.0.0.1:8484, or a port alone".into();
            }
            ValueForm::Texts => {
                return "write them with commas between, in a file as [\"docs\", \"notes\"]".into();
            }
            ValueForm::Size => "a size like \"64 MiB\"",
            ValueForm::Span => "a time like \"30 s\"",
            ValueForm::SpanOrOff => "a time like \"7 d\", or off",
            ValueForm::Count => "a whole number",
            ValueForm::Switch => return "write true or false".into(),
            ValueForm::OneOf(words) => return format!("write {}", one_of(words)),
            ValueForm::Level => {
                return "write error, warn, info, debug or trace, or name a part: `warn,commitlog=debug`"
                    .into();
            }
        };
        match self.range {
            Some((least, most)) => format!("write {form}, from {least} to {most}"),
            None => format!("write {form}"),
        }
    }
}

pub fn find(path: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.path == path)
}

/// Returns the name that is most similar to `wanted`, or `None` if all differ in more than 2 characters and a fifth of its
/// length.
pub fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = names.map(|name| (distance(&wanted.to_lowercase(), &name.to_lowercase()), name));
    let (edits, name) = scored.min_by_key(|(edits, _)| *edits)?;
    (edits <= 2 + wanted.len() / 5).then_some(name)
}

/// The Levenshtein distance: the number of characters to insert, remove or replace.
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

    /// The page on configuration states this rule and does not list the names.
    #[test]
    fn a_variables_name_follows_from_the_settings() {
        for setting in SETTINGS {
            let name = setting.path.trim_start_matches("server.").trim_end_matches(".enabled");
            let variable = format!("POLYNYA_{}", name.replace('.', "_").to_uppercase());
            assert_eq!(setting.env, variable);
        }
    }

    #[test]
    fn the_page_on_configuration_has_each_setting_with_its_form_and_default() {
        let page = testkit::package().join("../../docs/configuration.md");
        let page = std::fs::read_to_string(page).unwrap();
        let rows: Vec<&str> =
            page.lines().filter(|line| line.starts_with("| `") && line.contains("` | ")).collect();
        let rows: Vec<&str> = rows.into_iter().filter(|row| !row.starts_with("| `POLYNYA_")).collect();
        assert_eq!(rows.len(), SETTINGS.len());
        for (setting, row) in SETTINGS.iter().zip(rows) {
            let form = match setting.form {
                ValueForm::Text => "text".to_owned(),
                ValueForm::Secret => "secret".to_owned(),
                ValueForm::Address => "address".to_owned(),
                ValueForm::Size => "size".to_owned(),
                ValueForm::Span => "time".to_owned(),
                ValueForm::SpanOrOff => "time or off".to_owned(),
                ValueForm::Texts => "list".to_owned(),
                ValueForm::Count => "number".to_owned(),
                ValueForm::Switch => "true or false".to_owned(),
                ValueForm::OneOf(words) => one_of(words),
                ValueForm::Level => "level".to_owned(),
            };
            let range = setting.range.map(|(least, most)| format!(", {least} to {most}")).unwrap_or_default();
            let default = if setting.default.is_empty() { "none" } else { &format!("`{}`", setting.default) };
            let wanted = format!("| `{}` | {form}{range} | {default} | ", setting.path);
            assert!(row.starts_with(&wanted), "{row}\n{wanted}");
        }
    }

    #[test]
    fn every_quantity_has_a_range() {
        for setting in SETTINGS {
            let is_quantity = matches!(
                setting.form,
                ValueForm::Size | ValueForm::Span | ValueForm::SpanOrOff | ValueForm::Count
            );
            assert_eq!(setting.range.is_some(), is_quantity, "{setting:?}");
        }
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
