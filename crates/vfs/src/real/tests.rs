use super::*;
use crate::Env;
use std::path::PathBuf;
use std::thread;

fn file_at(dir: &Path, name: &str) -> (PathBuf, Arc<dyn File>) {
    let path = dir.join(name);
    let file = RealDisk.create(&path).unwrap();
    (path, file)
}

#[test]
fn a_file_is_created_once_and_reads_back_what_was_gathered_into_it() {
    let dir = testkit::temp_dir("create");
    let (path, file) = file_at(&dir, "a");
    assert_eq!(RealDisk.create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    file.write_at(&[IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two")], 3).unwrap();
    file.write_at(&[], 100).unwrap();
    file.sync().unwrap();
    let file = RealDisk.open(&path, Access::Read).unwrap();
    let mut bytes = vec![9; 10];
    file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, b"\0\0\0one two");
    assert_eq!(file.len().unwrap(), 10);
    assert_eq!(file.read_at(&mut bytes, 1).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert!(file.write_at(&[IoSlice::new(b"x")], 0).is_err(), "opened for reading");
}

#[test]
fn a_write_of_more_parts_than_the_kernel_takes_at_once_is_whole() {
    let dir = testkit::temp_dir("parts");
    let (_, file) = file_at(&dir, "a");
    let expected: Vec<u8> = (0..5000u32).flat_map(|i| i.to_le_bytes()).collect();
    let parts: Vec<IoSlice> = expected.chunks(4).map(IoSlice::new).collect();
    file.write_at(&parts, 7).unwrap();
    assert_eq!(&file.map().unwrap()[7..], &expected[..]);
}

#[test]
fn allocated_bytes_are_zero_and_those_before_are_kept() {
    let dir = testkit::temp_dir("allocate");
    let (path, file) = file_at(&dir, "a");
    file.write_at(&[IoSlice::new(b"head")], 0).unwrap();
    // Neither the start nor the end of the range is at a block boundary.
    let len = ALLOCATE_STEP_BYTES as u64 * 2 + 4097;
    file.allocate(len).unwrap();
    assert_eq!(file.len().unwrap(), len);
    let bytes = file.map().unwrap();
    assert_eq!(&bytes[..4], b"head");
    assert!(bytes[4..].iter().all(|byte| *byte == 0));
    file.allocate(10).unwrap();
    assert_eq!(file.len().unwrap(), len, "never cuts");
    use std::os::unix::fs::MetadataExt;
    file.sync().unwrap();
    assert!(fs::metadata(&path).unwrap().blocks() * 512 >= len, "space is taken");
}

#[test]
fn a_mapping_outlives_its_file_and_an_empty_file_maps_to_nothing() {
    let dir = testkit::temp_dir("map");
    let (path, file) = file_at(&dir, "a");
    assert!(file.map().unwrap().is_empty() && file.is_empty().unwrap());
    file.write_at(&[IoSlice::new(b"still here")], 0).unwrap();
    let bytes = file.map().unwrap();
    assert_eq!(bytes.as_ptr() as usize % 64, 0);
    drop(file);
    RealDisk.remove(&path).unwrap();
    let word = bytes.slice(6..);
    drop(bytes);
    assert_eq!(&word[..], b"here");
}

#[test]
fn names_can_be_listed_renamed_and_removed() {
    let dir = testkit::temp_dir("names");
    let sub = dir.join("x/y");
    RealDisk.create_dir_all(&sub).unwrap();
    RealDisk.create_dir_all(&sub).unwrap();
    let (b, file) = file_at(&sub, "b");
    file.set_len(5).unwrap();
    let (a, _) = file_at(&sub, "a");
    RealDisk.create_dir_all(&sub.join("c")).unwrap();
    RealDisk.sync_dir(&sub).unwrap();
    let entry = |name: &str, len, is_dir| Entry { name: name.into(), len, is_dir };
    assert_eq!(
        RealDisk.list(&sub).unwrap(),
        [entry("a", 0, false), entry("b", 5, false), entry("c", 0, true)]
    );
    RealDisk.rename(&b, &a).unwrap();
    assert_eq!(RealDisk.list(&sub).unwrap(), [entry("a", 5, false), entry("c", 0, true)]);
    assert!(RealDisk.exists(&a).unwrap() && !RealDisk.exists(&b).unwrap());
    assert!(RealDisk.remove_dir(&sub).is_err(), "not empty");
    RealDisk.remove(&a).unwrap();
    RealDisk.remove_dir(&sub.join("c")).unwrap();
    RealDisk.remove_dir(&sub).unwrap();
    assert_eq!(RealDisk.list(&sub).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(RealDisk.open(&dir.join("x"), Access::Read).is_err(), "a directory is no file");
    assert!(RealDisk.free_bytes(&dir).unwrap() > 0);
}

#[test]
fn a_second_holder_of_a_lock_is_told_so_even_in_the_same_process() {
    let _limit = testkit::limit(30);
    let dir = testkit::temp_dir("lock");
    let path = dir.join("lock");
    let first = RealDisk.lock(&path).unwrap();
    assert_eq!(RealDisk.lock(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let elsewhere = thread::spawn({
        let path = path.clone();
        move || RealDisk.lock(&path).unwrap_err().kind()
    });
    assert_eq!(elsewhere.join().unwrap(), io::ErrorKind::WouldBlock);
    drop(first);
    RealDisk.lock(&path).unwrap();
}

#[test]
fn a_lock_ends_with_its_holder_though_a_program_that_begins_still_has_the_file() {
    let dir = testkit::temp_dir("lock");
    let path = dir.join("lock");
    let file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
    // A child process has such a copy between fork and exec.
    let copy = file.try_clone().unwrap();
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    let first = RealLock { file };
    assert_eq!(RealDisk.lock(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(first);
    RealDisk.lock(&path).unwrap();
    drop(copy);
}

#[test]
fn the_clock_counts_up_and_random_bytes_differ() {
    let env = Env::real();
    let start = env.clock.monotonic();
    assert!(env.clock.monotonic() >= start);
    let year_2024 = 1_704_067_200_000_000;
    assert!(env.clock.now() > year_2024);
    assert_ne!(env.random.next_u64(), env.random.next_u64());
}

#[test]
fn what_is_made_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = testkit::temp_dir("modes");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let inner = dir.join("data/log");
    RealDisk.create_dir_all(&inner).unwrap();
    assert_eq!((mode(&dir.join("data")), mode(&inner)), (0o700, 0o700));
    let (path, _file) = file_at(&inner, "a");
    let _lock = RealDisk.lock(&inner.join("lock")).unwrap();
    assert_eq!((mode(&path), mode(&inner.join("lock"))), (0o600, 0o600));
    // The mode of an existing directory is its owner's decision.
    fs::set_permissions(&inner, fs::Permissions::from_mode(0o750)).unwrap();
    RealDisk.create_dir_all(&inner).unwrap();
    assert_eq!(mode(&inner), 0o750);
}

#[test]
fn an_open_directory_is_synced_as_one_by_its_path() {
    let dir = testkit::temp_dir("open-dir");
    let handle = RealDisk.open_dir(&dir).unwrap().expect("real directories can be held open");
    let (path, _file) = file_at(&dir, "a");
    handle.sync().unwrap();
    RealDisk.rename(&path, &dir.join("b")).unwrap();
    handle.sync().unwrap();
    assert!(RealDisk.open_dir(&path).is_err(), "a file, and gone");
}

/// Makes a durable file of that many bytes that is not in the page cache. `None` if the file system keeps all files in
/// memory, as `tmpfs` does.
fn cold_file(dir: &Path, len: usize) -> Option<PathBuf> {
    let (path, file) = file_at(dir, "cold");
    file.write_at(&[IoSlice::new(&vec![7; len])], 0).unwrap();
    file.sync().unwrap();
    file.drop_from_cache();
    (resident(&path) < len / 8).then_some(path)
}

/// Returns the number of a file's bytes that are in the page cache.
fn resident(path: &Path) -> usize {
    let file = fs::File::open(path).unwrap();
    let len = file.metadata().unwrap().len();
    let absent = raw::Mapping::new(&file).unwrap().absent();
    (len - absent.iter().map(|gap| gap.end - gap.start).sum::<u64>()) as usize
}

/// A backup of a database larger than memory evicted all pages that readers used.
#[test]
fn what_is_read_once_leaves_in_memory_what_was_there_and_no_more() {
    let dir = testkit::temp_dir("once");
    let (used_bytes, len) = (4 << 20, 32 << 20);
    let Some(path) = cold_file(&dir, len) else { return eprintln!("this file system is memory") };
    // A reader has the beginning in use, and the kernel has read ahead.
    let bytes = RealDisk.open(&path, Access::Read).unwrap().map().unwrap();
    let used: u64 = bytes[..used_bytes].iter().step_by(512).map(|byte| u64::from(*byte)).sum();
    assert_eq!(used, 7 * (used_bytes as u64 / 512));
    let before = resident(&path);
    assert!(before >= used_bytes && before < len / 2, "{before}");

    let once = RealDisk.open(&path, Access::ReadOnce).unwrap();
    let mut block = vec![0; 1_000_003];
    // The file is read in pieces that are not whole pages.
    for at in (0..len).step_by(block.len()) {
        let end = block.len().min(len - at);
        block.fill(0);
        once.read_at(&mut block[..end], at as u64).unwrap();
        assert!(block[..end].iter().all(|byte| *byte == 7));
    }
    assert_eq!(once.read_at(&mut block, len as u64 - 5).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    let after = resident(&path);
    assert!(after >= used_bytes && after <= before + (1 << 20), "{before} before, {after} after");
    // A file read in the ordinary way stays cached.
    let all = RealDisk.open(&path, Access::Read).unwrap();
    all.read_at(&mut vec![0; len], 0).unwrap();
    assert_eq!(resident(&path), len);
}

#[test]
fn a_reader_that_waits_for_the_disk_is_counted_also_once_it_is_gone() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("faults");
    let Some(path) = cold_file(&dir, 4 << 20) else { return eprintln!("this file system is memory") };
    // Returns the fault count before and after a thread touches the whole file.
    let touch = |reads: bool| {
        let path = path.clone();
        thread::spawn(move || {
            let file = RealDisk.open(&path, Access::Read).unwrap();
            let bytes = file.map().unwrap();
            let before = crate::read_major_faults();
            let reading = reads.then(crate::read_path);
            let sum: u64 = bytes.iter().step_by(4096).map(|byte| u64::from(*byte)).sum();
            drop(reading);
            assert_eq!(sum, 7 * 1024);
            (before, crate::read_major_faults())
        })
        .join()
        .unwrap()
    };
    let cool = || RealDisk.open(&path, Access::Read).unwrap().drop_from_cache();
    let round = |nth| {
        cool();
        let cold = touch(true);
        let after = crate::read_major_faults();
        assert!(after >= cold.1, "it ended, its faults did not: {} and {after}", cold.1);
        let warm = touch(true);
        cool();
        let unread = touch(false);
        eprintln!(
            "round {nth}, before and after: cold {cold:?}, warm {warm:?}, by who reads nothing {unread:?}"
        );
        // A cached page costs no fault, and threads that do not answer reads are not counted.
        cold.1 > cold.0 && warm.1 == warm.0 && unread.1 == unread.0
    };
    // The kernel may reclaim a page in between, or refuse to drop one.
    assert!((0..4).any(round), "no round of four went as it should");
}

/// Checks the kernel's *referenced* count: pages touched lately are referenced, and are evicted last.
#[test]
fn what_work_touches_in_passing_is_the_first_to_go() {
    let dir = testkit::temp_dir("passing");
    let len = 8 << 20;
    let Some(path) = cold_file(&dir, len) else { return eprintln!("this file system is memory") };
    let file = RealDisk.open(&path, Access::Read).unwrap();
    let touched = |passing: bool| {
        let bytes = file.map().unwrap();
        let scope = passing.then(crate::background_reads);
        assert_eq!(crate::in_background_reads(), passing);
        for at in (0..len).step_by(256 << 10) {
            let block = bytes.slice(at..at + (256 << 10));
            if passing {
                crate::note_background_read(block.clone());
            }
            assert!(block.iter().step_by(512).all(|byte| *byte == 7));
        }
        drop(scope);
        referenced(&bytes)
    };
    let (used, passed) = (touched(false), touched(true));
    assert!(used > len / 2, "{used}");
    assert!(passed < used / 4, "{passed} of {used}");
    assert_eq!(resident(&path), len, "it is there all the same");
}

/// Returns the number of bytes of a mapping that were touched lately.
fn referenced(bytes: &[u8]) -> usize {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{:x}-", bytes.as_ptr() as usize);
    let entry = smaps.lines().skip_while(|line| !line.starts_with(&start));
    let line = entry.skip(1).find_map(|line| line.strip_prefix("Referenced:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// Handles, mappings and other names keep the whole file when one of its names is removed.
#[test]
fn a_large_file_that_is_removed_stays_whole_for_those_who_have_it() {
    let dir = testkit::temp_dir("remove");
    let expected: Vec<u8> = (0..FREE_STEP_BYTES as u32).flat_map(|i| i.to_le_bytes()).collect();
    let make = |name: &str| {
        let (path, file) = file_at(&dir, name);
        file.write_at(&[IoSlice::new(&expected)], 0).unwrap();
        path
    };
    let path = make("handle");
    let file = RealDisk.open(&path, Access::Read).unwrap();
    RealDisk.remove(&path).unwrap();
    let mut bytes = vec![0; expected.len()];
    file.read_at(&mut bytes, 0).unwrap();
    assert!(bytes == expected && !path.exists());

    let path = make("mapping");
    let mapped = RealDisk.open(&path, Access::Read).unwrap().map().unwrap();
    RealDisk.remove(&path).unwrap();
    assert!(mapped == expected && !path.exists());

    let path = make("name");
    let other = dir.join("other");
    fs::hard_link(&path, &other).unwrap();
    RealDisk.remove(&path).unwrap();
    assert!(fs::read(&other).unwrap() == expected && !path.exists());

    // Removing a symbolic link leaves its target alone.
    let link = dir.join("link");
    std::os::unix::fs::symlink(&other, &link).unwrap();
    RealDisk.remove(&link).unwrap();
    assert!(fs::read(&other).unwrap() == expected && fs::symlink_metadata(&link).is_err());

    // A file that even its owner may not write can be removed too.
    fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
    RealDisk.remove(&other).unwrap();
    assert!(!other.exists());
    assert_eq!(RealDisk.remove(&other).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[cfg(target_os = "linux")]
#[test]
fn who_else_has_a_file_is_noticed() {
    let dir = testkit::temp_dir("alone");
    let path = dir.join("a");
    fs::write(&path, [1; 5_000]).unwrap();
    let open = || OpenOptions::new().write(true).open(&path).unwrap();
    let file = open();
    if !raw::has_sole_handle(&file) {
        // This system does not tell; files are then freed in one step, which is the only consequence.
        return;
    }
    let reader = fs::File::open(&path).unwrap();
    assert!(!raw::has_sole_handle(&file), "a reader");
    let mapping = raw::Mapping::new(&reader).unwrap();
    drop(reader);
    assert!(!raw::has_sole_handle(&file), "a mapping");
    drop(mapping);
    let writer = open();
    assert!(!raw::has_sole_handle(&file), "a writer");
    drop(writer);
    assert!(raw::has_sole_handle(&file));
}
