use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use engine::{Engine, Mode, Op, Transaction};
use types::{Principal, TableDef, TableId};

use super::*;

fn batch(ids: std::ops::Range<i64>) -> RecordBatch {
    let names = StringArray::from_iter_values(ids.clone().map(|id| format!("name {id}")));
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
    RecordBatch::try_from_iter([("id", ids), ("name", Arc::new(names) as ArrayRef)]).unwrap()
}

/// A directory with a keyed table of two segments and a head, closed cleanly.
fn database() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let options = engine::Options { seal_rows: 1_000, ..engine::Options::default() };
    let engine = Engine::open(Env::real(), &path, options).unwrap();
    let local = Principal::local();
    let mut def = TableDef::new(TableId(0), "main.t");
    def.add_column("id", &types::DataType::Int64, false, None).unwrap();
    def.add_column("name", &types::DataType::String, true, None).unwrap();
    def.set_primary_key(&["id".into()]).unwrap();
    engine.commit(&local, Transaction::new(vec![Op::CreateTable { def, if_absent: false }])).unwrap();
    for part in 0..4 {
        engine
            .commit(&local, Transaction::insert("t", batch(part * 700..part * 700 + 1_500), Mode::Upsert))
            .unwrap();
        let sealed_before = part;
        let started = std::time::Instant::now();
        while engine.status().seals <= sealed_before as u64 && started.elapsed().as_secs() < 20 {
            std::thread::yield_now();
        }
    }
    engine.commit(&local, Transaction::insert("t", batch(9_000..9_010), Mode::Append)).unwrap();
    engine.close().unwrap();
    (dir, path)
}

fn files(path: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![path.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => dirs.push(path),
                false if path.to_string_lossy().ends_with(suffix) => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}

/// Returns the file of the newest segment, which the database refers to. Older files may be leftovers of merges.
fn newest_segment(path: &Path) -> PathBuf {
    let id = |file: &PathBuf| file.file_stem().unwrap().to_string_lossy().parse::<u64>().unwrap();
    files(path, ".arrow").into_iter().max_by_key(id).unwrap()
}

fn examine_local(dir: &Path) -> Result<Examination> {
    examine(&Env::real(), dir, Some(&dir.join("lake")), &mut |_| ())
}

#[test]
fn a_sound_directory_is_found_sound_and_left_as_it_was() {
    let (_dir, path) = database();
    let before: Vec<(PathBuf, Vec<u8>)> =
        files(&path, "").into_iter().map(|f| (f.clone(), fs::read(f).unwrap())).collect();
    let examination = examine_local(&path).unwrap();
    // The files of merged segments may remain until the next opening, which is a note and not damage.
    assert!(examination.is_sound(), "{:?}", examination.findings);
    assert_eq!(examination.tables[0].rows, 700 * 3 + 1_500 + 10);
    assert!(examination.tables[0].segments > 0 && examination.log_frames > 0);
    let after: Vec<(PathBuf, Vec<u8>)> =
        files(&path, "").into_iter().map(|f| (f.clone(), fs::read(f).unwrap())).collect();
    assert!(before == after, "an examination changes nothing");
}

#[test]
fn a_flipped_bit_anywhere_in_a_segment_is_found() {
    let (_dir, path) = database();
    for suffix in [".arrow", ".meta"] {
        let file = newest_segment(&path).with_extension(&suffix[1..]);
        let bytes = fs::read(&file).unwrap();
        // Eight bytes: the first, the last and six in between.
        for at in (0..8).map(|i| i * (bytes.len() - 1) / 7) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            fs::write(&file, &flipped).unwrap();
            let examination = examine_local(&path).unwrap();
            assert!(!examination.is_sound(), "byte {at} of {}", file.display());
        }
        fs::write(&file, &bytes).unwrap();
    }
    assert!(examine_local(&path).unwrap().is_sound());
}

#[test]
fn a_flipped_bit_in_the_logs_last_frame_is_damage_and_no_torn_end() {
    let (_dir, path) = database();
    let manifest = manifest::read(&Env::real(), &path).unwrap().unwrap();
    let report =
        commitlog::verify(&Env::real(), &path.join("log"), manifest.replay_from, manifest.lsn, &mut |_| {
            Ok(())
        });
    let last = report.unwrap().files.into_iter().rfind(|file| file.frames > 0).unwrap();
    let log = path.join("log").join(&last.name);
    let mut bytes = fs::read(&log).unwrap();
    // The flipped byte lies before the mark of 64 bytes that a clean close leaves.
    bytes[last.bytes_used as usize - 64 - 40] ^= 1;
    fs::write(&log, bytes).unwrap();
    let examination = examine_local(&path).unwrap();
    assert!(!examination.is_sound(), "{examination:?}");
    assert!(examination.findings.iter().any(|f| f.what.contains(&last.name)), "{:?}", examination.findings);
    assert!(!examination.findings.iter().any(|f| f.what.contains("never acknowledged")));
}

