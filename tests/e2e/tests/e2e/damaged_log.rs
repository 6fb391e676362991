//! The newest log file is damaged, emptied or deleted while no server runs. The server must report it and refuse writes.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bench::{HttpClient, child};
use polynya_e2e::program;
use serde_json::json;
use testkit::temp_dir;

fn post(client: &mut HttpClient, first: u64) {
    let rows: Vec<_> = (first..first + 100).map(|id| json!({ "id": id })).collect();
    client.json("POST", "/v1/tables/t/rows", Some(&json!(rows))).unwrap();
}

fn newest_log(data: &Path) -> PathBuf {
    let names = fs::read_dir(data.join("log")).unwrap().map(|entry| entry.unwrap().path());
    names.filter(|path| path.extension().is_some_and(|extension| extension == "log")).max().unwrap()
}

fn flip_a_bit_of_the_header(path: &Path) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 2_000).unwrap();
    file.write_all_at(&[byte[0] ^ 4], 2_000).unwrap();
}

/// 100 of 200 acknowledged rows were gone, yet `/ready` returned 200 and `polynya doctor` printed "Sound".
#[test]
fn a_newest_log_file_that_is_damaged_empty_or_gone_is_said_and_writes_are_refused() {
    let _limit = testkit::limit(280);
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 3] = [
        ("a flipped bit", flip_a_bit_of_the_header),
        ("an empty file", |path| drop(fs::File::create(path).unwrap())),
        ("no file", |path| fs::remove_file(path).unwrap()),
    ];
    for (what, damage) in damages {
        let root = temp_dir("damaged-log");
        let mut options = child::Options::new(program::polynya());
        options.root = root.path().to_owned();
        let mut home = child::Home::new(options).unwrap();
        let mut server = home.start().unwrap();
        post(&mut HttpClient::new(server.target()), 0);
        assert!(server.stop(Duration::from_secs(30)).unwrap().success());
        let mut server = home.start().unwrap();
        post(&mut HttpClient::new(server.target()), 100);
        server.kill().unwrap();
        damage(&newest_log(&home.data()));

        let doctor = program::command(root.path(), &["doctor", "--data", home.data().to_str().unwrap()]);
        let examined = { doctor }.output().unwrap();
        let said = String::from_utf8_lossy(&examined.stdout).into_owned();
        assert!(!examined.status.success() && said.contains("durable"), "{what}: {said}");

        let log = home.data().join("log");
        let files = || fs::read_dir(&log).unwrap().count();
        let before = files();
        let server = home.spawn().unwrap();
        let mut client = HttpClient::new(server.target()).timeout(Duration::from_secs(5));
        let ready = loop {
            match client.request("GET", "/ready", "", b"") {
                Ok(answer) => break answer,
                Err(_) => std::thread::park_timeout(Duration::from_millis(20)),
            }
        };
        assert_eq!(ready.status, 503, "{what}");
        let written = client.request("POST", "/v1/tables/t/rows", "application/json", b"{\"id\":1}").unwrap();
        assert_eq!(written.status, 503, "{what}: {}", String::from_utf8_lossy(&written.body));
        let rows = client.request("GET", "/v1/tables/t/rows?limit=1000", "", b"").unwrap();
        assert!(rows.is_success(), "{what}: what is left is read");
        assert_eq!(files(), before, "{what}: files of the log were removed");
        // A backup would have made the loss permanent.
        let (data, backup) = (home.data(), root.path().join("backup"));
        let arguments = ["backup", backup.to_str().unwrap(), "--data", data.to_str().unwrap()];
        let taken = program::command(root.path(), &arguments).output().unwrap();
        let said = String::from_utf8_lossy(&taken.stderr).into_owned();
        assert!(!taken.status.success() && said.contains("a backup would lack"), "{what}: {said}");
        assert!(!backup.join("BACKUP").exists(), "{what}");
    }
}
