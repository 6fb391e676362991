//! Tests of backups, restores and examinations, beside a running server and without one.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::polynya::{Workdir, is_sound};

/// Runs a command with `--json` and parses its output.
fn json(workdir: &Workdir, args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&workdir.ok(args)).unwrap()
}

#[test]
fn a_backup_of_a_busy_server_is_a_whole_directory_at_one_commit() {
    let _limit = testkit::limit(180);
    let workdir = Workdir::new();
    let server = workdir.serve(&["serve"]);
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let taken = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let first = written.load(Ordering::Relaxed);
                let rows: Vec<String> = (first..first + 20).map(|n| format!("{{\"n\": {n}}}")).collect();
                let body = format!("[{}]", rows.join(","));
                let (status, said) =
                    server.ask("POST", "/v1/tables/t/rows", &["Content-Type: application/json"], &body);
                assert_eq!(status, 200, "{said}");
                written.fetch_add(20, Ordering::Relaxed);
            }
        });
        while written.load(Ordering::Relaxed) < 400 {
            std::thread::yield_now();
        }
        let taken = json(&workdir, &["backup", "monday", "--json"]);
        stop.store(true, Ordering::Relaxed);
        taken
    });
    assert!(taken["rows"].as_u64().unwrap() >= 400, "{taken}");
    // A second backup into the same folder would mix the files of both.
    assert!(workdir.fails(&["backup", "monday"]).contains("not empty"));
    assert!(workdir.fails(&["backup", "polynya-data/inside"]).contains("in the data directory itself"));
    let restored = json(&workdir, &["restore", "monday", "again", "--json"]);
    assert_eq!((&restored["lsn"], &restored["rows"]), (&taken["lsn"], &taken["rows"]));
    assert!(is_sound(&workdir, &workdir.path("again")));
    assert!(workdir.fails(&["restore", "monday", "again"]).contains("not empty"));
    assert!(workdir.fails(&["restore", "again", "other"]).contains("is not a backup"));

    let count = |data: &str, statement: &str| {
        let line = workdir.ok(&["sql", "--data", data, "--json", statement]);
        let row: serde_json::Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
        row["c"].as_u64().or_else(|| row["c"].as_str()?.parse().ok()).unwrap()
    };
    // The backup contains whole requests, from the first one on without a gap.
    let rows = count("again", "SELECT count(*) AS c FROM t");
    assert_eq!(rows % 20, 0);
    assert_eq!(count("again", "SELECT count(DISTINCT n) AS c FROM t WHERE n >= 0"), rows);
    assert_eq!(count("again", "SELECT max(n) + 1 AS c FROM t"), rows);
    assert!(rows <= written.load(Ordering::Relaxed));
    assert_eq!(count("polynya-data", "SELECT count(*) AS c FROM t"), written.load(Ordering::Relaxed));
    assert!(server.stop().success());

    // Without a server the command opens the directory itself.
    let said = workdir.ok(&["backup", "tuesday", "--data", "again"]);
    assert!(said.starts_with("Backed up lsn ") && said.contains("polynya restore tuesday"), "{said}");
    let said = workdir.ok(&["restore", "tuesday", "third"]);
    assert!(said.starts_with("Restored lsn ") && said.contains("--data third"), "{said}");
    assert!(is_sound(&workdir, &workdir.path("third")));
    assert_eq!(count("third", "SELECT count(*) AS c FROM t"), rows);
}

#[test]
fn a_backup_that_is_not_what_was_written_is_not_restored() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    workdir.write("t.csv", "a,b\n1,x\n2,y\n");
    workdir.ok(&["ingest", "t.csv"]);
    workdir.ok(&["backup", "kept"]);
    let segment = std::fs::read_dir(workdir.path("kept/tables"))
        .unwrap()
        .flat_map(|dir| std::fs::read_dir(dir.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .find(|path| path.extension().is_some_and(|ending| ending == "arrow"))
        .unwrap();
    let whole = std::fs::read(&segment).unwrap();
    let mut bytes = whole.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&segment, &bytes).unwrap();
    let said = workdir.fails(&["restore", "kept", "again"]);
    assert!(said.contains("is not what was written") && said.contains(".arrow"), "{said}");
    assert!(!workdir.path("again").exists(), "half a directory is left");
    std::fs::write(&segment, &whole).unwrap();
    std::fs::remove_file(workdir.path("kept/BACKUP")).unwrap();
    assert!(workdir.fails(&["restore", "kept", "again"]).contains("is not a backup"));
}

