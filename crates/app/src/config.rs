//! The effective settings: built-in defaults, then `polynya.toml`, then `POLYNYA_…` variables, then flags. The last source
//! that has a value wins.
//!
//! No file is needed. An unknown setting is an error that names the nearest known one, because a setting that is
//! silently ignored is worse than none. [`Config::explain`] prints every value with its source.

mod address;
mod settings;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use figment::error::{Actual, Kind as FigmentKind};
use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use serde::Deserialize;
use types::{Error, Result};

use crate::memory::Limit;
use crate::memory::share::Share;
use crate::units::{ByteSize, Span, SpanOrOff};
pub use address::parse as parse_address;
pub use settings::{SETTINGS, Setting, ValueForm, nearest};

/// The settings file that is read if no other is named and it exists in the working directory.
pub const FILE_NAME: &str = "polynya.toml";

#[derive(Clone, Debug, Deserialize)]
pub struct Config {
    pub profile: ProfileName,
    pub server: Server,
    pub sql: Sql,
    pub record: Record,
    pub lake: Lake,
    pub idempotency: Idempotency,
    pub syslog: Syslog,
    pub site: Site,
    pub log: Log,
    pub history: History,
    pub segments: Segments,
    pub bench: Bench,
    /// The memory that the process may take; `None` if it is unknown.
    #[serde(skip)]
    pub memory: Option<Limit>,
    /// The share of their defaults to which memory bounds are scaled, so that together they fit into that memory.
    #[serde(skip, default = "whole_share")]
    pub share: Share,
    /// All values with their sources.
    #[serde(skip)]
    figment: Values,
}

/// The merged values of all sources. Its `Debug` output hides them, because there may be secrets among them.
#[derive(Clone, Default)]
struct Values(Figment);

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl std::ops::Deref for Values {
    type Target = Figment;

    fn deref(&self) -> &Figment {
        &self.0
    }
}

/// The kind of machine that the defaults suit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProfileName {
    Server,
    Edge,
}

