//! Folders on a real disk: the changes found by a scan, and the rows of the table.

mod live;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use super::tree::{Change, Look, Scope, Tree};
use super::{Limits, Root, Shared};

pub fn root(path: impl AsRef<Path>, prefix: &str) -> Root {
    Root { path: path.as_ref().to_owned(), prefix: prefix.to_owned(), notes_only: false, still: false }
}

fn tree(path: impl AsRef<Path>) -> Tree {
    Tree::new(root(path, ""), Limits::default())
}

fn names(changes: &[Change]) -> Vec<String> {
    let name = |change: &Change| match change {
        Change::Put { path, .. } => format!("+{path}"),
        Change::Withhold { path } => format!("?{path}"),
        Change::Remove { path } => format!("-{path}"),
    };
    let mut names: Vec<String> =
        changes.iter().filter(|change| !matches!(change, Change::Withhold { .. })).map(name).collect();
    names.sort();
    names
}

fn withheld(changes: &[Change]) -> Vec<&str> {
    let mut paths: Vec<&str> =
        changes.iter().filter(|change| matches!(change, Change::Withhold { .. })).map(Change::path).collect();
    paths.sort_unstable();
    paths
}

/// Scans until no file counts as being written.
fn look(tree: &mut Tree) -> Look {
    settled(tree, Scope::Everything)
}

