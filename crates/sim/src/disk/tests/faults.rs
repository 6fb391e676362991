//! Machines that report errors: failing calls, a full disk, damage.

use super::*;

fn is_io_error(error: &io::Error) -> bool {
    error.raw_os_error() == Some(5)
}

#[test]
fn only_the_chosen_read_fails() {
    let disk = SimDisk::new(0);
    let file = durable_file(&disk, "/a", b"12");
    disk.fail_read(2);
    let mut buf = [0; 2];
    file.read_at(&mut buf, 0).unwrap();
    assert!(is_io_error(&file.map().unwrap_err()));
    file.read_at(&mut buf, 0).unwrap();
    assert_eq!(&buf, b"12");
    assert_eq!(file.read_at(&mut buf, 1).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn a_failed_write_may_have_done_any_part_of_its_work() {
    let mut outcomes = Outcomes::default();
    for seed in 0..CRASHES {
        let disk = SimDisk::new(seed);
        let file = durable_file(&disk, "/a", b"....");
        disk.fail_write(1);
        let error = file.write_at(&[IoSlice::new(b"ab"), IoSlice::new(b"c")], 1).unwrap_err();
        assert!(is_io_error(&error) && !is_crash(&error));
        outcomes.add(disk.contents(at("/a")).unwrap());
    }
    outcomes.assert_exactly([b"....", b".a..", b".ab.", b".abc"].map(|bytes| bytes.to_vec()));
}

/// After an fsync error Linux counts the pages as clean: a second fsync succeeds and writes nothing. Programs that
/// took that for success lost data.
#[test]
fn after_a_failed_sync_no_later_one_makes_the_lost_bytes_durable() {
    let mut outcomes = Outcomes::default();
    for seed in 0..CRASHES {
        let disk = SimDisk::new(seed);
        let file = durable_file(&disk, "/a", b"old");
        write(&file, b"new", 0);
        disk.fail_sync(1);
        assert!(is_io_error(&file.sync().unwrap_err()));
        file.sync().expect("the machine claims that all is well");
        let read = disk.contents(at("/a")).unwrap();
        let found = disk.crash(&mut Rng::new(seed)).contents(at("/a")).unwrap();
        outcomes.add((String::from_utf8(read).unwrap(), String::from_utf8(found).unwrap()));
    }
    let outcome = |read: &str, found: &str| (read.to_owned(), found.to_owned());
    outcomes.assert_exactly([outcome("new", "new"), outcome("new", "old"), outcome("old", "old")]);
}

#[test]
fn bytes_written_again_after_a_failed_sync_can_become_durable() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let file = durable_file(&disk, "/a", b"old");
        write(&file, &[b'n'; 3000], 0);
        disk.fail_sync(1);
        file.sync().unwrap_err();
        write(&file, &[b'm'; 3000], 0);
        file.sync().unwrap();
        assert_eq!(disk.crash(&mut Rng::new(seed)).contents(at("/a")).unwrap(), [b'm'; 3000]);
    }
}

#[test]
fn after_a_failed_directory_sync_no_later_one_brings_a_lost_name_back() {
    let mut outcomes = Outcomes::default();
    for seed in 0..CRASHES {
        let disk = SimDisk::new(seed);
        disk.create(at("/a")).unwrap();
        disk.fail_sync(1);
        assert!(is_io_error(&disk.sync_dir(at("/")).unwrap_err()));
        assert!(disk.exists(at("/a")).unwrap());
        disk.sync_dir(at("/")).unwrap();
        outcomes.add(disk.crash(&mut Rng::new(seed)).contents(at("/a")).is_some());
    }
    outcomes.assert_exactly([false, true]);
}

#[test]
fn a_full_disk_takes_what_fits_and_overwrites_what_has_space() {
    let disk = SimDisk::new(0);
    let file = durable_file(&disk, "/a", &[b'x'; 4096]);
    disk.set_free_bytes(Some(8192));
    assert_eq!(disk.free_bytes(at("/")).unwrap(), 8192);
    let error = file.write_at(&[IoSlice::new(&[b'y'; 20_000])], 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!(disk.contents(at("/a")).unwrap(), [b'y'; 3 * 4096]);
    write(&file, &[b'z'; 4096], 4096);
    assert_eq!(disk.free_bytes(at("/")).unwrap(), 0);
    disk.create(at("/b")).unwrap().set_len(1 << 20).expect("a hole takes no space");
    disk.set_free_bytes(None);
    write(&file, &[b'y'; 20_000], 0);
}

#[test]
fn allocation_on_a_full_disk_leaves_zeros_and_a_later_one_succeeds() {
    let mut rng = Rng::new(1);
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let file = durable_file(&disk, "/a", b"head");
        disk.set_free_bytes(Some(rng.below(60_000)));
        assert_eq!(file.allocate(65_536).unwrap_err().kind(), ErrorKind::StorageFull);
        let bytes = disk.contents(at("/a")).unwrap();
        assert!(
            bytes.len() < 65_536 && bytes.starts_with(b"head") && bytes[4..].iter().all(|byte| *byte == 0)
        );
        disk.set_free_bytes(Some(65_536));
        file.allocate(65_536).unwrap();
        disk.set_free_bytes(Some(0));
        write(&file, &[1; 65_536], 0);
    }
}

#[test]
fn a_removed_file_gives_its_space_back_when_its_last_handle_goes() {
    let disk = SimDisk::new(0);
    disk.set_free_bytes(Some(8192));
    let file = durable_file(&disk, "/a", &[1; 8192]);
    disk.remove(at("/a")).unwrap();
    disk.sync_dir(at("/")).unwrap();
    assert_eq!(disk.free_bytes(at("/")).unwrap(), 0);
    let mut buf = [0; 8192];
    file.read_at(&mut buf, 0).expect("open handles keep their bytes");
    drop(file);
    assert_eq!(disk.free_bytes(at("/")).unwrap(), 8192);
    let file = durable_file(&disk, "/b", &[1; 8192]);
    file.set_len(1).unwrap();
    assert_eq!(disk.free_bytes(at("/")).unwrap(), 4096);
}

#[test]
fn the_limit_of_space_holds_after_a_crash() {
    let disk = SimDisk::new(0);
    disk.set_free_bytes(Some(4096));
    durable_file(&disk, "/a", &[1; 4096]);
    let disk = disk.crash(&mut Rng::new(0));
    assert_eq!(disk.free_bytes(at("/")).unwrap(), 0);
}

#[test]
fn a_flipped_bit_is_read_and_stays_after_a_crash() {
    let disk = SimDisk::new(0);
    let file = durable_file(&disk, "/a", &[0; 1000]);
    let before = file.map().unwrap();
    disk.flip_bit(at("/a"), 803);
    let expected: Vec<u8> = (0..1000).map(|i| if i == 803 { 1 << 3 } else { 0 }).collect();
    assert_eq!(file.map().unwrap(), expected);
    assert_eq!(before, [0; 1000][..]);
    assert_eq!(disk.crash(&mut Rng::new(0)).contents(at("/a")).unwrap(), expected);
}
