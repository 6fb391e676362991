//! A test in a process of its own, because it uses up the process's file descriptors.

mod common;

use std::fs::File;

use common::{random_frame, small_files};
use polynya_commitlog::Log;
use testkit::Rng;
use types::Lsn;
use vfs::Env;

/// A regression: syncing the log's directory opened a file descriptor. With none left the sync failed, which latched the log.
#[test]
fn a_log_without_a_file_to_open_goes_on_in_its_spare_and_is_synced() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("no-files");
    let env = Env::real();
    let path = dir.path().join("log");
    let (mut writer, _) = Log::open(&env, &path, small_files(), Lsn(1), &mut |_| Ok(())).unwrap();
    writer.preallocator().prepare().unwrap();
    let mut rng = Rng::new(7);
    let all: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(!all.is_empty() && File::open("/dev/null").is_err());
    let mut append = |writer: &mut polynya_commitlog::Writer| {
        let frame = random_frame(&mut rng, writer.next_lsn(), 2_000).0;
        writer.append(frame).and_then(|appended| writer.syncer().sync().map(|_| appended.rotated))
    };
    // One spare is ready. For the next file no descriptor is left, which is not a failure of the disk.
    let mut rotated = 0;
    let refused = loop {
        match append(&mut writer) {
            Ok(new_file) => rotated += u32::from(new_file),
            Err(error) => break error,
        }
    };
    assert_eq!((rotated, refused.kind()), (1, types::Kind::Io), "{refused}");
    let durable = writer.syncer().durable_lsn();
    drop(all);
    append(&mut writer).unwrap();
    assert!(writer.syncer().durable_lsn() > durable && writer.syncer().latched().is_none());
}
