//! The effects of a crash on names.

use super::*;

/// Formats the files of a disk as `path=contents`, separated by spaces.
fn tree(disk: &SimDisk) -> String {
    let show = |path: PathBuf| {
        let bytes = disk.contents(&path).unwrap();
        format!("{}={}", path.display(), String::from_utf8_lossy(&bytes))
    };
    disk.files().into_iter().map(show).collect::<Vec<_>>().join(" ")
}

fn durable_dirs(disk: &SimDisk) {
    disk.create_dir_all(at("/x")).unwrap();
    disk.create_dir_all(at("/y")).unwrap();
    disk.sync_dir(at("/")).unwrap();
}

#[track_caller]
fn assert_outcomes<const N: usize>(before: impl FnMut(&SimDisk), expected: [&str; N]) {
    let mut outcomes = Outcomes::default();
    after_crashes(before, |_, disk| outcomes.add(tree(disk)));
    outcomes.assert_exactly(expected.map(String::from));
}

#[test]
fn a_created_file_is_lost_with_its_synced_bytes_unless_its_directory_is_synced() {
    let create = |disk: &SimDisk| {
        let file = disk.create(at("/a")).unwrap();
        write(&file, b"1", 0);
        file.sync().unwrap();
    };
    assert_outcomes(create, ["", "/a=1"]);
    assert_outcomes(
        |disk| {
            create(disk);
            disk.sync_dir(at("/")).unwrap();
        },
        ["/a=1"],
    );
}

#[test]
fn a_rename_within_a_directory_happens_wholly_or_not_at_all() {
    let replace = |disk: &SimDisk| {
        durable_file(disk, "/a", b"old");
        durable_file(disk, "/temp", b"new");
        disk.rename(at("/temp"), at("/a")).unwrap();
        assert_eq!(tree(disk), "/a=new");
    };
    assert_outcomes(replace, ["/a=new", "/a=old /temp=new"]);
    assert_outcomes(
        |disk| {
            replace(disk);
            disk.sync_dir(at("/")).unwrap();
        },
        ["/a=new"],
    );
}

#[test]
fn a_durable_name_does_not_make_bytes_durable() {
    assert_outcomes(
        |disk| {
            let file = disk.create(at("/temp")).unwrap();
            write(&file, b"new", 0);
            disk.rename(at("/temp"), at("/a")).unwrap();
            disk.sync_dir(at("/")).unwrap();
        },
        ["/a=", "/a=new", "/a=\0\0\0"],
    );
}

#[test]
fn changes_of_different_names_are_lost_independently() {
    assert_outcomes(
        |disk| {
            durable_file(disk, "/a", b"1");
            durable_file(disk, "/b", b"2");
            disk.remove(at("/a")).unwrap();
            disk.remove(at("/b")).unwrap();
        },
        ["", "/a=1", "/b=2", "/a=1 /b=2"],
    );
}

#[test]
fn no_change_of_a_name_survives_the_loss_of_an_earlier_one() {
    assert_outcomes(
        |disk| {
            durable_file(disk, "/a", b"1");
            disk.rename(at("/a"), at("/b")).unwrap();
            disk.rename(at("/b"), at("/c")).unwrap();
            disk.rename(at("/c"), at("/d")).unwrap();
        },
        ["/a=1", "/b=1", "/c=1", "/d=1"],
    );
}

#[test]
fn a_rename_across_directories_leaves_one_name_or_both_but_never_none() {
    let start = |disk: &SimDisk| {
        durable_dirs(disk);
        durable_file(disk, "/x/a", b"1");
        disk.rename(at("/x/a"), at("/y/b")).unwrap();
    };
    assert_outcomes(start, ["/x/a=1", "/x/a=1 /y/b=1", "/y/b=1"]);
    let synced = |dirs: &'static [&str]| {
        move |disk: &SimDisk| {
            start(disk);
            dirs.iter().for_each(|dir| disk.sync_dir(at(dir)).unwrap());
        }
    };
    assert_outcomes(synced(&["/y"]), ["/x/a=1 /y/b=1", "/y/b=1"]);
    assert_outcomes(synced(&["/x"]), ["/y/b=1"]);
    assert_outcomes(synced(&["/y", "/x"]), ["/y/b=1"]);
}

