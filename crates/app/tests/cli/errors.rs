//! Tests that each error is one sentence with its remedy.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use crate::polynya::Workdir;

#[test]
fn a_taken_port_is_named_with_its_holder() {
    let workdir = Workdir::new();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = held.local_addr().unwrap().to_string();
    let said = workdir.fails(&["serve", "--listen", &listen]);
    assert!(said.contains("is taken") && said.contains(&std::process::id().to_string()), "{said}");
    assert!(!workdir.path("polynya-data").exists(), "nothing is made before it is known that it can serve");
}

#[test]
fn a_wrong_setting_names_the_nearest_one() {
    let workdir = Workdir::new();
    workdir.write("polynya.toml", "[server]\nlissten = \"127.0.0.1:1\"\n");
    let said = workdir.fails(&["config"]);
    assert!(said.contains("polynya.toml") && said.contains("did you mean `server.listen`"), "{said}");
    std::fs::remove_file(workdir.path("polynya.toml")).unwrap();
    let said = workdir.fails(&["config", "--set", "sql.treads=1"]);
    assert!(said.contains("did you mean `sql.threads`"), "{said}");
    let said = workdir.fails(&["config", "--config", "nowhere.toml"]);
    assert!(said.contains("polynya config --example"), "{said}");
}

/// Hints on the command line named HTTP routes, and a file's name in place of a statement was only a syntax error.
#[test]
fn a_hint_names_what_can_be_typed() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    workdir.write("events.ndjson", "{\"a\":1}\n");
    workdir.ok(&["ingest", "events.ndjson"]);
    let said = workdir.fails(&["tables", "zebra"]);
    assert!(said.contains("`polynya tables` lists the tables") && !said.contains("/v1"), "{said}");
    workdir.write("nix.sql", "SELECT 1;");
    let said = workdir.fails(&["sql", "nix.sql"]);
    assert!(said.contains("`polynya sql -f nix.sql`"), "{said}");
    assert!(!workdir.fails(&["sql", "none.sql"]).contains("-f none.sql"));
    let said = workdir.fails(&["publish", "polynya-data"]);
    assert!(said.contains("belongs to a database"), "{said}");
}

#[test]
fn a_directory_without_data_says_how_to_make_some() {
    let workdir = Workdir::new();
    for args in [&["sql", "SELECT 1"][..], &["tables"], &["key", "list"]] {
        let said = workdir.fails(args);
        assert!(
            said.contains("there is no data in ./polynya-data") && said.contains("polynya demo"),
            "{said}"
        );
    }
    assert!(!workdir.path("polynya-data").exists(), "asking makes nothing");
    let output = workdir.run(&["doctor", "nowhere"]);
    assert_eq!(output.status.code(), Some(2), "it could not be checked");
}

#[test]
fn a_directory_that_cannot_be_written_is_said_so() {
    let workdir = Workdir::new();
    workdir.write("file", "x");
    let said = workdir.fails(&["ingest", "file", "--data", "file/data", "--format", "csv", "--table", "t"]);
    assert!(said.contains("--data") || said.contains("directory"), "{said}");
    if rustix::process::getuid().is_root() {
        // Root may write everywhere, so the case below needs another user.
        return;
    }
    let locked = workdir.path("locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o500)).unwrap();
    let said = workdir.fails(&["serve", "--listen", "127.0.0.1:0", "--data", "locked/data"]);
    assert!(said.contains("may not write") && said.contains("--data"), "{said}");
}

#[test]
fn a_server_that_does_not_answer_is_said_so() {
    let workdir = Workdir::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let said = workdir.fails(&["tables", "--url", &format!("http://{free}")]);
    assert!(said.contains("no server answers at") && said.contains("polynya serve"), "{said}");
    assert!(workdir.fails(&["tables", "--url", "https://example.org"]).contains("http://"));
}

#[test]
fn a_value_that_no_machine_can_serve_is_refused_before_it_is_tried() {
    let workdir = Workdir::new();
    for (setting, range) in [
        ("sql.threads=999999999", "from 0 to 1024"),
        ("sql.deadline=0", "from 1 ms"),
        ("server.connections_max=0", "from 1"),
    ] {
        let said = workdir.fails(&["config", "--set", setting]);
        assert!(said.contains(setting.split('=').next().unwrap()) && said.contains(range), "{said}");
    }
    let said = workdir.fails(&["serve", "--listen", "127.0.0.1:99999"]);
    assert!(said.contains("--listen") && said.contains("`99999` is not a port"), "{said}");
    for count in ["--connections", "--batch", "--rounds"] {
        let output = workdir.run(&["bench", "ingest", count, "0"]);
        assert_eq!(output.status.code(), Some(2));
        let said = crate::polynya::text(&output.stderr);
        assert!(said.contains("whole number from 1 on"), "{said}");
    }
}

/// A directory that had lost its log was reported as one without data, and `polynya doctor` refused to check it.
#[test]
fn a_directory_that_lost_its_log_says_so_and_what_to_do() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    workdir.write("t.csv", "a,b\n1,x\n");
    workdir.ok(&["ingest", "t.csv"]);
    std::fs::remove_dir_all(workdir.path("polynya-data/log")).unwrap();
    let output = workdir.run(&["doctor"]);
    let said = crate::polynya::text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("DAMAGE: the folder `log` is missing"), "{said}");
    let said = workdir.fails(&["sql", "SELECT 1"]);
    assert!(said.contains("lacks its folder `log`") && said.contains("polynya doctor"), "{said}");
    assert!(said.contains("polynya restore"), "{said}");
    assert!(!workdir.path("polynya-data/log").exists(), "asking makes nothing");
}

#[test]
fn a_directory_without_a_readable_manifest_says_what_to_do() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    workdir.write("t.csv", "a,b\n1,x\n");
    workdir.ok(&["ingest", "t.csv"]);
    for entry in std::fs::read_dir(workdir.path("polynya-data")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("manifest") {
            let mut bytes = std::fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(path, bytes).unwrap();
        }
    }
    for args in [&["serve", "--listen", "127.0.0.1:0"][..], &["sql", "SELECT 1"]] {
        let said = workdir.fails(args);
        assert!(said.contains("polynya doctor ./polynya-data") && said.contains("polynya restore"), "{said}");
    }
}
