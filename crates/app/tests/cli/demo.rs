//! Tests that the commands printed by the demo work as printed.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::polynya::{Workdir, text};

#[test]
fn the_four_things_to_try_work_as_printed() {
    let _limit = testkit::limit(180);
    let workdir = Workdir::new();
    let mut server = workdir.serve(&["demo"]);
    assert!(server.ready_after < Duration::from_secs(20), "{:?}", server.ready_after);
    let lines = server.lines_until("Your own data");
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_polynya"));
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let run = |line: &str| {
        let output = Command::new("sh")
            .args(["-c", line])
            .current_dir(workdir.path(""))
            .env("PATH", &path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let commands: Vec<&str> = lines
        .iter()
        .map(|line| line.trim())
        .filter(|line| line.starts_with("polynya ") || line.starts_with("curl "))
        .collect();
    assert_eq!(commands.len(), 3, "{lines:?}");

    // The first reading has no rates.
    let started = Instant::now();
    let mut busy = String::new();
    while busy.is_empty() && started.elapsed() < Duration::from_secs(30) {
        busy = run(commands[0]);
    }
    assert!(busy.contains("\"busy\":"), "{busy}");

    if Command::new("curl").arg("--version").output().is_err() {
        panic!("curl is missing, which the printed commands use: apt-get install curl");
    }
    assert!(run(commands[1]).contains("\"count\":1"));
    assert!(run(commands[2]).contains("hello"));
    let page = lines.iter().find(|line| line.trim().ends_with("/_/")).unwrap();
    assert!(page.contains(&server.url));
    assert_eq!(server.ask("GET", "/_/", &[], "").0, 200);

    // Requests are recorded about a second later.
    let started = Instant::now();
    while workdir
        .run(&["sql", "SELECT 1 FROM polynya.requests WHERE route LIKE '%rows' LIMIT 1"])
        .stdout
        .is_empty()
    {
        assert!(started.elapsed() < Duration::from_secs(30), "requests are not recorded");
    }
    assert!(workdir.number("SELECT count(*) FROM polynya.processes") > 0);
    assert!(server.stop().success());
}