/// Stores one row and waits until it is acknowledged.
fn put(server: &crate::polynya::Server, n: u64) {
    let headers = ["Content-Type: application/json"];
    let (status, said) = server.ask("POST", "/v1/tables/t/rows", &headers, &format!("[{{\"n\": {n}}}]"));
    assert_eq!(status, 200, "{said}");
}

#[test]
fn a_backup_is_carried_forward_by_the_archive_of_the_log() {
    let _limit = testkit::limit(180);
    let workdir = Workdir::new();
    let archived = ["--set", "log.archive=archive"];
    let server = workdir.serve(&[&["serve"], &archived[..]].concat());
    (0..5).for_each(|n| put(&server, n));
    let taken = json(&workdir, &["backup", "monday", "--json"]);
    let lsn = taken["lsn"].as_u64().unwrap();
    (5..20).for_each(|n| put(&server, n));
    let (_, metrics) = server.ask("GET", "/metrics", &[], "");
    assert!(metrics.contains("polynya_archive_lsn") && metrics.contains("polynya_archive_gaps_total 0"));
    let (_, ready) = server.ask("GET", "/ready", &[], "");
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    assert_eq!(ready["parts"]["archive"]["detail"]["error"], serde_json::Value::Null, "{ready}");
    assert!(ready["parts"]["snapshots"]["detail"]["held_bytes"].is_u64(), "{ready}");
    // A server that stops archives the rest of its log.
    assert!(server.stop().success());
    let rows = |data: &str| {
        assert!(is_sound(&workdir, &workdir.path(data)));
        workdir.ok(&["sql", "--data", data, "--json", "SELECT n FROM t"]).lines().count()
    };
    let all = json(&workdir, &["restore", "monday", "all", "--archive", "archive", "--json"]);
    assert!(all["replayed"].as_u64().unwrap() >= 15, "{all}");
    assert_eq!(rows("all"), 20);
    let to = (lsn + 1).to_string();
    let one = json(&workdir, &["restore", "monday", "one", "--archive", "archive", "--to", &to, "--json"]);
    assert_eq!((&one["lsn"], &one["replayed"]), (&serde_json::json!(lsn + 1), &serde_json::json!(1)));
    let then = all["time"].as_str().unwrap();
    let same = json(&workdir, &["restore", "monday", "same", "--archive", "archive", "--to", then, "--json"]);
    assert_eq!(same["lsn"], all["lsn"]);
    let said = workdir.fails(&["restore", "monday", "none", "--to", "2001-01-01"]);
    assert!(said.contains("a backup only goes forward"), "{said}");
    let said = workdir.fails(&["restore", "monday", "none", "--archive", "monday"]);
    assert!(said.contains("where this backup's log was archived"), "{said}");
    // The restored database is another database: it gets a folder of its own in the archive.
    workdir.ok(&[&["sql", "--data", "all", "SELECT 1"], &archived[..]].concat());
    assert_eq!(std::fs::read_dir(workdir.path("archive")).unwrap().count(), 2);
}

