//! Tests of the help texts.

use crate::polynya::{Place, text};

const COMMANDS: [&str; 14] = [
    "serve", "demo", "ingest", "sql", "tables", "key", "doctor", "bench", "storm", "config", "search", "ask",
    "backup", "restore",
];

#[test]
fn every_command_has_a_help_with_examples() {
    let place = Place::new();
    let overview = place.ok(&["--help"]);
    for command in COMMANDS {
        assert!(overview.contains(&format!("  {command} ")), "{command} is not in the overview");
        let help = place.ok(&[command, "--help"]);
        assert!(help.contains("Examples:") && help.contains(&format!("polynya {command}")), "{help}");
    }
    for action in ["create", "list", "remove"] {
        assert!(place.ok(&["key", action, "--help"]).contains("Example:"));
    }
}

/// `--help` showed only the command's line of the overview, and not the long help.
#[test]
fn the_long_help_of_a_command_is_shown() {
    let place = Place::new();
    for (command, words) in [
        ("search", "+must, -not, prefix*"),
        ("sql", "PostgreSQL"),
        ("bench", "a server of its own"),
        ("backup", "AWS_ACCESS_KEY_ID"),
        ("restore", "s3://BUCKET/PREFIX"),
    ] {
        let help = place.ok(&[command, "--help"]).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(words), "{help}");
        assert!(!place.ok(&[command, "-h"]).contains("Starts a server of its own"));
    }
}

#[test]
fn nothing_typed_shows_where_to_start() {
    let output = Place::new().run(&[]);
    assert!(text(&output.stderr).contains("polynya demo"));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_example_configuration_is_accepted_as_it_stands() {
    let place = Place::new();
    let example = place.ok(&["config", "--example"]);
    place.write("polynya.toml", &example);
    let effective = place.ok(&["config"]);
    assert!(effective.contains("listen = \"127.0.0.1:8484\""), "{effective}");
    assert_eq!(place.ok(&["serve", "--print-config"]), effective);
    let flagged = place.ok(&["serve", "--print-config", "--listen", "127.0.0.1:1", "--set", "sql.threads=3"]);
    assert!(flagged.contains("# --listen") && flagged.contains("# --set"), "{flagged}");
    let lines = place.ok(&["config", "--json"]);
    assert!(lines.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
}
