//! Tests of the log's interface, on a machine that does not fail.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::*;
use polynya_commitlog::{self as commitlog, Log, Options, frame};
use sim::SimEnv;
use testkit::Rng;
use types::{Kind, Lsn};
use vfs::Env;

#[test]
fn what_was_appended_is_replayed_in_order_over_many_files() {
    let _limit = testkit::limit(60);
    let machine = SimEnv::new(1);
    let mut rng = Rng::new(1);
    let (mut writer, recovery, frames) = open(&machine.env(), 1).unwrap();
    assert_eq!((recovery.last_lsn, recovery.frames, frames.len()), (Lsn(0), 0, 0));
    let mut written = Vec::new();
    for i in 0..60 {
        // Some frames are longer than a file.
        let bytes = if i % 20 == 10 { 50_000 } else { 3000 };
        written.push(append(&mut writer, &mut rng, bytes).unwrap());
    }
    let last = writer.syncer().sync().unwrap();
    assert_eq!(last.0, written.last().unwrap().last_lsn());
    let stats = writer.stats();
    assert_eq!((stats.frames, stats.appended_lsn, stats.durable_lsn), (60, last, last));
    assert!(stats.rotations > 10 && stats.syncs >= stats.rotations, "{stats:?}");
    drop(writer);
    let (writer, recovery, frames) = open(&machine.kill().env(), 1).unwrap();
    assert_eq!(frames, written);
    assert_eq!((recovery.last_lsn, damage_text(recovery.damage)), (last, None));
    assert_eq!(writer.next_lsn(), last.next());
}

#[test]
fn replay_begins_with_the_frame_that_holds_the_wanted_lsn() {
    let mut machine = SimEnv::new(1);
    let mut rng = Rng::new(2);
    let (mut writer, ..) = open(&machine.env(), 1).unwrap();
    let written: Vec<WrittenFrame> = (0..40).map(|_| append(&mut writer, &mut rng, 2000).unwrap()).collect();
    writer.close().unwrap();
    let last = written.last().unwrap().last_lsn();
    for from in 1..=last + 1 {
        machine = machine.kill();
        let mut frames = Vec::new();
        let report = commitlog::verify(&machine.env(), dir(), Lsn(from), Lsn(0), &mut |frame| {
            frames.push(WrittenFrame::from(frame));
            Ok(())
        });
        let wanted: Vec<_> = written.iter().filter(|frame| frame.last_lsn() >= from).cloned().collect();
        assert_eq!(frames, wanted, "from {from}");
        assert_eq!(damage_text(report.unwrap().damage), None);
    }
    // The manifest has a commit that the log does not.
    let (_, recovery, _) = open(&machine.env(), last + 2).unwrap();
    assert_eq!(recovery.damage.unwrap().kind(), Kind::Damaged);
}

#[test]
fn trimmed_files_are_used_again_and_what_was_not_trimmed_stays() {
    let machine = SimEnv::new(1);
    let env = machine.env();
    let mut rng = Rng::new(3);
    let (mut writer, ..) = open(&env, 1).unwrap();
    let preallocator = writer.preallocator();
    preallocator.prepare().unwrap();
    let mut written = Vec::new();
    let mut from = 1;
    for i in 0..200 {
        written.push(append(&mut writer, &mut rng, 3000).unwrap());
        writer.syncer().sync().unwrap();
        if i % 10 == 9 {
            from = written[written.len() - 4].first_lsn.0;
            preallocator.trim(Lsn(from)).unwrap();
            // One or two files with the frames, and two or three that will be needed soon.
            let files = names(&env, ".log").len() + names(&env, ".spare").len();
            assert!(files <= 6, "{files} files for four frames");
        }
    }
    drop(writer);
    let (_, recovery, frames) = open(&machine.kill().env(), from).unwrap();
    let wanted: Vec<_> = written.into_iter().filter(|frame| frame.last_lsn() >= from).collect();
    assert_eq!(frames, wanted);
    assert_eq!(damage_text(recovery.damage), None);
}

