//! Commands whose arguments are words of a person: `search` and `ask`.
//!
//! A query may hold `-word`, so clap would take everything after the first word for the query, options too, and search for
//! them. Here options are told from words before clap sees either: what begins with `--` is an option wherever it stands,
//! known or not; `-t` and its like are, alone or with a number; everything else, and what follows `--`, is words.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

const COMMANDS: [&str; 2] = ["search", "ask"];

/// The arguments as clap is to read them: options first, then `--`, then words, if the command is one of these.
pub fn sorted(mut program: Command, args: Vec<OsString>) -> Vec<OsString> {
    program.build();
    let Some(at) = command(&program, &args) else { return args };
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
        match option(command, &text) {
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

/// Where the command's name is: the first argument that is no option and no option's value.
fn command(program: &Command, args: &[OsString]) -> Option<usize> {
    let mut at = 1;
    while at < args.len() {
        let text = args[at].to_string_lossy();
        match option(program, &text) {
            None => return Some(at),
            Some(has_more) => at += 1 + usize::from(has_more),
        }
    }
    None
}

/// Whether this is an option, and if so whether the next argument is its value.
fn option(command: &Command, text: &str) -> Option<bool> {
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
        // `-l5`. `-linux` is a word that is not wanted.
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
        let sorted = sorted(Cli::command(), args);
        sorted.iter().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    /// `polynya search crash recovery --limit 2` ranked by `--limit` and `2`, and `--tabel` was a word like others.
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
