//! The interactive shell of `polynya sql`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use types::{Error, Result};

use crate::cli::ServerArgs;
use crate::config::Config;
use crate::connection::DataConnection;
use crate::output;

use super::copy::StdinUse;
use super::sql::{self, AnswerFormat};
use super::tables;

const HELP: &str = "\
A statement ends with `;` and may take several lines. Ctrl-C cancels a running one, Ctrl-D leaves.
  \\dt           all tables             \\d NAME       one table's columns
  \\timing       show how long it took  \\x            one JSON object a row, or tables again
  \\help         this                   \\q            leave
COPY t TO 'file.csv', COPY t FROM 'file.parquet': files of this directory, CSV, NDJSON or Parquet.
Every table has _row_id and _time (its arrival). Times are UTC; now() - interval '1 minute' works.
";

/// A backslash command.
#[derive(Debug, PartialEq, Eq)]
enum MetaCommand<'a> {
    Tables,
    Describe(&'a str),
    Timing,
    Expanded,
    Help,
    Quit,
    Unknown(&'a str),
}

pub fn run(config: &Config, server: &ServerArgs) -> Result<ExitCode> {
    let mut editor =
        DefaultEditor::new().map_err(|error| Error::internal(format!("no line editor: {error}")))?;
    let history = history_file();
    if let Some(path) = &history {
        // There is no history at the first start.
        let _ = editor.load_history(path);
    }
    super::block_on(async {
        let connection = DataConnection::open(config, server).await?;
        output::print(&format!(
            "Polynya {}, {}. \\help explains, \\q leaves.\n",
            env!("CARGO_PKG_VERSION"),
            connection.place()
        ));
        connection
            .with(async |connection: &mut DataConnection| run_lines(connection, &mut editor).await)
            .await
    })?;
    if let Some(path) = &history {
        // A lost history is not an error.
        let _ = path.parent().map(std::fs::create_dir_all);
        let _ = editor.save_history(path);
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads and runs lines until the user leaves.
async fn run_lines(connection: &mut DataConnection, editor: &mut DefaultEditor) -> Result<()> {
    let mut state = State { timing: true, format: AnswerFormat::Table };
    let mut pending = String::new();
    loop {
        let prompt = if pending.is_empty() { "polynya> " } else { "     ... " };
        // The editor blocks; the connection's task runs on another thread meanwhile.
        match tokio::task::block_in_place(|| editor.readline(prompt)) {
            Ok(line) if pending.is_empty() && line.trim().is_empty() => {}
            Ok(line) if pending.is_empty() && bare_command(&line).is_some() => {
                match state.command(connection, bare_command(&line).unwrap_or_default()).await {
                    Ok(Some(text)) => output::print(&text),
                    _ => return Ok(()),
                }
            }
            // A backslash command may come in the middle of a statement, which stays pending.
            Ok(line) if line.trim_start().starts_with('\\') => {
                let _ = editor.add_history_entry(line.trim());
                match state.command(connection, line.trim()).await {
                    Ok(Some(text)) => output::print(&text),
                    Ok(None) => return Ok(()),
                    Err(error) => eprintln!("{error}"),
                }
            }
            Ok(line) => {
                pending.push_str(&line);
                pending.push('\n');
                if !is_complete(&pending) {
                    continue;
                }
                let text = std::mem::take(&mut pending);
                let _ = editor.add_history_entry(text.trim());
                for statement in split(&text) {
                    state.run_statement(connection, &statement).await;
                }
            }
            Err(ReadlineError::Interrupted) => pending.clear(),
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(Error::internal(format!("the terminal failed: {error}"))),
        }
    }
}

/// One step of a file or a pipe.
#[derive(Debug, PartialEq, Eq)]
pub enum ShellStep {
    Statement(String),
    /// A line that begins with a backslash, outside a statement.
    Command(String),
}

/// Splits a text into its statements and backslash commands, in their order.
pub fn steps(text: &str) -> Vec<ShellStep> {
    let mut steps = Vec::new();
    let mut pending = String::new();
    let statements = |text: &str| split(text).into_iter().map(ShellStep::Statement).collect::<Vec<_>>();
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with('\\') && is_complete(&pending) {
            steps.extend(statements(&std::mem::take(&mut pending)));
            steps.push(ShellStep::Command(line.trim().to_owned()));
        } else {
            pending.push_str(line);
        }
    }
    steps.extend(statements(&pending));
    steps
}

/// The state of a shell, which backslash commands change.
pub struct State {
    pub timing: bool,
    pub format: AnswerFormat,
}

impl State {
    /// Runs a statement and shows its answer or its error.
    async fn run_statement(&self, connection: &mut DataConnection, statement: &str) {
        let started = Instant::now();
        let outcome = tokio::select! {
            // `biased` polls the signal first, so that Ctrl-C is heard before the statement is sent.
            biased;
            _ = tokio::signal::ctrl_c() => {
                output::print("cancelled\n");
                return;
            }
            outcome = sql::answer(connection.client(), statement, &[], self.format, StdinUse::Shell) => outcome,
        };
        match outcome {
            Err(error) => eprintln!("{error}"),
            Ok(()) if self.timing => {
                output::print(&format!("{:.1} ms\n", started.elapsed().as_secs_f64() * 1e3))
            }
            Ok(()) => {}
        }
    }

    /// Runs a backslash command and returns the text to print; `None` ends the shell.
    pub async fn command(&mut self, connection: &mut DataConnection, line: &str) -> Result<Option<String>> {
        let text = match parse_meta(line) {
            MetaCommand::Quit => return Ok(None),
            MetaCommand::Help => Ok(HELP.to_owned()),
            MetaCommand::Tables => {
                tables::list(connection.client()).await.map(|answer| tables::list_table(&answer))
            }
            MetaCommand::Describe(name) => {
                tables::describe(connection.client(), name).await.map(|table| tables::description(&table))
            }
            MetaCommand::Timing => {
                self.timing = !self.timing;
                Ok(format!("timing is {}\n", if self.timing { "on" } else { "off" }))
            }
            MetaCommand::Expanded => {
                self.format =
                    if self.format == AnswerFormat::Table { AnswerFormat::Json } else { AnswerFormat::Table };
                Ok(format!(
                    "answers are {}\n",
                    if self.format == AnswerFormat::Table { "tables" } else { "JSON" }
                ))
            }
            MetaCommand::Unknown(word) => {
                Err(Error::invalid(format!("`{word}` is not a command")).hint("\\help lists them"))
            }
        };
        text.map(Some)
    }
}

/// Recognises `help`, `exit` and the like without a backslash, and returns the command that they mean. None of these words
/// is a statement.
fn bare_command(line: &str) -> Option<&'static str> {
    match line.trim().trim_end_matches(';').trim_end().to_ascii_lowercase().as_str() {
        "help" | "?" => Some("\\help"),
        "exit" | "quit" => Some("\\q"),
        _ => None,
    }
}

fn parse_meta(line: &str) -> MetaCommand<'_> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (word, rest.trim().trim_end_matches(';')) {
        ("\\dt" | "\\d", "") => MetaCommand::Tables,
        ("\\d" | "\\dt", name) => MetaCommand::Describe(name),
        ("\\timing", _) => MetaCommand::Timing,
        ("\\x", _) => MetaCommand::Expanded,
        ("\\help" | "\\h" | "\\?", _) => MetaCommand::Help,
        ("\\q" | "\\quit" | "\\exit", _) => MetaCommand::Quit,
        (word, _) => MetaCommand::Unknown(word),
    }
}

fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?;
    Some(state.join("polynya/sql-history"))
}

/// Splits a text into statements, without their `;`. Semicolons in quotes, dollar quotes and comments do not end a
/// statement.
pub fn split(text: &str) -> Vec<String> {
    let (mut statements, rest) = split_ended(text);
    statements.extend(Some(rest.trim().to_owned()).filter(|rest| !is_blank(rest)));
    statements
}

/// Returns true if the last statement is ended by `;`.
fn is_complete(text: &str) -> bool {
    is_blank(&split_ended(text).1)
}

/// Returns true if a text consists of white space and comments.
fn is_blank(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with("--"))
}

/// Splits a text into the statements that are ended by `;`, and the rest.
fn split_ended(text: &str) -> (Vec<String>, String) {
    let mut statements = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        at += match rest.as_bytes()[0] {
            b';' => {
                let statement = text[start..at].trim();
                if !is_blank(statement) {
                    statements.push(statement.to_owned());
                }
                start = at + 1;
                1
            }
            // A doubled quote is read as the end of one quotation and the start of the next, which has the same effect.
            quote @ (b'\'' | b'"') => skip(rest, 1, &char::from(quote).to_string()),
            b'-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with("/*") => skip(rest, 2, "*/"),
            b'$' => match dollar_tag(rest) {
                Some(tag) => skip(rest, tag.len(), tag),
                None => 1,
            },
            _ => rest.chars().next().map_or(1, char::len_utf8),
        };
    }
    (statements, text[start..].to_owned())
}