/// A regression: released files were removed down to a few and made anew at once, with zeros. A log that was written fast cost
/// the disk twice the writes of its frames.
#[test]
fn a_log_that_is_written_fast_makes_no_files_anew_and_one_that_is_not_keeps_few() {
    let machine = SimEnv::new(1);
    let env = machine.env();
    let mut rng = Rng::new(3);
    let (mut writer, ..) = open(&env, 1).unwrap();
    let preallocator = writer.preallocator();
    let mut rounds = |frames: usize| {
        let mut written = Vec::new();
        for _ in 0..frames {
            written.push(append(&mut writer, &mut rng, 12_000).unwrap().first_lsn);
            preallocator.prepare().unwrap();
        }
        // Trims in two steps, as if one table after the other released the log.
        let durable = writer.syncer().sync().unwrap();
        preallocator.trim(written[frames / 2]).unwrap();
        preallocator.trim(durable.next()).unwrap();
        let spares = names(&env, ".spare");
        (spares.len(), spares.into_iter().max().unwrap())
    };
    // Each frame fills a file, six at a time: once there are six spares, they are reused in turn.
    rounds(7);
    assert_eq!(rounds(6).0, 6);
    let made = |number: &str| u64::from_str_radix(number.split('.').next().unwrap(), 16).unwrap();
    let before = made(&rounds(6).1);
    assert_eq!(made(&rounds(6).1), before + 6, "each is named anew once, and no other is made");
    // Not all of many more files are kept; while writing is slow, one is removed after the other.
    assert_eq!(rounds(30).0, 10);
    let spares: Vec<usize> = (0..11).map(|_| rounds(1).0).collect();
    assert_eq!(spares, [10, 9, 8, 7, 6, 5, 4, 3, 2, 2, 2]);
}

