//! Damaged bytes: recovery distinguishes damage from a torn tail, and replays neither.

mod common;

use common::*;
use polynya_commitlog::verify;
use sim::SimEnv;
use testkit::Rng;
use types::{Error, Kind, Lsn};

const FILE_HEADER: u64 = 4096;
/// Bytes of text in a frame. All frames of a test fit into one file, so that sweeps over its bytes stay short.
const FRAME: usize = 150;

struct Sample {
    machine: SimEnv,
    name: String,
    frames: Vec<WrittenFrame>,
    /// Offset of each frame, and the end of the last.
    offsets: Vec<u64>,
}

/// Makes a log of one file whose frames were synced one by one; the process was killed before it could close the log.
fn sample(frames: usize) -> Sample {
    let machine = SimEnv::new(9);
    let mut rng = Rng::new(9);
    let (mut writer, ..) = open(&machine.env(), 1).unwrap();
    let mut offsets = vec![FILE_HEADER];
    let mut written = Vec::new();
    for _ in 0..frames {
        written.push(append(&mut writer, &mut rng, FRAME).unwrap());
        writer.syncer().sync().unwrap();
        offsets.push(FILE_HEADER + writer.stats().bytes_written);
    }
    let name = names(&machine.env(), ".log").pop().unwrap();
    Sample { machine: machine.kill(), name, frames: written, offsets }
}

/// Returns the recovered frames, the damage and the torn bytes after `change` was applied to a copy of the sample's machine.
fn recovered(sample: &Sample, change: impl FnOnce(&SimEnv)) -> (Vec<WrittenFrame>, Option<Error>, u64) {
    // The change is applied to a copy: the sample's own disk stays the original.
    let machine = copy(sample);
    change(&machine);
    let mut frames = Vec::new();
    let report = verify(&machine.env(), dir(), Lsn(1), Lsn(0), &mut |frame| {
        frames.push(WrittenFrame::from(frame));
        Ok(())
    });
    let report = report.unwrap();
    (frames, report.damage, report.torn_bytes)
}

/// Returns a machine with only the sample's log file.
fn copy(sample: &Sample) -> SimEnv {
    let bytes = sample.machine.disk.contents(&path(&sample.name)).unwrap();
    with_files(&[(&sample.name, &bytes)])
}

fn with_files(files: &[(&str, &[u8])]) -> SimEnv {
    let machine = SimEnv::new(1);
    let disk = machine.env().disk;
    disk.create_dir_all(dir()).unwrap();
    for (name, bytes) in files {
        let file = disk.create(&path(name)).unwrap();
        file.write_at(&[std::io::IoSlice::new(bytes)], 0).unwrap();
    }
    machine
}

fn overwrite(machine: &SimEnv, name: &str, offset: u64, bytes: &[u8]) {
    let file = machine.env().disk.open(&path(name), vfs::Access::ReadWrite).unwrap();
    file.write_at(&[std::io::IoSlice::new(bytes)], offset).unwrap();
}

#[test]
fn a_cut_at_every_byte_of_the_last_frame_is_a_torn_tail() {
    let sample = sample(3);
    let (start, end) = (sample.offsets[2], sample.offsets[3]);
    for cut in start..end {
        let zeros = vec![0; (end - cut) as usize];
        let (frames, damage, torn) =
            recovered(&sample, |machine| overwrite(machine, &sample.name, cut, &zeros));
        assert_eq!(damage_text(damage), None, "cut at {cut}");
        // The last bytes of a frame may be padding, which is zero already.
        if frames.len() == 3 {
            assert_eq!(frames, sample.frames);
            assert!(end - cut < 8);
        } else {
            assert_eq!(frames, sample.frames[..2], "cut at {cut}");
            assert!(torn > 0 || cut < start + 64, "cut at {cut}: nothing was seen as torn");
        }
        let short = recovered(&sample, |machine| {
            let file = machine.env().disk.open(&path(&sample.name), vfs::Access::ReadWrite).unwrap();
            file.set_len(cut).unwrap();
        });
        assert_eq!(short.0, sample.frames[..2], "file ends at {cut}");
        assert_eq!(damage_text(short.1), None, "file ends at {cut}");
    }
}

