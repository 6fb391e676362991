//! Argument order of the commands that take free text: `search` and `ask`.
//!
//! A query may contain `-word` (a word to exclude). Clap would therefore read everything after the first word as the query,
//! options included, and search for them. This module separates options from words before clap sees them. An argument that
//! begins with `--` is an option at any place, known or not. A short option such as `-t` is one alone or with a number.
//! Every other argument is a word, and so is everything after `--`.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

const COMMANDS: [&str; 2] = ["search", "ask"];

/// Returns the arguments in the order in which clap shall read them: options first, then `--`, then words. The arguments
/// of a command that is not in `COMMANDS` stay as they are.
pub fn options_first(mut program: Command, args: Vec<OsString>) -> Vec<OsString> {
    program.build();
    let Some(at) = command_index(&program, &args) else { return args };
    let name = args[at].to_string_lossy().into_owned();
    let Some(command) = program.find_subcommand(&name).filter(|_| COMMANDS.contains(&name.as_str())) else {
        return args;
    };
    let mut sorted = args[..=at].to_vec();
    let mut words = Vec::new();
    let mut rest = args[at + 1..].iter().cloned();
    while let Some(arg) = rest.next() {
        let text = arg.to_string_lossy().into_owned();
        if text == "--" {
            words.extend(rest.by_ref());
            break;
        }
        match option_kind(command, &text) {
            None => words.push(arg),
            Some(has_more) => {
                sorted.push(arg);
                sorted.extend(has_more.then(|| rest.next()).flatten());
            }
        }
    }
    if !words.is_empty() {
        sorted.push("--".into());
        sorted.extend(words);
    }
    sorted
}

/// Returns the position of the command's name: the first argument that is neither an option nor an option's value.
fn command_index(program: &Command, args: &[OsString]) -> Option<usize> {
    let mut at = 1;
    while at < args.len() {
        let text = args[at].to_string_lossy();
        match option_kind(program, &text) {
            None => return Some(at),
            Some(has_more) => at += 1 + usize::from(has_more),
        }
    }
    None
}

/// Returns `None` for a word, and for an option `Some(true)` if the next argument is its value, else `Some(false)`.
fn option_kind(command: &Command, text: &str) -> Option<bool> {
    let takes_value = |arg: &Arg| matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    if let Some(long) = text.strip_prefix("--") {
        let known = command.get_arguments().find(|arg| arg.get_long() == Some(long));
        return Some(known.is_some_and(takes_value));
    }
    let mut letters = text.strip_prefix('-')?.chars();
    let short = letters.next()?;
    let known = command.get_arguments().find(|arg| arg.get_short() == Some(short))?;
    let rest = letters.as_str();
    match rest.is_empty() {
        true => Some(takes_value(known)),
        // `-l5` is an option with its value; `-linux` is a word to exclude.
        false => (takes_value(known) && rest.bytes().all(|b| b.is_ascii_digit())).then_some(false),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::Cli;

    fn of(line: &str) -> String {
        let args = line.split(' ').map(OsString::from).collect();
        let sorted = options_first(Cli::command(), args);
        sorted.iter().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    /// `polynya search crash recovery --limit 2` searched for `--limit` and `2` too, and so did a mistyped `--tabel`.
    #[test]
    fn an_option_is_one_wherever_it_stands_and_a_word_with_a_dash_is_a_word() {
        for (typed, read) in [
            ("polynya search crash recovery --limit 2", "polynya search --limit 2 -- crash recovery"),
            ("polynya search crash -l 2 recovery", "polynya search -l 2 -- crash recovery"),
            ("polynya search -l5 crash -linux", "polynya search -l5 -- crash -linux"),
            ("polynya search river -stones +ice", "polynya search -- river -stones +ice"),
            ("polynya search --limit=3 -- --limit 2", "polynya search --limit=3 -- --limit 2"),
            ("polynya --data d search a --json", "polynya --data d search --json -- a"),
            ("polynya ask what changed --json --data d", "polynya ask --json --data d -- what changed"),
            ("polynya ask -1", "polynya ask -- -1"),
            ("polynya search", "polynya search"),
            ("polynya search --help", "polynya search --help"),
            ("polynya sql search --json x", "polynya sql search --json x"),
        ] {
            assert_eq!(of(typed), read);
        }
        for (typed, near) in [("polynya search --tabel x y", "--table"), ("polynya ask --jsn x", "--json")] {
            let error = Cli::try_parse_from(of(typed).split(' ')).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::UnknownArgument, "{error}");
            assert!(error.to_string().contains(near), "{error}");
        }
        let parsed = Cli::try_parse_from(of("polynya search crash -windows --limit 2").split(' ')).unwrap();
        let crate::cli::Command::Search(options) = parsed.command else { panic!() };
        assert_eq!(options.words(), ["crash", "-windows"]);
    }
}
