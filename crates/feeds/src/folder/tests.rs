//! Folders on a real disk: the changes found by a scan, and the rows of the table.

mod live;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use super::tree::{FileChange, ScanResult, ScanScope, Tree};
use super::{FolderRoot, Limits, Shared};

pub fn root(path: impl AsRef<Path>, prefix: &str) -> FolderRoot {
    FolderRoot { path: path.as_ref().to_owned(), prefix: prefix.to_owned(), notes_only: false, still: false }
}

fn tree(path: impl AsRef<Path>) -> Tree {
    Tree::new(root(path, ""), Limits::default())
}

fn names(changes: &[FileChange]) -> Vec<String> {
    let name = |change: &FileChange| match change {
        FileChange::Put { path, .. } => format!("+{path}"),
        FileChange::Withhold { path } => format!("?{path}"),
        FileChange::Remove { path } => format!("-{path}"),
    };
    let mut names: Vec<String> =
        changes.iter().filter(|change| !matches!(change, FileChange::Withhold { .. })).map(name).collect();
    names.sort();
    names
}

fn withheld(changes: &[FileChange]) -> Vec<&str> {
    let mut paths: Vec<&str> = changes
        .iter()
        .filter(|change| matches!(change, FileChange::Withhold { .. }))
        .map(FileChange::path)
        .collect();
    paths.sort_unstable();
    paths
}

/// Scans until no file counts as being written.
fn scan(tree: &mut Tree) -> ScanResult {
    settled(tree, ScanScope::Everything)
}