/// Returns the number of bytes up to and including the next `end` after `from`, or the length of the text if there is none.
fn skip(text: &str, from: usize, end: &str) -> usize {
    text[from..].find(end).map_or(text.len(), |found| from + found + end.len())
}

/// Returns the dollar quote, `$$` or `$name$`, with which a text begins.
fn dollar_tag(text: &str) -> Option<&str> {
    let name = &text[1..][..text[1..].find('$')?];
    let is_tag = name.chars().all(|c| c.is_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    is_tag.then(|| &text[..name.len() + 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_semicolons_outside_quotes_and_comments() {
        assert_eq!(split("SELECT 1; SELECT 2"), ["SELECT 1", "SELECT 2"]);
        assert_eq!(
            split("SELECT ';', 'it''s;' ; -- a;b\nSELECT \"x;y\""),
            ["SELECT ';', 'it''s;'", "-- a;b\nSELECT \"x;y\""]
        );
        assert_eq!(split("/* ; */ SELECT $$ ; $$, $a$;$a$, $1;;"), ["/* ; */ SELECT $$ ; $$, $a$;$a$, $1"]);
        assert!(split("  -- nothing\n;\n").is_empty());
        assert_eq!(split("SELECT 'é;ü'"), ["SELECT 'é;ü'"]);
    }

    #[test]
    fn a_statement_is_complete_once_nothing_is_open() {
        assert!(is_complete("SELECT 1;\n"));
        assert!(is_complete("SELECT 1; -- done\n"));
        assert!(!is_complete("SELECT 1\n"));
        assert!(!is_complete("SELECT ';\n"));
        assert!(!is_complete("SELECT 1; SELECT 2\n"));
    }

    #[test]
    fn a_pipe_holds_statements_and_backslash_commands() {
        let statement = |text: &str| ShellStep::Statement(text.to_owned());
        let command = |text: &str| ShellStep::Command(text.to_owned());
        assert_eq!(steps("SELECT 1;\n\\d\n"), [statement("SELECT 1"), command("\\d")]);
        assert_eq!(steps("\\help\nSELECT 1"), [command("\\help"), statement("SELECT 1")]);
        assert_eq!(steps("SELECT '\n\\d\n';"), [statement("SELECT '\n\\d\n'")], "inside a text it is text");
        assert_eq!(
            steps("-- why\n  \\d t;\nSELECT 1; SELECT 2"),
            [command("\\d t;"), statement("SELECT 1"), statement("SELECT 2")]
        );
        assert_eq!(steps(""), []);
    }

    #[test]
    fn backslash_commands_are_those_of_psql() {
        assert_eq!(parse_meta("\\dt"), MetaCommand::Tables);
        assert_eq!(parse_meta("\\d events;"), MetaCommand::Describe("events"));
        assert_eq!(parse_meta("\\quit"), MetaCommand::Quit);
        assert_eq!(parse_meta("\\foo x"), MetaCommand::Unknown("\\foo"));
        // Regression: the shell waited for a `;` after these words.
        assert_eq!(bare_command(" Exit;\n").map(parse_meta), Some(MetaCommand::Quit));
        assert_eq!(bare_command("help").map(parse_meta), Some(MetaCommand::Help));
        assert_eq!(bare_command("exit stage"), None);
    }
}