/// The owner of the credentials for the warehouse's object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Credentials {
    /// The credentials of the environment, if it has any, else the catalog's.
    Auto,
    /// The credentials of the environment or of the machine's role.
    Own,
    /// The credentials that the catalog hands out for each table.
    Catalog,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Server {
    #[serde(deserialize_with = "address::deserialize")]
    pub listen: SocketAddr,
    pub data: PathBuf,
    pub body_bytes_max: ByteSize,
    pub connections_max: usize,
    pub idle_timeout: Span,
    pub request_timeout: Span,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Sql {
    /// Threads for light statements, and as many for heavy ones; 0 means one for each core.
    pub threads: usize,
    pub memory_bytes_max: ByteSize,
    /// Heavy statements that run at a time; 0 means one for each thread, and at least 4.
    pub concurrent_max: usize,
    pub deadline: Span,
}

#[derive(Clone, Debug, Deserialize)]
pub struct History {
    pub keep: Span,
    pub bytes_max: ByteSize,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Segments {
    pub zstd_after: SpanOrOff,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Record {
    pub enabled: bool,
    pub keep: Span,
    pub processes: usize,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Lake {
    pub enabled: bool,
    pub commit_wait: Span,
    pub keep: Span,
    pub read_bytes_max: ByteSize,
    pub locations: Texts,
    pub warehouse: String,
    pub s3_endpoint: String,
    pub s3_region: String,
    pub s3_credentials: Credentials,
    pub catalog: String,
    pub catalog_warehouse: String,
    pub catalog_token: Secret,
    pub catalog_credential: Secret,
    pub catalog_scope: String,
    pub catalog_oauth2_uri: String,
}

/// A text that `Debug` and `polynya config` never show.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { HIDDEN })
    }
}

/// The text printed instead of a secret.
const HIDDEN: &str = "(not shown)";

/// Bounds of the idempotency keys that the server remembers.
#[derive(Clone, Debug, Deserialize)]
pub struct Idempotency {
    pub keep: Span,
    pub keys_max: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Syslog {
    /// Address and port for syslog; empty turns syslog off.
    pub listen: String,
    pub table: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Site {
    pub vault: Texts,
    pub publish: Texts,
    pub title: String,
    pub description: String,
    pub language: String,
    pub base_url: String,
    pub raw_html: bool,
    pub line_breaks: bool,
}

/// Several texts, written as a list or as one text with commas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "OneOrMore")]
pub struct Texts(pub Vec<String>);

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl From<OneOrMore> for Texts {
    fn from(given: OneOrMore) -> Texts {
        match given {
            OneOrMore::One(text) => Texts::parse(&text),
            OneOrMore::More(texts) => Texts(texts),
        }
    }
}

impl Texts {
    fn parse(text: &str) -> Texts {
        Texts(text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect())
    }
}

#[derive(Clone, Debug, Deserialize)]
pub struct Log {
    pub level: String,
    pub format: LogFormat,
    /// Folder or S3 prefix that the commit log is copied to; empty turns the archive off.
    pub archive: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Bench {
    pub sync_delay: Span,
    pub seal_rows: u64,
    pub log_file_bytes: ByteSize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

/// The sources of values other than the defaults.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The settings file named by `--config`, which must exist.
    pub file: Option<PathBuf>,
    /// Environment variables as names and values.
    pub variables: Vec<(String, String)>,
    /// Flags as `(path, value, flag)`: `("server.listen", "[::1]:80", "--listen")`.
    pub flags: Vec<(String, String, String)>,
    /// The memory that the process may take; defaults are scaled to fit into it.
    pub memory: Option<Limit>,
}

fn whole_share() -> Share {
    Share::WHOLE
}

impl Config {
    /// Reads all sources. Every error is one sentence that names the source of the value and the remedy.
    pub fn load(sources: &Sources) -> Result<Self> {
        let mut config = Self::load_over(sources, &[], "")?;
        let share = Share::within(sources.memory.as_ref());
        // The profile and the memory change the defaults only. All sources are read again, so that their values still win.
        match config.profile {
            ProfileName::Edge => {
                let edge: Vec<(&str, String)> =
                    settings::EDGE.iter().map(|(path, text)| (*path, (*text).to_owned())).collect();
                config = Self::load_over(sources, &edge, "profile \"edge\"")?;
            }
            ProfileName::Server if share != Share::WHOLE => {
                config = Self::load_over(sources, &share.settings(), "the available memory")?;
                config.share = share;
            }
            ProfileName::Server => {}
        }
        config.memory = sources.memory.clone();
        Ok(config)
    }

    /// Reads all sources, where `defaults` replace the built-in defaults of their settings and are reported as coming from
    /// `origin`.
    fn load_over(sources: &Sources, defaults: &[(&str, String)], origin: &str) -> Result<Self> {
        let mut figment = Figment::new();
        for setting in SETTINGS {
            figment = figment.merge(SettingValue::new(setting, setting.default, "built-in default")?);
            if let Some((_, text)) = defaults.iter().find(|(path, _)| *path == setting.path) {
                figment = figment.merge(SettingValue::new(setting, text, origin)?);
            }
        }
        if let Some(path) = config_file(sources)? {
            check_file(&path)?;
            figment = figment.merge(Toml::file_exact(&path));
        }
        for (name, text) in &sources.variables {
            if let Some(setting) = SETTINGS.iter().find(|setting| setting.env == name) {
                figment = figment.merge(SettingValue::new(setting, text, name)?);
            }
        }
        for (path, text, flag) in &sources.flags {
            let setting = settings::find(path).ok_or_else(|| unknown_setting(path, flag))?;
            figment = figment.merge(SettingValue::new(setting, text, flag)?);
        }
        let mut config: Config = figment.extract().map_err(|error| extract_error(&error))?;
        config.figment = Values(figment);
        // Ranges are checked after the merge, because the values of the file are known only now.
        for setting in SETTINGS {
            let Some(value) = config.figment.find_value(setting.path).ok() else { continue };
            let text = plain_text(&value);
            if let Err(why) = check_range(setting, &text) {
                return Err(value_error(setting, &config.source(setting.path), &why, &text));
            }
        }
        Ok(config)
    }

    /// Returns a warning for each `POLYNYA_…` variable that is not a setting, with the nearest setting. It is not an error,
    /// because the variable may belong to another program.
    pub fn unknown_variables(sources: &Sources) -> Vec<String> {
        let known = || SETTINGS.iter().map(|s| s.env).chain(settings::OTHER_VARIABLES.iter().copied());
        let ours = sources.variables.iter().map(|(name, _)| name).filter(|name| name.starts_with("POLYNYA_"));
        ours.filter(|name| !known().any(|known| known == *name))
            .map(|name| match nearest(name, known()) {
                Some(near) => {
                    format!("the environment variable {name} is not a setting; did you mean {near}?")
                }
                None => {
                    format!("the environment variable {name} is not a setting; `polynya config` lists them")
                }
            })
            .collect()
    }

    /// Returns the effective settings as the text of a `polynya.toml`, each with its source.
    pub fn explain(&self) -> String {
        let mut out = String::new();
        let mut section = "";
        for setting in SETTINGS {
            let (this_section, name) = setting.path.split_once('.').unwrap_or(("", setting.path));
            if this_section != section {
                section = this_section;
                let gap = if out.is_empty() { "" } else { "\n" };
                let _ = writeln!(out, "{gap}[{section}]");
            }
            let value =
                self.figment.find_value(setting.path).map(|value| toml_text(&value)).unwrap_or_default();
            let line = match setting.form {
                // The secret is commented out: a settings file made from this output needs it from another source.
                ValueForm::Secret if value != "\"\"" => format!("# {name} {HIDDEN}"),
                _ => format!("{name} = {value}"),
            };
            let _ = writeln!(out, "{line:<40} # {}", self.source(setting.path));
        }
        out
    }

    /// Returns every setting with its effective value and its source, for `polynya config --json`. Secrets are hidden.
    pub fn values(&self) -> impl Iterator<Item = (&'static Setting, String, String)> + '_ {
        SETTINGS.iter().map(|setting| {
            let value =
                self.figment.find_value(setting.path).map(|value| plain_text(&value)).unwrap_or_default();
            let is_hidden = setting.form == ValueForm::Secret && !value.is_empty();
            (setting, if is_hidden { HIDDEN.to_owned() } else { value }, self.source(setting.path))
        })
    }

    /// Describes the size settings that are larger than the values of `others`, as `sql.memory_bytes_max = 4 GiB`, each
    /// with its source.
    pub fn larger_than(&self, others: &[(&str, String)]) -> Vec<String> {
        let is_larger = |path: &str, other: &str| {
            let value = self.figment.find_value(path).ok()?;
            let (value, other) = (plain_text(&value), other.parse::<ByteSize>().ok()?);
            let large = value.parse::<ByteSize>().is_ok_and(|value| value.0 > other.0);
            large.then(|| format!("{path} = {value} ({}), where {other} fit", self.source(path)))
        };
        others.iter().filter_map(|(path, other)| is_larger(path, other)).collect()
    }

    fn source(&self, path: &str) -> String {
        let Some(metadata) = self.figment.find_metadata(path) else { return "unknown".into() };
        match metadata.source.as_ref().and_then(|source| source.file_path()) {
            Some(file) => file.display().to_string(),
            None => metadata.name.to_string(),
        }
    }
}

/// Returns an example `polynya.toml`: every setting with its description and default, commented out.
pub fn example() -> String {
    let mut out = String::from(
        "# polynya.toml: every setting with its default. No file is needed; delete what you do not change.\n\
         # Each setting can also be given as the environment variable beside it, or as a flag, which wins over both.\n\
         # `polynya config` prints the effective settings and where each came from.\n",
    );
    let mut section = "";
    for setting in SETTINGS {
        let (this_section, name) = setting.path.split_once('.').unwrap_or(("", setting.path));
        if this_section != section {
            section = this_section;
            let _ = writeln!(out, "\n[{section}]");
        }
        let value = parse(setting, setting.default).map(|value| toml_text(&value)).unwrap_or_default();
        let _ = writeln!(out, "# {} ({})\n# {name} = {value}", setting.help, setting.env);
    }
    out
}

/// One value from the environment, a flag or the defaults.
struct SettingValue {
    path: &'static str,
    value: Value,
    source: String,
}

impl SettingValue {
    fn new(setting: &'static Setting, text: &str, source: &str) -> Result<Self> {
        let value = parse(setting, text).map_err(|why| value_error(setting, source, &why, text))?;
        Ok(SettingValue { path: setting.path, value, source: source.to_owned() })
    }
}

impl Provider for SettingValue {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.source.clone())
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        let nested = figment::util::nest(self.path, self.value.clone());
        let dict = nested
            .into_dict()
            .ok_or_else(|| figment::Error::from("a setting without a section".to_owned()))?;
        Ok(Map::from([(Profile::Default, dict)]))
    }
}

/// Parses a text from the environment, a flag or the defaults into the value that a file would hold.
fn parse(setting: &Setting, text: &str) -> std::result::Result<Value, String> {
    let text = text.trim();
    match setting.form {
        ValueForm::Text | ValueForm::Secret => Ok(Value::from(text)),
        ValueForm::OneOf(_) | ValueForm::Level => match setting.check_word(text) {
            Some((why, _)) => Err(why),
            None => Ok(Value::from(text)),
        },
        ValueForm::Texts => Ok(Value::from(Texts::parse(text).0)),
        ValueForm::Address => address::parse(text).map(|_| Value::from(text)),
        ValueForm::Size => {
            text.parse::<ByteSize>().map(|size| Value::from(size.to_string())).and(Ok(Value::from(text)))
        }
        ValueForm::Span => text.parse::<Span>().and(Ok(Value::from(text))),
        ValueForm::SpanOrOff => text.parse::<SpanOrOff>().and(Ok(Value::from(text))),
        ValueForm::Count => {
            text.parse::<u64>().map(Value::from).map_err(|_| format!("`{text}` is not a whole number"))
        }
        ValueForm::Switch => match text {
            "true" | "1" | "yes" | "on" => Ok(Value::from(true)),
            "false" | "0" | "no" | "off" => Ok(Value::from(false)),
            _ => Err(format!("`{text}` is neither true nor false")),
        },
    }
}

/// Makes the error for a value that does not fit its setting. The hint names the word that was probably meant, else the
/// form of the setting's values.
fn value_error(setting: &Setting, source: &str, why: &str, text: &str) -> Error {
    let hint = match setting.check_word(text.trim()) {
        Some((_, Some(near))) => format!("did you mean `{near}`?"),
        _ => setting.hint_text(),
    };
    Error::invalid(format!("{source}: `{}`: {why}", setting.path)).hint(hint)
}

/// Checks that a value is one of its setting's words, or lies in its range. A number that cannot be parsed passes.
fn check_range(setting: &Setting, text: &str) -> std::result::Result<(), String> {
    if let Some((why, _)) = setting.check_word(text) {
        return Err(why);
    }
    let Some((least, most)) = setting.range else { return Ok(()) };
    let number = |text: &str| -> Option<u128> {
        match setting.form {
            ValueForm::Size => text.parse().ok().map(|ByteSize(bytes)| bytes.into()),
            ValueForm::Span | ValueForm::SpanOrOff => text.parse().ok().map(|Span(span)| span.as_nanos()),
            _ => text.parse().ok(),
        }
    };
    match (number(text), number(least), number(most)) {
        (Some(found), Some(low), _) if found < low => Err(format!("{text} is less than {least}")),
        (Some(found), _, Some(high)) if found > high => Err(format!("{text} is more than {most}")),
        _ => Ok(()),
    }
}

/// Formats a value without quotes, and a list with commas.
fn plain_text(value: &Value) -> String {
    match value {
        Value::String(_, text) => text.clone(),
        Value::Bool(_, on) => on.to_string(),
        Value::Num(_, number) => match number.to_u128_lossy() {
            Some(whole) => whole.to_string(),
            None => number.to_f64().map(|n| n.to_string()).unwrap_or_default(),
        },
        Value::Array(_, all) => all.iter().map(plain_text).collect::<Vec<_>>().join(", "),
        other => format!("{other:?}"),
    }
}

/// Formats a value as TOML.
fn toml_text(value: &Value) -> String {
    match value {
        Value::String(_, text) => format!("{text:?}"),
        Value::Array(_, all) => format!("[{}]", all.iter().map(toml_text).collect::<Vec<_>>().join(", ")),
        other => plain_text(other),
    }
}

fn config_file(sources: &Sources) -> Result<Option<PathBuf>> {
    let variable =
        sources.variables.iter().find(|(name, _)| name == "POLYNYA_CONFIG").map(|(_, path)| path.into());
    match sources.file.clone().or(variable) {
        Some(named) if !named.is_file() => {
            Err(Error::not_found(format!("there is no configuration file {}", named.display()))
                .hint("`polynya config --example` prints one to start from"))
        }
        Some(named) => Ok(Some(named)),
        None => Ok(Some(PathBuf::from(FILE_NAME)).filter(|path| path.is_file())),
    }
}

/// Checks the syntax of a settings file, then the names of its settings. Both come before the types of values, so that the
/// most basic mistake is reported.
fn check_file(path: &Path) -> Result<()> {
    let place = path.display();
    let data = Toml::file_exact(path).data().map_err(|error| {
        // The parser's error quotes the line and draws a caret below it. Its first and last line make one sentence.
        let text = error.to_string();
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let first = lines.next().unwrap_or("unreadable").trim_start_matches("TOML parse error ").to_owned();
        let last = lines.next_back().map(|line| format!(": {line}")).unwrap_or_default();
        Error::invalid(format!("{place} is not valid TOML {first}{last}"))
    })?;
    for dict in data.values() {
        for (section, value) in dict {
            let Value::Dict(_, entries) = value else {
                match settings::find(section) {
                    Some(_) => continue,
                    None => return Err(unknown_setting(section, &place.to_string())),
                }
            };
            for name in entries.keys() {
                let found = format!("{section}.{name}");
                if settings::find(&found).is_none() {
                    return Err(unknown_setting(&found, &place.to_string()));
                }
            }
        }
    }
    Ok(())
}

fn unknown_setting(path: &str, place: &str) -> Error {
    let hint = match nearest(path, SETTINGS.iter().map(|setting| setting.path)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`polynya config` lists the settings".to_owned(),
    };
    Error::invalid(format!("{place}: there is no setting `{}`", types::name::printable(path))).hint(hint)
}

/// Makes the error for `--set PATH` without a value, with a hint on how to write one.
pub fn without_value(path: &str) -> Error {
    let error = Error::invalid(format!("--set {} has no value", types::name::printable(path)));
    match (settings::find(path), nearest(path, SETTINGS.iter().map(|setting| setting.path))) {
        (Some(setting), _) => error.hint(format!("write --set {path}=VALUE; {}", setting.hint_text())),
        (None, Some(near)) => error.hint(format!("did you mean --set {near}=VALUE?")),
        (None, None) => error.hint("write --set NAME=VALUE; `polynya config` lists the names"),
    }
}

fn extract_error(error: &figment::Error) -> Error {
    let path = error.path.join(".");
    let place = match &error.metadata {
        Some(metadata) => match metadata.source.as_ref().and_then(|source| source.file_path()) {
            Some(file) => file.display().to_string(),
            None => metadata.name.to_string(),
        },
        None => "configuration".to_owned(),
    };
    let why = match &error.kind {
        FigmentKind::InvalidType(found, _) | FigmentKind::InvalidValue(found, _) => {
            format!("{} does not fit", shown_value(found))
        }
        // A list is deserialized from an untagged enum, whose error would name Rust types.
        FigmentKind::Message(text) if text.contains("untagged enum") => "the value does not fit".to_owned(),
        other => other.to_string(),
    };
    match (settings::find(&path), &error.kind) {
        (Some(setting), _) if setting.form == ValueForm::Secret => {
            value_error(setting, &place, "it is not text", "")
        }
        (Some(setting), FigmentKind::UnknownVariant(found, _)) => {
            let why = setting.check_word(found).map_or(why, |(why, _)| why);
            value_error(setting, &place, &why, found)
        }
        (Some(setting), _) => value_error(setting, &place, &why, ""),
        (None, _) => Error::invalid(format!("{place}: `{path}`: {why}")),
    }
}

/// Formats a value of the settings file as its author wrote it, without Rust types.
fn shown_value(found: &Actual) -> String {
    match found {
        Actual::Bool(value) => format!("`{value}`"),
        Actual::Unsigned(value) => format!("`{value}`"),
        Actual::Signed(value) => format!("`{value}`"),
        Actual::Float(value) => format!("`{value}`"),
        Actual::Char(value) => format!("`{value}`"),
        Actual::Str(value) | Actual::Other(value) => format!("`{}`", types::name::printable(value)),
        Actual::Seq => "a list".to_owned(),
        Actual::Map => "a table".to_owned(),
        _ => "the value".to_owned(),
    }
}

#[cfg(test)]
mod tests;