/// The kernel need not read a block that is written as a whole: the pages of a new file are not in memory.
#[test]
fn the_last_block_of_a_frame_is_written_to_its_end_and_no_byte_behind_it() {
    const BLOCK: usize = 4096;
    let machine = SimEnv::new(1);
    let env = machine.env();
    let mut rng = Rng::new(5);
    let (mut writer, ..) = open(&env, 1).unwrap();
    let preallocator = writer.preallocator();
    let contents = |name: &String| {
        let file = env.disk.open(&path(name), vfs::Access::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let (mut again, mut longer) = (0, 0);
    for i in 0..60 {
        preallocator.prepare().unwrap();
        let spares: Vec<_> = names(&env, ".spare").iter().map(contents).collect();
        let (files, before) = (names(&env, ".log"), writer.stats().bytes_written);
        append(&mut writer, &mut rng, if i % 20 == 10 { 50_000 } else { 3000 }).unwrap();
        if let Some(new) = names(&env, ".log").iter().find(|name| !files.contains(name)) {
            let bytes = contents(new);
            // The header fills a block, and the frame begins right behind it.
            let end = BLOCK + (writer.stats().bytes_written - before) as usize;
            let block_end = end.next_multiple_of(BLOCK);
            let rest = &bytes[end..block_end.min(bytes.len())];
            assert!(rest.iter().all(|byte| *byte == 0), "{new}: zeros behind the frame");
            longer += usize::from(bytes.len() < block_end);
            let behind = bytes.get(block_end..).unwrap_or_default();
            let was = spares.iter().any(|spare| spare.get(block_end..) == Some(behind));
            assert!(behind.is_empty() || was, "{new}: nothing else is touched");
            again += usize::from(behind.iter().any(|byte| *byte != 0));
        }
        let durable = writer.syncer().sync().unwrap();
        preallocator.trim(durable.next()).unwrap();
    }
    assert!(again > 5 && longer > 0, "{again} that held something, {longer} that end within a block");
}

#[test]
fn nothing_that_is_not_durable_is_trimmed_nor_the_file_in_use() {
    let machine = SimEnv::new(1);
    let env = machine.env();
    let (mut writer, ..) = open(&env, 1).unwrap();
    for _ in 0..20 {
        append(&mut writer, &mut Rng::new(1), 3000).unwrap();
    }
    let before = names(&env, ".log");
    writer.trim(writer.next_lsn()).unwrap();
    assert_eq!(names(&env, ".log"), before);
    writer.syncer().sync().unwrap();
    writer.trim(writer.next_lsn()).unwrap();
    assert_eq!(names(&env, ".log").len(), 1);
}

#[test]
fn the_file_before_one_that_is_not_yet_durable_is_not_trimmed() {
    // A regression found by a simulated crash. All commits of the first file were durable and in the manifest, so it was recycled
    // while the header and the name of the second file still waited for their first sync. The power failure lost them, and
    // nothing recorded where the log continued.
    testkit::for_each_seed(50, |seed| {
        let machine = SimEnv::new(seed);
        let mut rng = Rng::new(seed);
        let (mut writer, ..) = open(&machine.env(), 1).unwrap();
        for _ in 0..3 {
            append(&mut writer, &mut rng, 3000).unwrap();
        }
        let durable = writer.syncer().sync().unwrap();
        append(&mut writer, &mut rng, 3000).unwrap();
        assert_eq!(writer.stats().files, 2);
        writer.trim(durable.next()).unwrap();
        let (_, recovery, _) = open(&machine.crash(&mut rng).env(), durable.0 + 1).unwrap();
        assert_eq!(damage_text(recovery.damage), None);
        assert!(recovery.last_lsn >= durable);
    });
}

#[test]
fn opening_and_closing_without_writing_leaves_no_more_files() {
    let mut machine = SimEnv::new(1);
    let (mut writer, ..) = open(&machine.env(), 1).unwrap();
    let written = append(&mut writer, &mut Rng::new(1), 100).unwrap();
    writer.close().unwrap();
    for i in 0..10 {
        machine = machine.kill();
        let (writer, recovery, frames) = open(&machine.env(), 1).unwrap();
        assert_eq!(frames, std::slice::from_ref(&written));
        assert_eq!(recovery.torn_bytes, 0);
        assert!(names(&machine.env(), "").len() <= 4, "{:?}", names(&machine.env(), ""));
        if i % 2 == 0 {
            writer.close().unwrap();
        }
    }
}

#[test]
fn a_full_disk_refuses_commits_until_there_is_room_and_loses_none() {
    let machine = SimEnv::new(1);
    let env = machine.env();
    let mut rng = Rng::new(4);
    let (mut writer, ..) = open_with(&env, Options { spare_files: 0, ..small_files() }, 1).unwrap();
    machine.disk.set_free_bytes(Some(4096));
    let mut written = Vec::new();
    let error = loop {
        match append(&mut writer, &mut rng, 3000) {
            Ok(frame) => written.push(frame),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), Kind::DiskFull);
    assert_eq!(written.len(), 3, "the file in use is filled first");
    assert_eq!(append(&mut writer, &mut rng, 3000).unwrap_err().kind(), Kind::DiskFull);
    assert_eq!(writer.preallocator().prepare().map_err(|e| e.kind()), Ok(()));
    assert_eq!(writer.syncer().latched().map(|e| e.kind()), None);
    // A smaller frame still fits, and after a restart everything is there even though no new file can be made.
    written.push(append(&mut writer, &mut rng, 100).unwrap());
    drop(writer);
    let machine = machine.kill();
    let (mut writer, recovery, frames) = open(&machine.env(), 1).unwrap();
    assert_eq!((&frames, damage_text(recovery.damage)), (&written, None));
    assert_eq!(append(&mut writer, &mut rng, 100).unwrap_err().kind(), Kind::DiskFull);
    assert_eq!(writer.preallocator().prepare().unwrap_err().kind(), Kind::DiskFull);
    machine.disk.set_free_bytes(None);
    written.push(append(&mut writer, &mut rng, 3000).unwrap());
    writer.syncer().sync().unwrap();
    let machine = machine.crash(&mut rng);
    assert_eq!(open(&machine.env(), 1).unwrap().2, written);
}

#[test]
fn a_failed_write_or_sync_latches_the_log() {
    for fail in [sim::SimDisk::fail_write, sim::SimDisk::fail_sync] {
        let machine = SimEnv::new(1);
        let mut rng = Rng::new(5);
        let (mut writer, ..) = open(&machine.env(), 1).unwrap();
        let syncer = writer.syncer();
        let mut written = vec![append(&mut writer, &mut rng, 1000).unwrap()];
        syncer.sync().unwrap();
        fail(&machine.disk, 1);
        let appended = append(&mut writer, &mut rng, 1000);
        if let Ok(frame) = &appended {
            assert_eq!(syncer.sync().unwrap_err().kind(), Kind::Latched);
            written.push(frame.clone());
        }
        assert_eq!(append(&mut writer, &mut rng, 1000).unwrap_err().kind(), Kind::Latched);
        assert_eq!(syncer.sync().unwrap_err().kind(), Kind::Latched);
        assert_eq!(syncer.latched().unwrap().kind(), Kind::Latched);
        assert_eq!(syncer.durable_lsn().0, written[0].last_lsn());
        assert_eq!(writer.close().unwrap_err().kind(), Kind::Latched);
        // Frames of the first sync must be there. Those of the failed call may be, and if they are, they stay.
        let machine = machine.kill();
        let (_, recovery, frames) = open(&machine.env(), 1).unwrap();
        assert_eq!(damage_text(recovery.damage), None);
        assert!(!frames.is_empty() && written.starts_with(&frames));
        let again = open(&machine.crash(&mut rng).env(), 1).unwrap().2;
        assert_eq!(again, frames);
    }
}

#[test]
fn a_frame_with_the_wrong_lsn_or_without_commits_is_refused_without_effect() {
    let machine = SimEnv::new(1);
    let (mut writer, ..) = open(&machine.env(), 1).unwrap();
    let mut late = frame::Builder::new(Lsn(2), 0);
    late.commit();
    assert_eq!(writer.append(late).unwrap_err().kind(), Kind::Internal);
    assert_eq!(writer.append(frame::Builder::new(Lsn(1), 0)).unwrap_err().kind(), Kind::Internal);
    let mut empty_commit = frame::Builder::new(Lsn(1), 0);
    empty_commit.commit();
    assert_eq!(writer.append(empty_commit).unwrap().last_lsn, Lsn(1));
}

#[test]
fn an_error_of_the_visitor_ends_the_opening() {
    let machine = SimEnv::new(1);
    let (mut writer, ..) = open(&machine.env(), 1).unwrap();
    append(&mut writer, &mut Rng::new(1), 10).unwrap();
    writer.close().unwrap();
    let stop = |_| Err(types::Error::new(Kind::Closed, "enough"));
    let error = Log::open(&machine.env(), dir(), small_files(), Lsn(1), &mut { stop }).unwrap_err();
    assert_eq!(error.kind(), Kind::Closed);
}

#[test]
fn frames_are_appended_while_another_thread_syncs() {
    let _limit = testkit::limit(60);
    let scratch = testkit::temp_dir("commitlog");
    let env = Env::real();
    let options = Options {
        file_bytes: 64 << 10,
        spare_files: 2,
        sync_delay: Some(Duration::from_millis(1)),
        ..Options::default()
    };
    let log = scratch.path().join("log");
    let (mut writer, _) = Log::open(&env, &log, options.clone(), Lsn(1), &mut |_| Ok(())).unwrap();
    let mut rng = Rng::new(6);
    let mut written = Vec::new();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let syncer = writer.syncer();
            let done = &done;
            scope.spawn(move || {
                let mut last = Lsn(0);
                while !done.load(Ordering::Acquire) {
                    let before = syncer.stats().appended_lsn;
                    let durable = syncer.sync().unwrap();
                    assert!(durable >= before && durable >= last);
                    last = durable;
                }
            });
        }
        let preallocator = writer.preallocator();
        let done_too = &done;
        scope.spawn(move || {
            while !done_too.load(Ordering::Acquire) {
                preallocator.prepare().unwrap();
                std::thread::yield_now();
            }
        });
        for _ in 0..400 {
            written.push(append(&mut writer, &mut rng, 2000).unwrap());
        }
        done.store(true, Ordering::Release);
    });
    let stats = writer.stats();
    assert!(stats.rotations > 5, "{stats:?}");
    assert!(stats.sync_latency.quantile(0.5) >= Duration::from_millis(1));
    writer.close().unwrap();
    let mut frames = Vec::new();
    let (_, recovery) = Log::open(&env, &log, options, Lsn(1), &mut |frame| {
        frames.push(WrittenFrame::from(frame));
        Ok(())
    })
    .unwrap();
    assert_eq!(frames, written);
    assert_eq!(damage_text(recovery.damage), None);
}
