//! The life of a simulated process: calls, death, successors, locks, mappings, and the trace.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Makes calls of every kind.
fn workload(disk: &SimDisk) -> io::Result<()> {
    let dir = at("/data/log");
    disk.create_dir_all(dir)?;
    let _lock = disk.lock(at("/data/lock"))?;
    for n in 0..3 {
        let path = dir.join(format!("{n}"));
        let file = disk.create(&path)?;
        file.allocate(4096)?;
        file.write_at(&[IoSlice::new(&[n; 700])], 100)?;
        file.sync()?;
        file.set_len(3000)?;
        disk.rename(&path, &dir.join(format!("{n}.log")))?;
        disk.sync_dir(dir)?;
    }
    let file = disk.open(&dir.join("1.log"), Access::Read)?;
    file.read_at(&mut [0; 10], file.len()? - 10)?;
    file.map()?;
    disk.remove(&dir.join("0.log"))?;
    disk.list(dir)?;
    disk.free_bytes(dir)?;
    disk.exists(dir)?;
    Ok(())
}

#[test]
fn a_process_can_die_in_every_call_and_makes_none_afterwards() {
    let whole = SimDisk::new(1);
    workload(&whole).unwrap();
    assert!(whole.calls() > 30 && whole.syncs() == 6, "{whole:?}");
    for call in 1..=whole.calls() {
        let disk = SimDisk::new(1);
        disk.crash_at(call);
        let error = workload(&disk).unwrap_err();
        assert!(is_crash(&error), "call {call}: {error}");
        assert_eq!((disk.calls(), disk.is_dead()), (call, true));
        assert!(is_crash(&disk.exists(at("/")).unwrap_err()));
        assert_eq!(disk.calls(), call, "the dead make no calls");
        assert!(disk.last_calls().last().unwrap().ends_with(": crash"));

        let mut rng = Rng::new(call);
        let after = disk.crash(&mut rng);
        assert_eq!((after.calls(), after.is_dead()), (0, false));
        after.exists(at("/")).unwrap();
    }
}

#[test]
fn the_write_in_which_the_process_dies_is_kept_lost_or_torn() {
    let mut outcomes = Outcomes::default();
    after_crashes(
        |disk| {
            let file = durable_file(disk, "/a", &[b'o'; 1024]);
            disk.crash_at(disk.calls() + 1);
            assert!(is_crash(&file.write_at(&[IoSlice::new(&[b'n'; 1024])], 0).unwrap_err()));
        },
        |_, disk| {
            let bytes = disk.contents(at("/a")).unwrap();
            outcomes.add([bytes[0], bytes[512]]);
        },
    );
    outcomes.assert_exactly([*b"oo", *b"on", *b"no", *b"nn"]);
}

#[test]
fn a_sync_in_which_the_process_dies_promises_nothing() {
    let mut outcomes = Outcomes::default();
    after_crashes(
        |disk| {
            let file = durable_file(disk, "/a", b"o");
            write(&file, b"n", 0);
            disk.crash_at(disk.calls() + 1);
            file.sync().unwrap_err();
        },
        |_, disk| outcomes.add(disk.contents(at("/a")).unwrap()),
    );
    outcomes.assert_exactly([b"o".to_vec(), b"n".to_vec()]);
}

#[test]
fn a_killed_process_loses_nothing_but_its_successor_still_has_to_sync() {
    let mut outcomes = Outcomes::default();
    for seed in 0..CRASHES {
        let disk = SimDisk::new(seed);
        let file = durable_file(&disk, "/a", b"o");
        write(&file, b"n", 0);
        disk.create(at("/b")).unwrap();
        let next = disk.kill();
        assert!(is_crash(&file.sync().unwrap_err()), "the old process is dead");
        assert_eq!(next.contents(at("/a")).unwrap(), b"n");
        let last = next.crash(&mut Rng::new(seed));
        outcomes.add((last.contents(at("/a")).unwrap(), last.contents(at("/b")).is_some()));
    }
    let (o, n) = (b"o".to_vec(), b"n".to_vec());
    outcomes.assert_exactly([(o.clone(), false), (o, true), (n.clone(), false), (n, true)]);
}