#[test]
fn two_names_of_a_half_renamed_file_are_one_file() {
    let mut both = 0;
    after_crashes(
        |disk| {
            durable_dirs(disk);
            durable_file(disk, "/x/a", b"1");
            disk.rename(at("/x/a"), at("/y/b")).unwrap();
            disk.sync_dir(at("/y")).unwrap();
        },
        |_, disk| {
            if disk.contents(at("/x/a")).is_some() {
                write(&disk.open(at("/x/a"), Access::ReadWrite).unwrap(), b"2", 0);
                assert_eq!(disk.contents(at("/y/b")).unwrap(), b"2");
                both += 1;
            }
        },
    );
    assert!(both > 0 || testkit::seeds(CRASHES).count() < CRASHES as usize);
}

#[test]
fn a_removed_file_comes_back_whole_until_its_directory_is_synced() {
    let remove = |disk: &SimDisk| {
        let file = durable_file(disk, "/a", b"1");
        disk.remove(at("/a")).unwrap();
        assert!(!disk.exists(at("/a")).unwrap());
        drop(file);
    };
    assert_outcomes(remove, ["", "/a=1"]);
    assert_outcomes(
        |disk| {
            remove(disk);
            disk.sync_dir(at("/")).unwrap();
        },
        [""],
    );
}

#[test]
fn a_name_made_again_stands_for_the_new_file_or_an_earlier_state() {
    assert_outcomes(
        |disk| {
            durable_file(disk, "/a", b"1");
            disk.remove(at("/a")).unwrap();
            let file = disk.create(at("/a")).unwrap();
            write(&file, b"2", 0);
            file.sync().unwrap();
        },
        ["/a=1", "", "/a=2"],
    );
}

#[test]
fn a_lost_directory_takes_its_synced_files_with_it() {
    let make = |disk: &SimDisk| {
        disk.create_dir_all(at("/x/deep")).unwrap();
        durable_file(disk, "/x/deep/a", b"1");
    };
    assert_outcomes(make, ["", "/x/deep/a=1"]);
    assert_outcomes(
        |disk| {
            make(disk);
            disk.sync_dir(at("/x")).unwrap();
            disk.sync_dir(at("/")).unwrap();
        },
        ["/x/deep/a=1"],
    );
}

#[test]
fn paths_that_do_not_fit_are_refused_as_the_kernel_does() {
    let disk = SimDisk::new(0);
    disk.create_dir_all(at("/x/y")).unwrap();
    disk.create(at("/x/a")).unwrap();
    let kind = |result: io::Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(disk.create(at("/x/a")).map(drop)), ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.create(at("/z/a")).map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(disk.open(at("/x/b"), Access::Read).map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(disk.open(at("/x"), Access::Read).map(drop)), ErrorKind::IsADirectory);
    assert_eq!(kind(disk.open(at("/x/a/b"), Access::Read).map(drop)), ErrorKind::NotADirectory);
    assert_eq!(kind(disk.remove(at("/x/y"))), ErrorKind::IsADirectory);
    assert_eq!(kind(disk.remove_dir(at("/x"))), ErrorKind::DirectoryNotEmpty);
    assert_eq!(kind(disk.remove_dir(at("/x/a"))), ErrorKind::NotADirectory);
    assert_eq!(kind(disk.rename(at("/x/a"), at("/x/y"))), ErrorKind::IsADirectory);
    assert_eq!(kind(disk.rename(at("/x"), at("/x/y/z"))), ErrorKind::InvalidInput);
    assert_eq!(kind(disk.create_dir_all(at("/x/a/b"))), ErrorKind::NotADirectory);
    assert_eq!(kind(disk.list(at("/x/a")).map(drop)), ErrorKind::NotADirectory);
    assert!(!disk.exists(at("/x/a/b")).unwrap());
    disk.rename(at("/x/a"), at("/x/a")).unwrap();
    let names: Vec<String> = disk.list(at("x")).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["a", "y"]);
}
