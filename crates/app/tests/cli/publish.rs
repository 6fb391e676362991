//! Tests of `polynya publish` and of the site, from the command to the page.

use std::time::{Duration, Instant};

use crate::polynya::{Server, Workdir};

fn wait(what: &str, mut is: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !is() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
    started.elapsed()
}

fn shows(server: &Server, path: &str, text: &str) -> bool {
    let (status, body) = server.ask("GET", path, &[], "");
    status == 200 && body.contains(text)
}

fn vault() -> Workdir {
    let workdir = Workdir::new();
    std::fs::create_dir(workdir.path("notes")).unwrap();
    workdir.write("notes/open.md", "---\npublish: true\n---\n# Open water\n");
    workdir.write("notes/mine.md", "# My own\nnobody reads this\n");
    workdir
}

#[test]
fn a_published_folder_is_a_site_that_follows_its_files_and_survives_a_kill() {
    let _limit = testkit::limit(240);
    let workdir = vault();
    let mut server = workdir.serve(&["publish", "notes", "--title", "Sea"]);
    let said = server.lines_until("Stop with").join("\n");
    assert!(said.contains("1 of 2 notes of `notes` is public at http://127.0.0.1:"), "{said}");
    wait("the page", || shows(&server, "/open", "Open water"));
    assert!(shows(&server, "/", "Sea"));
    assert_eq!(server.ask("GET", "/mine", &[], "").0, 404);
    // Another program on the machine may delay a change by a second, but not each time.
    let took: Vec<Duration> = (0..5)
        .map(|round| {
            workdir.write("notes/open.md", &format!("---\npublish: true\n---\n# Changed {round}\n"));
            wait("the change", || shows(&server, "/open", &format!("Changed {round}")))
        })
        .collect();
    assert!(took.iter().min() < Some(&Duration::from_secs(1)), "{took:?}");
    assert_eq!(workdir.number("SELECT count(*) FROM vault WHERE published"), 1);
    let ready = server.ask("GET", "/ready", &[], "").1;
    assert!(ready.contains("\"folders\""), "{ready}");
    server.kill();

    workdir.write("notes/mine.md", "---\npublish: true\n---\nEverybody may read this now\n");
    let server = workdir.serve(&["publish", "notes"]);
    wait("what changed meanwhile", || shows(&server, "/mine", "Everybody"));
    assert!(shows(&server, "/open", "Changed"));
    // The row is counted shortly after the page has changed.
    let metrics = || server.ask("GET", "/metrics", &[], "").1;
    wait("the count", || metrics().contains("polynya_folder_rows_written_total 1\n"));
    assert!(server.stop().success());
}

#[test]
fn a_pattern_in_the_settings_publishes_and_taking_it_away_takes_back() {
    let _limit = testkit::limit(240);
    let workdir = vault();
    workdir.write("polynya.toml", "[site]\nvault = \"notes\"\npublish = [\"**\"]\n");
    let server = workdir.serve(&["serve"]);
    wait("the page", || shows(&server, "/mine", "nobody reads this"));
    assert!(server.stop().success());
    // Without the folder and the pattern, only those notes of the table are public that say so themselves.
    workdir.write("polynya.toml", "[site]\ntitle = \"Still here\"\n");
    let server = workdir.serve(&["serve"]);
    wait("the page", || shows(&server, "/open", "Open water"));
    assert_eq!(server.ask("GET", "/mine", &[], "").0, 404);
    assert_eq!(workdir.number("SELECT count(*) FROM vault WHERE published"), 1);
    assert!(server.stop().success());
}

/// With `--print-config`, `demo` and `publish` failed because of a running server, or started one.
#[test]
fn settings_are_printed_by_whatever_serves_and_nothing_is_started() {
    let _limit = testkit::limit(60);
    let workdir = vault();
    for command in [vec!["demo"], vec!["publish", "notes"], vec!["serve"]] {
        let printed = workdir.ok(&[command.as_slice(), &["--record", "--print-config"]].concat());
        assert!(printed.contains("server.listen") || printed.contains("[server]"), "{printed}");
    }
    assert!(!workdir.path("polynya-data").exists());
}

#[test]
fn the_demo_publishes_what_it_is_given_and_says_so() {
    let _limit = testkit::limit(240);
    let workdir = vault();
    workdir.write("README.md", "# Read me\n[open](notes/open.md)\n");
    let mut server = workdir.serve(&["demo", "=notes", "README.md"]);
    let said = server.lines_until("Your own data").join("\n");
    assert!(said.contains("Published: all Markdown in notes, README.md"), "{said}");
    wait("the pages", || shows(&server, "/mine", "nobody reads this"));
    assert!(shows(&server, "/", "Read me"));
    assert!(server.stop().success());
}

#[test]
fn an_unpublishable_folder_is_refused_in_one_sentence() {
    let _limit = testkit::limit(60);
    let workdir = vault();
    workdir.write("events.csv.bak", "a,b\n");
    assert!(workdir.fails(&["publish", "none"]).contains("no folder or file `none`"));
    workdir.write("p.png", "a picture that nothing shows");
    for file in ["events.csv.bak", "p.png"] {
        assert!(workdir.fails(&["demo", file]).contains("is not a note"));
    }
    let reserved = workdir.fails(&["publish", "--all", "v1=notes", "--listen", "127.0.0.1:0"]);
    assert!(reserved.contains("an address of the server itself"), "{reserved}");
    let twice = workdir.fails(&["publish", "x=notes", "x=.", "--listen", "127.0.0.1:0"]);
    assert!(twice.contains("same place"), "{twice}");
    let url =
        workdir.fails(&["publish", "notes", "--set", "site.base_url=example.org", "--listen", "127.0.0.1:0"]);
    assert!(url.contains("is not the address of a site"), "{url}");
}