fn settled(tree: &mut Tree, scope: Scope<'_>) -> Look {
    let mut all = Look::default();
    loop {
        let look = tree.look(scope).expect("a look");
        all.changes.extend(look.changes);
        all.warnings.extend(look.warnings);
        all.read += look.read;
        if !look.hot {
            return all;
        }
        // The file system's clock has to move on.
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_look_tells_what_changed_and_reads_nothing_else() {
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
    let first = look(&mut tree);
    assert_eq!(names(&first.changes), ["+a.md", "+x/UPPER.MD", "+x/b.md", "+x/p.png"]);
    assert_eq!(first.read, 4);
    let second = look(&mut tree);
    assert!(second.changes.is_empty() && second.read == 0);
    fs::write(root.join("a.md"), "longer").unwrap();
    fs::remove_file(root.join("x/p.png")).unwrap();
    fs::rename(root.join("x/b.md"), root.join("x/c.md")).unwrap();
    let third = look(&mut tree);
    assert_eq!(names(&third.changes), ["+a.md", "+x/c.md", "-x/b.md", "-x/p.png"]);
}

#[test]
fn a_look_at_one_folder_says_nothing_of_others() {
    let dir = testkit::temp_dir("feeds");
    fs::create_dir_all(dir.path().join("x/y")).unwrap();
    for path in ["a.md", "x/b.md", "x/y/c.md"] {
        fs::write(dir.path().join(path), path).unwrap();
    }
    let mut tree = tree(dir.path());
    look(&mut tree);
    for path in ["a.md", "x/b.md", "x/y/c.md"] {
        fs::write(dir.path().join(path), "new").unwrap();
    }
    fs::write(dir.path().join("x/d.md"), "d").unwrap();
    let folders = BTreeSet::from(["x".to_owned()]);
    assert_eq!(names(&settled(&mut tree, Scope::Folders(&folders)).changes), ["+x/b.md", "+x/d.md"]);
    fs::remove_file(dir.path().join("x/d.md")).unwrap();
    assert_eq!(names(&settled(&mut tree, Scope::Folders(&folders)).changes), ["-x/d.md"]);
    assert_eq!(names(&look(&mut tree).changes), ["+a.md", "+x/y/c.md"]);
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
    assert_eq!(names(&look(&mut tree(&root)).changes), ["+a.md", "+b.md"]);
}

#[test]
fn files_beyond_the_limits_are_passed_over_and_said_once() {
    let dir = testkit::temp_dir("feeds");
    let place = dir.path();
    let limits = Limits { files_max: 5, asset_bytes_max: 10, total_bytes_max: 20 };
    fs::write(place.join("a.png"), [0; 11]).unwrap();
    fs::write(place.join("b.png"), [0; 10]).unwrap();
    fs::write(place.join("c.md"), [b'x'; 11]).unwrap();
    let mut tree = Tree::new(root(place, ""), limits);
    let first = look(&mut tree);
    assert_eq!(names(&first.changes), ["+b.png"]);
    assert_eq!(first.warnings.len(), 2, "{:?}", first.warnings);
    assert!(look(&mut tree).warnings.is_empty());
    fs::write(place.join("b.png"), [0; 12]).unwrap();
    assert_eq!(names(&look(&mut tree).changes), ["-b.png"], "what is passed over now is not served any more");
    for i in 0..4 {
        fs::write(place.join(format!("{i}.md")), "").unwrap();
    }
    assert!(tree.look(Scope::Everything).is_err_and(|error| error.kind() == types::Kind::TooLarge));
}

#[test]
fn names_that_are_no_text_and_files_that_nobody_may_read_are_said() {
    use std::os::unix::ffi::OsStrExt;
    let dir = testkit::temp_dir("feeds");
    fs::write(dir.path().join(std::ffi::OsStr::from_bytes(b"\xff.md")), "x").unwrap();
    fs::write(dir.path().join("ok.md"), "x").unwrap();
    fs::create_dir(dir.path().join("dir.md")).unwrap();
    let found = look(&mut tree(dir.path()));
    assert_eq!(names(&found.changes), ["+ok.md"]);
    assert!(found.warnings.iter().any(|(_, why)| why.contains("not UTF-8")), "{:?}", found.warnings);
}

#[test]
fn a_folder_that_is_away_removes_nothing() {
    let dir = testkit::temp_dir("feeds");
    let place = dir.path().join("vault");
    let mut tree = tree(&place);
    assert!(tree.look(Scope::Everything).is_err());
    fs::create_dir(&place).unwrap();
    fs::write(place.join("a.md"), "a").unwrap();
    assert_eq!(look(&mut tree).changes.len(), 1);
    fs::rename(&place, dir.path().join("away")).unwrap();
    assert!(tree.look(Scope::Everything).is_err());
    // An unmounted disk leaves an empty directory.
    fs::create_dir(&place).unwrap();
    assert!(tree.look(Scope::Everything).is_err_and(|error| error.to_string().contains("is empty")));
    fs::remove_dir(&place).unwrap();
    fs::rename(dir.path().join("away"), &place).unwrap();
    assert!(look(&mut tree).changes.is_empty());
    fs::remove_file(place.join("a.md")).unwrap();
    assert_eq!(names(&look(&mut tree).changes), ["-a.md"], "the same folder, emptied");
}

#[test]
fn a_file_that_is_written_is_left_until_it_rests() {
    let dir = testkit::temp_dir("feeds");
    let mut tree = tree(dir.path());
    fs::write(dir.path().join("a.md"), "half").unwrap();
    let first = tree.look(Scope::Everything).unwrap();
    assert!(first.hot && first.changes.is_empty(), "{first:?}");
    let mut looks = 0;
    // The file is written before each scan, but it is taken in after a while all the same.
    let found = loop {
        fs::write(dir.path().join("a.md"), format!("{looks}")).unwrap();
        let found = tree.look(Scope::Everything).unwrap();
        looks += 1;
        if !found.hot {
            break found;
        }
    };
    assert_eq!((names(&found.changes), looks < 20), (vec!["+a.md".to_owned()], true));
}

#[test]
fn a_single_file_and_folders_under_prefixes_have_their_places() {
    let dir = testkit::temp_dir("feeds");
    fs::create_dir(dir.path().join("f")).unwrap();
    fs::write(dir.path().join("f/x.md"), "x").unwrap();
    fs::write(dir.path().join("README.md"), "r").unwrap();
    let mut of_file = Tree::new(root(dir.path().join("README.md"), "top"), Limits::default());
    assert_eq!(names(&look(&mut of_file).changes), ["+top/README.md"]);
    let mut of_folder = Tree::new(root(dir.path().join("f"), "a/b"), Limits::default());
    assert_eq!(names(&look(&mut of_folder).changes), ["+a/b/x.md"]);
    fs::remove_file(dir.path().join("f/x.md")).unwrap();
    fs::write(dir.path().join("f/y.md"), "y").unwrap();
    let folders = BTreeSet::from([String::new()]);
    let found = settled(&mut of_folder, Scope::Folders(&folders));
    assert_eq!(names(&found.changes), ["+a/b/y.md", "-a/b/x.md"]);
}

/// A plain `polynya publish --all .` made its data directory in the folder, and published the owner's secret from
/// there.
#[test]
fn a_database_in_the_folder_is_passed_over_with_all_that_is_in_it() {
    let dir = testkit::temp_dir("feeds");
    let place = dir.path();
    let data = place.join("polynya-data");
    fs::create_dir_all(data.join("log")).unwrap();
    fs::create_dir_all(data.join("lake/x")).unwrap();
    for file in ["LOCK", "server.json", "lake/x/a.json", "note.md"] {
        fs::write(data.join(file), "secret").unwrap();
    }
    fs::write(place.join("a.md"), "a").unwrap();
    fs::create_dir(place.join("log")).unwrap();
    fs::write(place.join("log/LOCK.md"), "a").unwrap();
    std::os::unix::fs::symlink(data.join("server.json"), place.join("server.json")).unwrap();
    std::os::unix::fs::symlink(data.join("lake/x/a.json"), place.join("b.json")).unwrap();
    let mut of_folder = tree(place);
    let found = look(&mut of_folder);
    assert_eq!(names(&found.changes), ["+a.md", "+log/LOCK.md"]);
    assert!(
        !found.warnings.is_empty()
            && found.warnings.iter().all(|(path, why)| path == "polynya-data" && why.contains("database")),
        "{:?}",
        found.warnings
    );
    for root_of_it in [data.clone(), data.join("server.json")] {
        let error = tree(root_of_it).look(Scope::Everything).unwrap_err();
        assert!(error.to_string().contains("belongs to a database"), "{error}");
    }
    // A folder becomes a database.
    fs::create_dir(place.join("new")).unwrap();
    fs::write(place.join("new/server.json"), "{}").unwrap();
    assert_eq!(names(&look(&mut of_folder).changes), ["+new/server.json"]);
    fs::write(place.join("new/LOCK"), "").unwrap();
    let folders = BTreeSet::from(["new".to_owned()]);
    assert_eq!(names(&settled(&mut of_folder, Scope::Folders(&folders)).changes), ["-new/server.json"]);
}

#[test]
fn notes_that_are_passed_over_are_told_of_by_name() {
    let dir = testkit::temp_dir("feeds");
    let (place, outside) = (dir.path().join("vault"), dir.path().join("outside"));
    fs::create_dir_all(place.join(".private/deep")).unwrap();
    fs::create_dir_all(place.join(".git")).unwrap();
    fs::create_dir_all(&outside).unwrap();
    for file in [".private/deep/b.md", ".private/p.png", ".c.md", ".#a.md", ".git/d.md", "a.md"] {
        fs::write(place.join(file), "x").unwrap();
    }
    fs::write(outside.join("e.md"), "x").unwrap();
    std::os::unix::fs::symlink(&outside, place.join("out")).unwrap();
    std::os::unix::fs::symlink(&outside, outside.join("loop")).unwrap();
    std::os::unix::fs::symlink(outside.join("e.md"), place.join("f.md")).unwrap();
    fs::write(place.join("g.md"), vec![b'x'; site::NOTE_BYTES_MAX + 1]).unwrap();
    let mut tree = tree(&place);
    let found = look(&mut tree);
    assert_eq!(names(&found.changes), ["+a.md"]);
    assert_eq!(withheld(&found.changes), [".c.md", ".private/deep/b.md", "f.md", "g.md", "out/e.md"]);
    assert!(look(&mut tree).changes.is_empty(), "once");
    fs::write(place.join("g.md"), "small").unwrap();
    fs::remove_file(place.join("f.md")).unwrap();
    fs::remove_dir_all(place.join(".private")).unwrap();
    fs::write(place.join("a.md"), vec![b'x'; site::NOTE_BYTES_MAX + 1]).unwrap();
    let found = look(&mut tree);
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
    let (_watch, waker) = super::Watch::new().unwrap();
    let (busy, wait) = std::sync::mpsc::channel::<()>();
    let (running, ended) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _running = running;
        assert!(wait.recv().is_err());
    });
    let thread = Some(super::Running { thread, ended });
    super::Feed { shared: shared.into(), waker, thread }.stop();
    drop(busy);
}
