//! Tests of the help texts.

use crate::polynya::{Workdir, text};

const COMMANDS: [&str; 14] = [
    "serve", "demo", "ingest", "sql", "tables", "key", "doctor", "bench", "storm", "config", "search", "ask",
    "backup", "restore",
];

#[test]
fn every_command_has_a_help_with_examples() {
    let workdir = Workdir::new();
    let overview = workdir.ok(&["--help"]);
    for command in COMMANDS {
        assert!(overview.contains(&format!("  {command} ")), "{command} is not in the overview");
        let help = workdir.ok(&[command, "--help"]);
        assert!(help.contains("Examples:") && help.contains(&format!("polynya {command}")), "{help}");
    }
    for action in ["create", "list", "remove"] {
        assert!(workdir.ok(&["key", action, "--help"]).contains("Example:"));
    }
}

/// `--help` showed only the command's line of the overview, and not the long help.
#[test]
fn the_long_help_of_a_command_is_shown() {
    let workdir = Workdir::new();
    for (command, words) in [
        ("search", "+must, -not, prefix*"),
        ("sql", "PostgreSQL"),
        ("bench", "a server of its own"),
        ("backup", "AWS_ACCESS_KEY_ID"),
        ("restore", "s3://BUCKET/PREFIX"),
    ] {
        let help = workdir.ok(&[command, "--help"]).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(words), "{help}");
        assert!(!workdir.ok(&[command, "-h"]).contains("Starts a server of its own"));
    }
}

#[test]
fn nothing_typed_shows_where_to_start() {
    let output = Workdir::new().run(&[]);
    assert!(text(&output.stderr).contains("polynya demo"));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_example_configuration_is_accepted_as_it_stands() {
    let workdir = Workdir::new();
    let example = workdir.ok(&["config", "--example"]);
    workdir.write("polynya.toml", &example);
    let effective = workdir.ok(&["config"]);
    assert!(effective.contains("listen = \"127.0.0.1:8484\""), "{effective}");
    assert_eq!(workdir.ok(&["serve", "--print-config"]), effective);
    let flagged =
        workdir.ok(&["serve", "--print-config", "--listen", "127.0.0.1:1", "--set", "sql.threads=3"]);
    assert!(flagged.contains("# --listen") && flagged.contains("# --set"), "{flagged}");
    let lines = workdir.ok(&["config", "--json"]);
    assert!(lines.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
}