#[test]
fn a_running_server_examines_its_own_directory_and_a_damaged_segment_spoils_only_itself() {
    let _limit = testkit::limit(180);
    let workdir = Workdir::new();
    let csv = |first: u64| (first..first + 9_000).map(|n| format!("{n},{}\n", n % 7)).collect::<String>();
    workdir.write("hurt.csv", &format!("n,m\n{}", csv(0)));
    workdir.write("well.csv", &format!("n,m\n{}", csv(0)));
    workdir.ok(&["ingest", "hurt.csv"]);
    workdir.ok(&["ingest", "well.csv"]);
    // A backup writes heads as segments, so the restored directory has segments.
    workdir.ok(&["backup", "kept"]);
    workdir.ok(&["restore", "kept", "data"]);
    let server_of = |workdir: &Workdir| workdir.serve_in("data", &["serve", "--data", "data"]);
    let server = server_of(&workdir);
    let found = json(&workdir, &["doctor", "data", "--json"]);
    assert_eq!((&found["sound"], &found["findings"]), (&serde_json::json!(true), &serde_json::json!([])));
    let examined = found["tables"].as_array().unwrap().iter().find(|t| t["name"] == "main.hurt").unwrap();
    assert_eq!(examined["rows"], 9_000);
    let said = workdir.ok(&["doctor", "data"]);
    assert!(said.contains("Sound: lsn "), "{said}");

    // A byte on the disk changes while the server runs. The two tables are alike; `hurt` was made first, so its folder has the
    // lower number.
    let mut segments: Vec<(u64, std::path::PathBuf)> = std::fs::read_dir(workdir.path("data/tables"))
        .unwrap()
        .map(|dir| dir.unwrap())
        .flat_map(|dir| {
            let id = dir.file_name().to_str().unwrap().parse().unwrap();
            std::fs::read_dir(dir.path()).unwrap().map(move |file| (id, file.unwrap().path()))
        })
        .filter(|(_, path)| path.extension().unwrap() == "arrow" && path.metadata().unwrap().len() > 100_000)
        .collect();
    segments.sort();
    assert_eq!(segments.len(), 2, "{segments:?}");
    let segment = segments.remove(0).1;
    // The byte is changed in place, because the server has mapped the file.
    let file = std::fs::File::options().read(true).write(true).open(&segment).unwrap();
    let (mut byte, at) = ([0], file.metadata().unwrap().len() * 2 / 3);
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    let name = segment.file_name().unwrap().to_str().unwrap().to_owned();
    let output = workdir.run(&["doctor", "data", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = found["findings"].to_string();
    assert!(findings.contains("main.hurt") && findings.contains(&name), "{findings}");
    assert!(!findings.contains("main.well"), "{findings}");
    // A backup that would copy the damage is refused, and its error says what to do.
    let said = workdir.fails(&["backup", "again", "--data", "data"]);
    assert!(said.contains(&name) || said.contains("checksum"), "{said}");
    assert!(said.contains("restore the table from an earlier backup"), "{said}");
    assert!(!workdir.path("again").exists());
    assert!(server.stop().success());

    // After a restart, the damaged table's error names the file, and the other table is served and takes new rows.
    let server = server_of(&workdir);
    let sql = |statement: &str| {
        let body = format!("{{\"sql\": \"{statement}\"}}");
        server.ask("POST", "/v1/sql", &["Content-Type: application/json"], &body)
    };
    let tables = || {
        let (status, said) = server.ask("GET", "/ready", &[], "");
        assert_eq!(status, 200, "the rest is served: {said}");
        serde_json::from_str::<serde_json::Value>(&said).unwrap()["parts"]["tables"].take()
    };
    assert_eq!(tables(), serde_json::json!({ "ok": true, "detail": { "damaged_segments": 0 } }));
    let (status, said) = sql("SELECT sum(n) AS s FROM hurt");
    assert!(status >= 500 && said.contains("damaged"), "{status} {said}");
    assert_eq!(tables(), serde_json::json!({ "ok": false, "detail": { "damaged_segments": 1 } }));
    let (status, said) = sql("SELECT count(*) AS c FROM well WHERE n >= 0");
    assert!(status == 200 && said.contains("9000"), "{status} {said}");
    let (status, said) = server.ask(
        "POST",
        "/v1/tables/well/rows",
        &["Content-Type: application/json"],
        "[{\"n\": 1, \"m\": 1}]",
    );
    assert_eq!(status, 200, "{said}");
    assert!(server.stop().success());
}

/// `polynya doctor` reported a backup as damaged, because it has no log, and left a file in it.
#[test]
fn a_backup_is_examined_as_one_and_not_opened() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    workdir.write("t.csv", "a,b\n1,x\n2,y\n");
    workdir.ok(&["ingest", "t.csv"]);
    workdir.ok(&["backup", "kept"]);
    let names = || {
        let entries = std::fs::read_dir(workdir.path("kept")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let said = workdir.ok(&["doctor", "kept"]);
    assert!(said.contains("This is a backup, and it is sound") && said.contains(" t "), "{said}");
    assert_eq!(json(&workdir, &["doctor", "kept", "--json"])["backup"], true);
    for args in
        [&["sql", "--data", "kept", "SELECT 1"][..], &["serve", "--data", "kept", "--listen", "127.0.0.1:0"]]
    {
        let said = workdir.fails(args);
        assert!(said.contains("kept is a backup") && said.contains("polynya restore kept"), "{said}");
    }
    assert_eq!(names(), before, "nothing was written into it");

    let segment = std::fs::read_dir(workdir.path("kept/tables"))
        .unwrap()
        .flat_map(|dir| std::fs::read_dir(dir.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .find(|path| path.extension().is_some_and(|ending| ending == "arrow"))
        .unwrap();
    let whole = std::fs::read(&segment).unwrap();
    let found = || {
        let output = workdir.run(&["doctor", "kept"]);
        assert_eq!(output.status.code(), Some(1));
        crate::polynya::text(&output.stdout)
    };
    let mut bytes = whole.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&segment, &bytes).unwrap();
    assert!(found().contains("is not what was written"), "{}", found());
    std::fs::remove_file(&segment).unwrap();
    assert!(found().contains("a file of the backup is missing"), "{}", found());
    std::fs::write(&segment, &whole).unwrap();
    workdir.ok(&["doctor", "kept"]);
    std::fs::remove_file(workdir.path("kept/BACKUP")).unwrap();
    assert!(found().contains("a backup that was interrupted"), "{}", found());
}

/// A backup could be taken into the data directory of another database, and became a part of it.
#[test]
fn a_backup_in_a_data_directory_is_refused_also_through_a_link() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    workdir.write("t.csv", "a,b\n1,x\n");
    workdir.ok(&["ingest", "t.csv"]);
    workdir.ok(&["ingest", "t.csv", "--data", "other"]);
    std::os::unix::fs::symlink(workdir.path("other/tables"), workdir.path("link")).unwrap();
    for dest in ["other/kept", "other/tables/deep/kept", "link/kept"] {
        let said = workdir.fails(&["backup", dest]);
        assert!(said.contains("lies in a data directory") && said.contains("other"), "{said}");
        assert!(!workdir.path(dest).exists());
    }
    workdir.ok(&["backup", "kept"]);
}

/// A failing archive was reported only after more than a minute, without its path and the reason.
#[test]
fn an_archive_that_cannot_be_written_is_told_at_once_and_once() {
    let _limit = testkit::limit(180);
    let workdir = Workdir::new();
    // The archive is a link to a missing folder.
    std::os::unix::fs::symlink(workdir.path("disk"), workdir.path("archive")).unwrap();
    let mut server = workdir.serve(&["serve", "--set", "log.archive=archive"]);
    let archive_when = |is_failing: bool| {
        let started = std::time::Instant::now();
        loop {
            let (_, ready) = server.ask("GET", "/ready", &[], "");
            let mut ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
            let archive = ready["parts"]["archive"].take();
            if archive["ok"] == !is_failing {
                return archive["detail"].clone();
            }
            assert!(started.elapsed().as_secs() < 45, "{archive}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    let told = archive_when(true);
    assert!(told["path"].as_str().unwrap().contains("/archive/"), "{told}");
    assert!(told["reason"].as_str().unwrap().contains("failed"), "{told}");
    std::fs::create_dir(workdir.path("disk")).unwrap();
    assert_eq!(archive_when(false)["reason"], serde_json::Value::Null);
    let mut stderr = server.child.stderr.take().unwrap();
    assert!(server.stop().success());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut stderr, &mut said).unwrap();
    for line in ["the log is not archived: ", "the log is archived again"] {
        assert_eq!(said.matches(line).count(), 1, "{said}");
    }
}

/// Otherwise the command would make a folder named `s3:`, and its user would look for the backup in the bucket.
#[test]
fn a_uri_is_never_taken_for_a_folder() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    workdir.write("t.csv", "a,b\n1,x\n");
    workdir.ok(&["ingest", "t.csv"]);
    workdir.ok(&["backup", "kept"]);
    for (args, why) in [
        (&["backup", "gs://bucket/monday"][..], "write s3://BUCKET/PREFIX"),
        (&["backup", "s3:///monday"], "names no bucket"),
        (&["restore", "gs://bucket/monday", "again"], "write s3://BUCKET/PREFIX"),
        (&["restore", "kept", "s3://bucket/again"], "is not a folder on this machine"),
        (&["restore", "kept", "again", "--archive", "gs://bucket/log"], "write s3://BUCKET/PREFIX"),
        (&["sql", "SELECT 1", "--set", "log.archive=gs://bucket/log"], "write s3://BUCKET/PREFIX"),
    ] {
        let said = workdir.fails(args);
        assert!(said.contains(why), "{args:?}: {said}");
    }
    let output = workdir.run(&["doctor", "s3://bucket/monday"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        crate::polynya::text(&output.stderr).contains("polynya restore s3://bucket/monday NEW_DIRECTORY")
    );
    for made in ["s3:", "gs:", "again"] {
        assert!(!workdir.path(made).exists(), "{made}");
    }
}