fn settled(tree: &mut Tree, scope: ScanScope<'_>) -> ScanResult {
    let mut all = ScanResult::default();
    loop {
        let scan = tree.scan(scope).expect("a look");
        all.changes.extend(scan.changes);
        all.warnings.extend(scan.warnings);
        all.read += scan.read;
        if !scan.hot {
            return all;
        }
        // The file system's clock has to move on.
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_scan_reports_changes_and_reads_nothing_else() {
    let dir = testkit::temp_dir("feeds");
    let root = dir.path();
    fs::create_dir_all(root.join("x/.hidden")).unwrap();
    fs::create_dir_all(root.join(".obsidian")).unwrap();
    for (path, text) in [
        ("a.md", "a"),
        ("x/b.md", "b"),
        ("x/p.png", "p"),
        ("x/.hidden/c.md", "c"),
        (".obsidian/d.md", "d"),
        ("run.exe", "e"),
        ("x/UPPER.MD", "f"),
    ] {
        fs::write(root.join(path), text).unwrap();
    }
    let mut tree = tree(root);
    let first = scan(&mut tree);
    assert_eq!(names(&first.changes), ["+a.md", "+x/UPPER.MD", "+x/b.md", "+x/p.png"]);
    assert_eq!(first.read, 4);
    let second = scan(&mut tree);
    assert!(second.changes.is_empty() && second.read == 0);
    fs::write(root.join("a.md"), "longer").unwrap();
    fs::remove_file(root.join("x/p.png")).unwrap();
    fs::rename(root.join("x/b.md"), root.join("x/c.md")).unwrap();
    let third = scan(&mut tree);
    assert_eq!(names(&third.changes), ["+a.md", "+x/c.md", "-x/b.md", "-x/p.png"]);
}

#[test]
fn a_scan_of_one_folder_reports_nothing_of_others() {
    let dir = testkit::temp_dir("feeds");
    fs::create_dir_all(dir.path().join("x/y")).unwrap();
    for path in ["a.md", "x/b.md", "x/y/c.md"] {
        fs::write(dir.path().join(path), path).unwrap();
    }
    let mut tree = tree(dir.path());
    scan(&mut tree);
    for path in ["a.md", "x/b.md", "x/y/c.md"] {
        fs::write(dir.path().join(path), "new").unwrap();
    }
    fs::write(dir.path().join("x/d.md"), "d").unwrap();
    let folders = BTreeSet::from(["x".to_owned()]);
    assert_eq!(names(&settled(&mut tree, ScanScope::Folders(&folders)).changes), ["+x/b.md", "+x/d.md"]);
    fs::remove_file(dir.path().join("x/d.md")).unwrap();
    assert_eq!(names(&settled(&mut tree, ScanScope::Folders(&folders)).changes), ["-x/d.md"]);
    assert_eq!(names(&scan(&mut tree).changes), ["+a.md", "+x/y/c.md"]);
}

#[test]
fn links_that_leave_the_folder_are_not_followed() {
    let dir = testkit::temp_dir("feeds");
    let (root, outside) = (dir.path().join("vault"), dir.path().join("outside"));
    fs::create_dir_all(root.join(".private")).unwrap();
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("secret.md"), "secret").unwrap();
    fs::write(root.join("a.md"), "a").unwrap();
    fs::write(root.join(".private/h.md"), "h").unwrap();
    for (from, to) in [
        (outside.join("secret.md"), "s.md"),
        (outside.clone(), "out"),
        (root.join("a.md"), "b.md"),
        (root.join(".private/h.md"), "h.md"),
        (root.clone(), "loop"),
        (root.join("none.md"), "dangling.md"),
    ] {
        std::os::unix::fs::symlink(from, root.join(to)).unwrap();
    }
    assert_eq!(names(&scan(&mut tree(&root)).changes), ["+a.md", "+b.md"]);
}

#[test]
fn files_beyond_the_limits_are_passed_over_and_said_once() {
    let dir = testkit::temp_dir("feeds");
    let disk_path = dir.path();
    let limits = Limits { files_max: 5, asset_bytes_max: 10, total_bytes_max: 20 };
    fs::write(disk_path.join("a.png"), [0; 11]).unwrap();
    fs::write(disk_path.join("b.png"), [0; 10]).unwrap();
    fs::write(disk_path.join("c.md"), [b'x'; 11]).unwrap();
    let mut tree = Tree::new(root(disk_path, ""), limits);
    let first = scan(&mut tree);
    assert_eq!(names(&first.changes), ["+b.png"]);
    assert_eq!(first.warnings.len(), 2, "{:?}", first.warnings);
    assert!(scan(&mut tree).warnings.is_empty());
    fs::write(disk_path.join("b.png"), [0; 12]).unwrap();
    assert_eq!(names(&scan(&mut tree).changes), ["-b.png"], "what is passed over now is not served any more");
    for i in 0..4 {
        fs::write(disk_path.join(format!("{i}.md")), "").unwrap();
    }
    assert!(tree.scan(ScanScope::Everything).is_err_and(|error| error.kind() == types::Kind::TooLarge));
}

#[test]
fn names_that_are_no_text_and_files_that_nobody_may_read_are_said() {
    use std::os::unix::ffi::OsStrExt;
    let dir = testkit::temp_dir("feeds");
    fs::write(dir.path().join(std::ffi::OsStr::from_bytes(b"\xff.md")), "x").unwrap();
    fs::write(dir.path().join("ok.md"), "x").unwrap();
    fs::create_dir(dir.path().join("dir.md")).unwrap();
    let found = scan(&mut tree(dir.path()));
    assert_eq!(names(&found.changes), ["+ok.md"]);
    assert!(found.warnings.iter().any(|(_, why)| why.contains("not UTF-8")), "{:?}", found.warnings);
}

#[test]
fn a_folder_that_is_away_removes_nothing() {
    let dir = testkit::temp_dir("feeds");
    let disk_path = dir.path().join("vault");
    let mut tree = tree(&disk_path);
    assert!(tree.scan(ScanScope::Everything).is_err());
    fs::create_dir(&disk_path).unwrap();
    fs::write(disk_path.join("a.md"), "a").unwrap();
    assert_eq!(scan(&mut tree).changes.len(), 1);
    fs::rename(&disk_path, dir.path().join("away")).unwrap();
    assert!(tree.scan(ScanScope::Everything).is_err());
    // An unmounted disk leaves an empty directory.
    fs::create_dir(&disk_path).unwrap();
    assert!(tree.scan(ScanScope::Everything).is_err_and(|error| error.to_string().contains("is empty")));
    fs::remove_dir(&disk_path).unwrap();
    fs::rename(dir.path().join("away"), &disk_path).unwrap();
    assert!(scan(&mut tree).changes.is_empty());
    fs::remove_file(disk_path.join("a.md")).unwrap();
    assert_eq!(names(&scan(&mut tree).changes), ["-a.md"], "the same folder, emptied");
}

#[test]
fn a_file_that_is_written_is_left_until_it_rests() {
    let dir = testkit::temp_dir("feeds");
    let mut tree = tree(dir.path());
    fs::write(dir.path().join("a.md"), "half").unwrap();
    let first = tree.scan(ScanScope::Everything).unwrap();
    assert!(first.hot && first.changes.is_empty(), "{first:?}");
    let mut scans = 0;
    // The file is written before each scan, but it is taken in after a while all the same.
    let found = loop {
        fs::write(dir.path().join("a.md"), format!("{scans}")).unwrap();
        let found = tree.scan(ScanScope::Everything).unwrap();
        scans += 1;
        if !found.hot {
            break found;
        }
    };
    assert_eq!((names(&found.changes), scans < 20), (vec!["+a.md".to_owned()], true));
}

#[test]
fn a_single_file_and_folders_under_prefixes_have_their_places() {
    let dir = testkit::temp_dir("feeds");
    fs::create_dir(dir.path().join("f")).unwrap();
    fs::write(dir.path().join("f/x.md"), "x").unwrap();
    fs::write(dir.path().join("README.md"), "r").unwrap();
    let mut of_file = Tree::new(root(dir.path().join("README.md"), "top"), Limits::default());
    assert_eq!(names(&scan(&mut of_file).changes), ["+top/README.md"]);
    let mut of_folder = Tree::new(root(dir.path().join("f"), "a/b"), Limits::default());
    assert_eq!(names(&scan(&mut of_folder).changes), ["+a/b/x.md"]);
    fs::remove_file(dir.path().join("f/x.md")).unwrap();
    fs::write(dir.path().join("f/y.md"), "y").unwrap();
    let folders = BTreeSet::from([String::new()]);
    let found = settled(&mut of_folder, ScanScope::Folders(&folders));
    assert_eq!(names(&found.changes), ["+a/b/y.md", "-a/b/x.md"]);
}

/// A plain `polynya publish --all .` made its data directory in the folder, and published the owner's secret from
/// there.
#[test]
fn a_database_in_the_folder_is_passed_over_with_all_that_is_in_it() {
    let dir = testkit::temp_dir("feeds");
    let disk_path = dir.path();
    let data = disk_path.join("polynya-data");
    fs::create_dir_all(data.join("log")).unwrap();
    fs::create_dir_all(data.join("lake/x")).unwrap();
    for file in ["LOCK", "server.json", "lake/x/a.json", "note.md"] {
        fs::write(data.join(file), "secret").unwrap();
    }
    fs::write(disk_path.join("a.md"), "a").unwrap();
    fs::create_dir(disk_path.join("log")).unwrap();
    fs::write(disk_path.join("log/LOCK.md"), "a").unwrap();
    std::os::unix::fs::symlink(data.join("server.json"), disk_path.join("server.json")).unwrap();
    std::os::unix::fs::symlink(data.join("lake/x/a.json"), disk_path.join("b.json")).unwrap();
    let mut of_folder = tree(disk_path);
    let found = scan(&mut of_folder);
    assert_eq!(names(&found.changes), ["+a.md", "+log/LOCK.md"]);
    assert!(
        !found.warnings.is_empty()
            && found.warnings.iter().all(|(path, why)| path == "polynya-data" && why.contains("database")),
        "{:?}",
        found.warnings
    );
    for root_of_it in [data.clone(), data.join("server.json")] {
        let error = tree(root_of_it).scan(ScanScope::Everything).unwrap_err();
        assert!(error.to_string().contains("belongs to a database"), "{error}");
    }
    // A folder becomes a database.
    fs::create_dir(disk_path.join("new")).unwrap();
    fs::write(disk_path.join("new/server.json"), "{}").unwrap();
    assert_eq!(names(&scan(&mut of_folder).changes), ["+new/server.json"]);
    fs::write(disk_path.join("new/LOCK"), "").unwrap();
    let folders = BTreeSet::from(["new".to_owned()]);
    assert_eq!(names(&settled(&mut of_folder, ScanScope::Folders(&folders)).changes), ["-new/server.json"]);
}

#[test]
fn notes_that_are_passed_over_are_told_of_by_name() {
    let dir = testkit::temp_dir("feeds");
    let (disk_path, outside) = (dir.path().join("vault"), dir.path().join("outside"));
    fs::create_dir_all(disk_path.join(".private/deep")).unwrap();
    fs::create_dir_all(disk_path.join(".git")).unwrap();
    fs::create_dir_all(&outside).unwrap();
    for file in [".private/deep/b.md", ".private/p.png", ".c.md", ".#a.md", ".git/d.md", "a.md"] {
        fs::write(disk_path.join(file), "x").unwrap();
    }
    fs::write(outside.join("e.md"), "x").unwrap();
    std::os::unix::fs::symlink(&outside, disk_path.join("out")).unwrap();
    std::os::unix::fs::symlink(&outside, outside.join("loop")).unwrap();
    std::os::unix::fs::symlink(outside.join("e.md"), disk_path.join("f.md")).unwrap();
    fs::write(disk_path.join("g.md"), vec![b'x'; site::NOTE_BYTES_MAX + 1]).unwrap();
    let mut tree = tree(&disk_path);
    let found = scan(&mut tree);
    assert_eq!(names(&found.changes), ["+a.md"]);
    assert_eq!(withheld(&found.changes), [".c.md", ".private/deep/b.md", "f.md", "g.md", "out/e.md"]);
    assert!(scan(&mut tree).changes.is_empty(), "once");
    fs::write(disk_path.join("g.md"), "small").unwrap();
    fs::remove_file(disk_path.join("f.md")).unwrap();
    fs::remove_dir_all(disk_path.join(".private")).unwrap();
    fs::write(disk_path.join("a.md"), vec![b'x'; site::NOTE_BYTES_MAX + 1]).unwrap();
    let found = scan(&mut tree);
    assert_eq!(names(&found.changes), ["+g.md", "-.private/deep/b.md", "-f.md"]);
    assert_eq!(withheld(&found.changes), ["a.md"], "in place of what was taken in");
}

/// A stopping server waited for as long as its folders' thread was busy.
#[test]
fn a_feed_that_is_busy_is_not_waited_for() {
    let _limit = testkit::limit(60);
    let shared = Shared {
        state: vfs::Mutex::new(vfs::Rank::new(72, "folder feed"), super::State::default()),
        stopping: false.into(),
    };
    let (_watch, waker) = super::FolderWatcher::new().unwrap();
    let (busy, wait) = std::sync::mpsc::channel::<()>();
    let (running, ended) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _running = running;
        assert!(wait.recv().is_err());
    });
    let thread = Some(super::ThreadHandle { thread, ended });
    super::Feed { shared: shared.into(), waker, thread }.stop();
    drop(busy);
}
