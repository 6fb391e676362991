//! The effects of a crash on the bytes of a file.

use super::*;

const SECTOR: usize = SECTOR_BYTES as usize;

/// Returns the first byte of each sector.
fn letters(bytes: &[u8]) -> String {
    bytes.chunks(SECTOR).map(|sector| char::from(sector[0])).collect()
}

/// Panics if a sector is torn: it must be written whole or not at all.
fn assert_sectors_whole(bytes: &[u8]) {
    assert!(
        bytes.chunks(SECTOR).all(|sector| sector.iter().all(|byte| *byte == sector[0])),
        "a sector is torn"
    );
}

#[test]
fn synced_bytes_survive_every_crash() {
    after_crashes(
        |disk| {
            let file = durable_file(disk, "/a", &[b'x'; 3000]);
            write(&file, b"yyyy", 2998);
            file.sync().unwrap();
        },
        |seed, disk| {
            let expected = [vec![b'x'; 2998], b"yyyy".to_vec()].concat();
            assert_eq!(disk.contents(at("/a")).unwrap(), expected, "seed {seed}");
        },
    );
}

#[test]
fn an_unsynced_write_is_kept_lost_or_torn_at_any_sector() {
    let mut outcomes = Outcomes::default();
    after_crashes(
        |disk| {
            let file = durable_file(disk, "/a", &[b'o'; 3 * SECTOR]);
            write(&file, &[b'n'; 3 * SECTOR], 0);
        },
        |_, disk| {
            let bytes = disk.contents(at("/a")).unwrap();
            assert_sectors_whole(&bytes);
            outcomes.add(letters(&bytes));
        },
    );
    outcomes.assert_exactly(["ooo", "oon", "ono", "onn", "noo", "non", "nno", "nnn"].map(String::from));
}

#[test]
fn what_a_sector_held_between_two_syncs_can_come_back() {
    let mut outcomes = Outcomes::default();
    after_crashes(
        |disk| {
            let file = durable_file(disk, "/a", b"1");
            for version in [b"2", b"3", b"4"] {
                write(&file, version, 0);
            }
        },
        |_, disk| outcomes.add(disk.contents(at("/a")).unwrap()),
    );
    outcomes.assert_exactly([b"1", b"2", b"3", b"4"].map(|version| version.to_vec()));
}

#[test]
fn an_unsynced_length_is_old_new_or_between_and_missing_bytes_are_zero() {
    let mut outcomes = Outcomes::default();
    after_crashes(
        |disk| {
            let file = durable_file(disk, "/a", &[b'o'; SECTOR]);
            write(&file, &[b'n'; SECTOR], SECTOR as u64);
            write(&file, &[b'n'; SECTOR], 2 * SECTOR as u64);
        },
        |_, disk| {
            let bytes = disk.contents(at("/a")).unwrap();
            assert_sectors_whole(&bytes);
            outcomes.add(letters(&bytes));
        },
    );
    outcomes.assert_exactly(["o", "on", "o\0", "onn", "on\0", "o\0n", "o\0\0"].map(String::from));
}

#[test]
fn a_cut_that_was_not_synced_may_not_have_happened() {
    let mut outcomes = Outcomes::default();
    after_crashes(
        |disk| {
            let file = durable_file(disk, "/a", &[b'o'; 2 * SECTOR]);
            file.set_len(0).unwrap();
            file.set_len(2 * SECTOR as u64).unwrap();
            assert_eq!(disk.contents(at("/a")).unwrap(), [0; 2 * SECTOR], "what was cut is zero");
        },
        |_, disk| outcomes.add(letters(&disk.contents(at("/a")).unwrap())),
    );
    outcomes.assert_exactly(["", "oo", "o\0", "\0o", "\0\0"].map(String::from));
}

#[test]
fn allocated_space_that_was_synced_is_zero_and_needs_no_new_length() {
    let mut outcomes = Outcomes::default();
    after_crashes(
        |disk| {
            let file = durable_file(disk, "/a", b"");
            file.allocate(2 * SECTOR as u64).unwrap();
            file.sync().unwrap();
            write(&file, &[b'n'; SECTOR], SECTOR as u64);
        },
        |_, disk| outcomes.add(letters(&disk.contents(at("/a")).unwrap())),
    );
    outcomes.assert_exactly(["\0\0", "\0n"].map(String::from));
}

#[test]
fn allocation_that_was_not_synced_leaves_any_of_its_lengths() {
    let mut outcomes = Outcomes::default();
    after_crashes(
        |disk| durable_file(disk, "/a", b"").allocate(8192).unwrap(),
        |_, disk| {
            let bytes = disk.contents(at("/a")).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0));
            outcomes.add(bytes.len());
        },
    );
    outcomes.assert_exactly([0, 4096, 8192]);
}

/// Checks the rules with any sequence of calls and by another method. The test remembers the whole file after each
/// call. After the crash, each sector must equal that of some state since the last sync, and so must the length.
#[test]
fn after_any_calls_every_sector_and_the_length_are_of_some_moment_since_the_last_sync() {
    let _limit = testkit::limit(60);
    testkit::for_each_seed(300, |seed| {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(seed);
        let file = durable_file(&disk, "/a", &[]);
        let mut states: Vec<Vec<u8>> = vec![Vec::new()];
        for _ in 0..rng.range(1..40) {
            match rng.below(8) {
                0 => file.set_len(rng.below(5000)).unwrap(),
                1 => {
                    file.sync().unwrap();
                    states.clear();
                }
                _ => {
                    let len = rng.below(2000) as usize;
                    let bytes = rng.bytes(len);
                    write(&file, &bytes, rng.below(4000));
                }
            }
            states.push(disk.contents(at("/a")).unwrap());
        }
        let found = disk.crash(&mut rng).contents(at("/a")).unwrap();
        assert!(states.iter().any(|state| state.len() == found.len()), "no such length since the sync");
        for start in (0..found.len()).step_by(SECTOR) {
            let end = (start + SECTOR).min(found.len());
            let same = |state: &Vec<u8>| (start..end).all(|i| state.get(i).copied().unwrap_or(0) == found[i]);
            assert!(states.iter().any(same), "the sector at {start} is of no moment since the sync");
        }
        let last = states.last().unwrap();
        if states.len() == 1 {
            assert_eq!(&found, last, "nothing was written since the sync");
        }
    });
}