#[test]
fn a_flipped_bit_in_any_byte_is_detected_and_called_by_its_name() {
    let sample = sample(4);
    let last = sample.frames.len() - 1;
    // Every byte of the frames, of the used part of the header, and some of its rest.
    let bytes = (0..64).chain((64..FILE_HEADER).step_by(199)).chain(FILE_HEADER..sample.offsets[last + 1]);
    for offset in bytes {
        let (frames, damage, _) =
            recovered(&sample, |machine| machine.disk.flip_bit(&path(&sample.name), offset));
        let frame = sample.offsets.iter().rposition(|start| *start <= offset);
        match frame {
            // A file without its header has no valid frames, but its frame headers still show that the log had commits.
            None => {
                assert!(frames.is_empty());
                assert_eq!(damage.unwrap().kind(), Kind::Damaged, "byte {offset}");
            }
            // There is no evidence that the last frame was ever durable.
            Some(frame) if frame == last => {
                assert_eq!(frames, sample.frames[..last], "byte {offset}");
                assert_eq!(damage_text(damage), None, "byte {offset}");
            }
            Some(frame) => {
                assert_eq!(frames, sample.frames[..frame], "byte {offset}");
                let error =
                    damage.unwrap_or_else(|| panic!("byte {offset} of frame {frame} was cut as torn"));
                assert_eq!(error.kind(), Kind::Damaged);
                let text = error.to_string();
                assert!(text.contains(&sample.name), "{text}");
                assert!(text.contains(&format!("offset {}", sample.offsets[frame])), "{text}");
            }
        }
    }
}

#[test]
fn after_a_clean_close_damage_is_told_even_in_the_last_frame() {
    let machine = SimEnv::new(3);
    let (mut writer, ..) = open(&machine.env(), 1).unwrap();
    let written = append(&mut writer, &mut Rng::new(1), FRAME).unwrap();
    let end = FILE_HEADER + writer.stats().bytes_written;
    writer.close().unwrap();
    let name = names(&machine.env(), ".log").pop().unwrap();
    let sample = Sample { machine, name, frames: vec![written], offsets: vec![FILE_HEADER, end] };
    for offset in FILE_HEADER..end {
        let (frames, damage, _) =
            recovered(&sample, |machine| machine.disk.flip_bit(&path(&sample.name), offset));
        assert!(frames.is_empty());
        assert_eq!(damage.unwrap().kind(), Kind::Damaged, "byte {offset}");
    }
}

#[test]
fn a_damaged_log_is_replayed_up_to_the_damage_and_changed_by_nothing() {
    let sample = sample(4);
    let machine = copy(&sample);
    machine.disk.flip_bit(&path(&sample.name), sample.offsets[1] + 70);
    let before = machine.disk.contents(&path(&sample.name));
    let (mut writer, recovery, frames) = open(&machine.env(), 1).unwrap();
    assert_eq!(frames, sample.frames[..1]);
    let damage = recovery.damage.unwrap();
    assert_eq!(damage.kind(), Kind::Damaged);
    let refused = append(&mut writer, &mut Rng::new(1), 10).unwrap_err();
    assert_eq!(refused.to_string(), damage.to_string());
    assert_eq!(writer.syncer().sync().unwrap_err().kind(), Kind::Damaged);
    assert_eq!(writer.trim(Lsn(100)).unwrap_err().kind(), Kind::Damaged);
    assert_eq!(writer.preallocator().prepare().unwrap_err().kind(), Kind::Damaged);
    assert_eq!(writer.close().unwrap_err().kind(), Kind::Damaged);
    assert_eq!(names(&machine.env(), ""), [sample.name.as_str()]);
    assert_eq!(machine.disk.contents(&path(&sample.name)), before);
}

#[test]
fn damage_below_what_the_manifest_has_is_told_too() {
    let sample = sample(4);
    let machine = copy(&sample);
    // Damages the last frame: only the manifest knows that it was durable.
    machine.disk.flip_bit(&path(&sample.name), sample.offsets[3] + 70);
    let from = sample.frames[3].last_lsn() + 1;
    assert_eq!(open(&machine.env(), from).unwrap().1.damage.unwrap().kind(), Kind::Damaged);
}