#[test]
fn a_missing_segment_a_broken_manifest_and_a_stray_file_are_told_apart() {
    let (_dir, path) = database();
    let segment = newest_segment(&path);
    let stray = segment.with_file_name("99.arrow");
    fs::write(&stray, b"x").unwrap();
    let examination = examine_local(&path).unwrap();
    assert!(examination.is_sound(), "{:?}", examination.findings);
    assert!(examination.findings.iter().any(|finding| finding.what.contains("99.arrow")));
    fs::remove_file(&segment).unwrap();
    assert!(!examine_local(&path).unwrap().is_sound());

    let told = || examine_local(&path).unwrap().findings[0].what.clone();
    let named =
        |name: &str| files(&path, "").into_iter().find(|f| f.to_string_lossy().contains(name)).unwrap();
    let (manifest, copy) = (named("manifest-"), named("manifest.copy-"));
    for file in [&manifest, &copy] {
        let mut bytes = fs::read(file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(file, bytes).unwrap();
        assert!(told().contains("manifest-"), "{}", told());
        assert_eq!(told().contains("is intact"), file == &manifest, "{}", told());
    }
    fs::remove_file(&manifest).unwrap();
    assert!(told().contains("manifest.copy-"), "{}", told());
    fs::remove_file(&copy).unwrap();
    assert!(told().contains("its copy are missing"), "{}", told());
}

#[test]
fn a_directory_that_is_open_or_is_none_is_not_examined() {
    let _limit = testkit::limit(60);
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(examine_local(dir.path()).unwrap_err().kind(), Kind::NotFound);
    let engine = Engine::open(Env::real(), &dir.path().join("data"), engine::Options::default()).unwrap();
    assert_eq!(examine_local(&dir.path().join("data")).unwrap_err().kind(), Kind::InUse);
    engine.close().unwrap();
}

/// Evicted rows belong to the database as all others do, and no examination read the lake's files that hold them.
#[test]
fn a_flipped_bit_in_a_file_that_alone_has_rows_is_found() {
    let _limit = testkit::limit(120);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let options = engine::Options { seal_rows: 1_000, ..engine::Options::default() };
    let engine = Engine::open(Env::real(), &path, options).unwrap();
    let warehouse = path.join("lake");
    let options = ::lake::Options {
        commit_wait: std::time::Duration::ZERO,
        ..::lake::Options::new(&warehouse, warehouse.to_str().unwrap())
    };
    engine.register(Arc::new(::lake::Materializer::new(options))).unwrap();
    let local = Principal::local();
    let mut def = TableDef::new(TableId(0), "main.t");
    def.add_column("id", &types::DataType::Int64, false, None).unwrap();
    def.add_column("name", &types::DataType::String, true, None).unwrap();
    def.set_hot(Some(types::HotLimit::Bytes(0)));
    engine.commit(&local, Transaction::new(vec![Op::CreateTable { def, if_absent: false }])).unwrap();
    for part in 0..4 {
        let rows = batch(part * 1_500..(part + 1) * 1_500);
        engine.commit(&local, Transaction::insert("t", rows, Mode::Append)).unwrap();
    }
    while engine.root().table("main.t").unwrap().evicted().0 == 0 {
        engine.hurry(::lake::NAME, engine.root().table("main.t").unwrap().def().id);
        std::thread::yield_now();
    }
    engine.close().unwrap();
    let examined = examine_local(&path).unwrap();
    assert!(examined.is_sound() && examined.tables[0].lake_rows > 0, "{examined:?}");

    let lake = files(&warehouse, ".parquet");
    let name = lake[0].file_name().unwrap().to_str().unwrap();
    let mut bytes = fs::read(&lake[0]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&lake[0], bytes).unwrap();
    let examined = examine_local(&path).unwrap();
    let damage = examined.findings.iter().find(|finding| finding.severity == Severity::Damage).unwrap();
    assert!(damage.what.contains("the lake of table main.t") && damage.what.contains(name), "{damage:?}");

    // A damaged file of the lake's runs is found, and so is a missing lake.
    let told = || {
        let examined = examine_local(&path).unwrap();
        let damage = examined.findings.into_iter().filter(|finding| finding.severity == Severity::Damage);
        damage.map(|finding| finding.what).collect::<Vec<_>>().join("; ")
    };
    fs::write(path.join("lake-runs"), "before 1x\n").unwrap();
    assert!(told().contains("lake-runs"), "{}", told());
    fs::remove_file(path.join("lake-runs")).unwrap();
    fs::remove_dir_all(&warehouse).unwrap();
    assert!(told().contains("the lake of table main.t") && told().contains("it is gone"), "{}", told());
    let elsewhere = examine(&Env::real(), &path, None, &mut |_| ()).unwrap();
    assert!(elsewhere.is_sound() && elsewhere.findings.iter().any(|f| f.what.contains("not examined")));
}

/// The hint of `polynya doctor ./polynya-data` proposed that same command.
#[test]
fn a_hint_never_proposes_the_directory_that_failed() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["polynya-data", "else"] {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        let error = examine_local(&path).unwrap_err();
        let hint = error.hint_text().unwrap().to_owned();
        assert!(!hint.contains(&format!("{}`", path.display())), "{hint}");
        assert_eq!(hint.contains(&format!("{}/polynya-data`", path.display())), name == "else", "{hint}");
    }
}