#[test]
fn a_lock_has_one_holder_and_dies_with_its_process() {
    let disk = SimDisk::new(0);
    let held = disk.lock(at("/lock")).unwrap();
    assert_eq!(disk.lock(at("/lock")).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(held);
    let _held = disk.lock(at("/lock")).unwrap();
    let disk = disk.kill();
    let _held = disk.lock(at("/lock")).unwrap();
    let disk = disk.crash(&mut Rng::new(0));
    let _held = disk.lock(at("/lock")).unwrap();
}

#[test]
fn open_handles_and_mappings_outlive_the_name() {
    let disk = SimDisk::new(0);
    let file = durable_file(&disk, "/a", b"kept");
    let bytes = file.map().unwrap();
    assert_eq!(bytes.as_ptr() as usize % 64, 0);
    disk.remove(at("/a")).unwrap();
    durable_file(&disk, "/a", b"another");
    let mut buf = [0; 4];
    file.read_at(&mut buf, 0).unwrap();
    assert_eq!((&buf, &bytes[..]), (b"kept", &b"kept"[..]));
    assert!(disk.create(at("/empty")).unwrap().map().unwrap().is_empty());
}

#[test]
fn writing_to_a_file_that_is_mapped_breaks_a_promise_and_is_noticed() {
    let disk = SimDisk::new(0);
    let file = durable_file(&disk, "/a", b"lent");
    let part = file.map().unwrap().slice(1..2);
    let other = disk.open(at("/a"), Access::ReadWrite).unwrap();
    let panics = |run: &dyn Fn()| catch_unwind(AssertUnwindSafe(run)).is_err();
    assert!(panics(&|| write(&other, b"!", 0)));
    assert!(panics(&|| other.set_len(2).unwrap()));
    disk.rename(at("/a"), at("/b")).unwrap();
    drop(part);
    write(&other, b"!", 0);
}

#[test]
fn a_file_opened_for_reading_takes_no_write() {
    let disk = SimDisk::new(0);
    durable_file(&disk, "/a", b"1");
    let file = disk.open(at("/a"), Access::Read).unwrap();
    assert_eq!(file.write_at(&[IoSlice::new(b"2")], 0).unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(disk.contents(at("/a")).unwrap(), b"1");
}

#[test]
fn the_same_seed_leaves_the_same_trace_and_any_other_byte_another() {
    let run = |seed: u64, byte: u8| {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(seed);
        workload(&disk).unwrap();
        let file = durable_file(&disk, "/a", &[byte; 5000]);
        disk.fail_write(1);
        file.write_at(&[IoSlice::new(&[7; 5000])], 0).unwrap_err();
        disk.fail_sync(1);
        file.sync().unwrap_err();
        let after = disk.crash(&mut rng);
        after.open(at("/a"), Access::Read).unwrap().map().unwrap();
        after.trace_hash()
    };
    assert_eq!(run(1, 0), run(1, 0));
    assert_ne!(run(1, 0), run(1, 1), "written bytes are part of it");
    assert_ne!(run(1, 0), run(2, 0), "so are bytes that were read");
}

#[test]
fn the_last_calls_read_as_sentences() {
    let disk = SimDisk::new(0);
    durable_file(&disk, "/a", b"1");
    disk.remove(at("/b")).unwrap_err();
    let lines = disk.last_calls();
    assert_eq!(lines[0], "1 create /a: ok");
    assert!(lines[1].starts_with("2 write 0+1 ") && lines[1].ends_with(" /a: ok"), "{lines:?}");
    assert_eq!(&lines[2..], ["3 sync /a: ok", "4 sync_dir /: ok", "5 remove /b: NotFound"]);
}

#[test]
fn threads_may_share_a_disk() {
    let _limit = testkit::limit(60);
    let disk = SimDisk::new(0);
    let file = durable_file(&disk, "/a", &[0; 4096]);
    thread::scope(|scope| {
        for n in 0..4u8 {
            let (disk, file) = (&disk, &file);
            scope.spawn(move || {
                for _ in 0..50 {
                    write(file, &[n; 512], u64::from(n) * 1024);
                    file.sync().unwrap();
                    drop(disk.open(at("/a"), Access::Read).unwrap());
                }
            });
        }
    });
    let bytes = disk.crash(&mut Rng::new(0)).contents(at("/a")).unwrap();
    assert!((0..4).all(|n| bytes[n * 1024..][..512] == [n as u8; 512]));
}