#[test]
fn a_missing_file_is_damage_unless_the_manifest_has_all_of_it() {
    let machine = SimEnv::new(4);
    let mut rng = Rng::new(4);
    let (mut writer, ..) = open(&machine.env(), 1).unwrap();
    let written: Vec<WrittenFrame> = (0..20).map(|_| append(&mut writer, &mut rng, 3000).unwrap()).collect();
    writer.close().unwrap();
    let files = names(&machine.env(), ".log");
    let mut first_of = Vec::new();
    let report = verify(&machine.env(), dir(), Lsn(1), Lsn(0), &mut |_| Ok(())).unwrap();
    for file in &report.files {
        first_of.push(file.last_lsn.0 + 1);
    }
    for (i, name) in files.iter().enumerate() {
        let machine = machine.kill();
        machine.env().disk.remove(&path(name)).unwrap();
        let whole = verify(&machine.env(), dir(), Lsn(1), Lsn(0), &mut |_| Ok(())).unwrap();
        assert!(whole.damage.is_some(), "{name}");
        let mut frames = Vec::new();
        let from = first_of[i];
        let rest = verify(&machine.env(), dir(), Lsn(from), Lsn(0), &mut |frame| {
            frames.push(WrittenFrame::from(frame));
            Ok(())
        });
        let rest = rest.unwrap();
        if i + 1 < files.len() {
            assert_eq!(damage_text(rest.damage), None, "{name}");
            assert_eq!(frames, written.iter().filter(|f| f.last_lsn() >= from).cloned().collect::<Vec<_>>());
        } else {
            assert_eq!(rest.damage.unwrap().kind(), Kind::Damaged);
        }
    }
}

#[test]
fn a_lost_directory_is_damage_if_the_manifest_knows_of_commits() {
    let machine = SimEnv::new(5);
    let (_, recovery, _) = open(&machine.env(), 7).unwrap();
    assert_eq!(recovery.damage.unwrap().kind(), Kind::Damaged);
    assert_eq!(recovery.last_lsn, Lsn(6));
}

#[test]
fn frames_that_a_user_stored_as_text_are_not_taken_for_frames() {
    // A torn commit has a text that contains a whole valid log: the inner frames must not count as evidence of damage.
    let inner = sample(4);
    let log = inner.machine.disk.contents(&path(&inner.name)).unwrap();
    let machine = SimEnv::new(6);
    let (mut writer, ..) = open(&machine.env(), 1).unwrap();
    let mut builder = polynya_commitlog::frame::Builder::new(Lsn(1), 0);
    builder.commit();
    builder.cursor(polynya_commitlog::record::Cursor { lsn_offset: 0, name: "x".repeat(8), value: log });
    writer.append(builder).unwrap();
    drop(writer);
    let machine = machine.kill();
    let name = names(&machine.env(), ".log").pop().unwrap();
    machine.disk.flip_bit(&path(&name), FILE_HEADER + 80);
    let (writer, recovery, frames) = open(&machine.env(), 1).unwrap();
    assert_eq!((frames.len(), damage_text(recovery.damage)), (0, None));
    assert_eq!(writer.next_lsn(), Lsn(1));
}

#[test]
fn a_log_of_a_newer_format_is_refused() {
    let sample = sample(1);
    let mut bytes = sample.machine.disk.contents(&path(&sample.name)).unwrap();
    bytes[8] = 2;
    bytes[12..16].fill(0);
    let mut covered = bytes[..12].to_vec();
    covered.extend_from_slice(&bytes[16..FILE_HEADER as usize]);
    let crc = crc32c::crc32c(&covered);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    let machine = with_files(&[(&sample.name, &bytes)]);
    assert_eq!(open(&machine.env(), 1).map(|_| ()).unwrap_err().kind(), Kind::Newer);
}

#[test]
fn a_tail_that_was_cut_never_comes_back() {
    // Three frames were synced. The second is lost as if it had never been synced. Recovery cuts and writes other commits under
    // the same lsns, so that the third old frame would fit behind them.
    let machine = SimEnv::new(7);
    let mut rng = Rng::new(7);
    let (mut writer, ..) = open(&machine.env(), 1).unwrap();
    let mut written: Vec<WrittenFrame> =
        (0..3).map(|_| append(&mut writer, &mut rng, FRAME).unwrap()).collect();
    let name = names(&machine.env(), ".log").pop().unwrap();
    drop(writer);
    let mut machine = machine.kill();
    let first = {
        let mut ends = Vec::new();
        verify(&machine.env(), dir(), Lsn(1), Lsn(0), &mut |frame| {
            ends.push(frame.offset + frame.bytes);
            Ok(())
        })
        .unwrap();
        ends[0]
    };
    machine.disk.flip_bit(&path(&name), first + 66);
    for round in 0..4 {
        let (mut writer, recovery, frames) = open(&machine.env(), 1).unwrap();
        assert_eq!(damage_text(recovery.damage), None);
        if round == 0 {
            written.truncate(1);
            assert!(recovery.torn_bytes > 0);
        }
        assert_eq!(frames, written);
        written.push(append(&mut writer, &mut rng, FRAME).unwrap());
        writer.syncer().sync().unwrap();
        drop(writer);
        machine = machine.kill();
    }
}
