//! Uses the simulator as crash tests do: it must pass a correct way to replace a file and detect each wrong way. It
//! must also answer as the real disk does, as long as nothing fails.

use super::*;
use vfs::RealDisk;

/// Replaces `/d/a` by `version`, in the way in which Polynya replaces every file.
fn replace(disk: &SimDisk, version: u8) -> io::Result<()> {
    let file = disk.create(at("/d/temp"))?;
    file.write_at(&[IoSlice::new(&[version; 2000])], 0)?;
    file.sync()?;
    disk.rename(at("/d/temp"), at("/d/a"))?;
    disk.sync_dir(at("/d"))
}

fn recover(disk: &SimDisk) -> io::Result<()> {
    if disk.exists(at("/d/temp"))? {
        disk.remove(at("/d/temp"))?;
    }
    Ok(())
}

/// Crashes in every call of a few replacements, and again within recovery. `Err` describes the loss.
fn survives_crashes(canary: Option<&'static str>) -> Result<(), String> {
    let seeds = testkit::seeds(4);
    for seed in seeds {
        for call in 1.. {
            let disk = SimDisk::new(seed);
            disk.create_dir_all(at("/d")).unwrap();
            disk.sync_dir(at("/")).unwrap();
            if let Some(forgotten) = canary {
                disk.lose_syncs(move |path| path == at(forgotten));
            }
            disk.crash_at(disk.calls() + call);
            let mut acknowledged = 0;
            while acknowledged < 3 && replace(&disk, acknowledged + 1).is_ok() {
                acknowledged += 1;
            }
            let finished = !disk.is_dead();

            let mut rng = Rng::new(seed ^ call);
            let mut disk = disk.crash(&mut rng);
            disk.crash_at(rng.range(1..4));
            if recover(&disk).is_err() {
                disk = disk.crash(&mut rng);
                recover(&disk).unwrap();
            }
            let found = disk.contents(at("/d/a")).unwrap_or_default();
            let version = found.first().copied().unwrap_or(0);
            if found != vec![version; if version == 0 { 0 } else { 2000 }] {
                return Err(format!("seed {seed}, call {call}: a torn file"));
            }
            if version != acknowledged && version != acknowledged + 1 {
                return Err(format!(
                    "seed {seed}, call {call}: {acknowledged} acknowledged, {version} found"
                ));
            }
            if finished {
                break;
            }
        }
    }
    Ok(())
}

#[test]
fn a_file_replaced_by_temp_sync_rename_sync_is_always_whole_and_acknowledged() {
    let _limit = testkit::limit(60);
    assert_eq!(survives_crashes(None), Ok(()));
}

#[test]
fn forgetting_to_sync_the_file_is_found() {
    let _limit = testkit::limit(60);
    assert!(survives_crashes(Some("/d/temp")).is_err());
}

#[test]
fn forgetting_to_sync_the_directory_is_found() {
    let _limit = testkit::limit(60);
    let lost = survives_crashes(Some("/d")).unwrap_err();
    assert!(lost.contains("acknowledged"), "{lost}");
}

/// Makes the same random calls on both disks, which must give the same answers.
#[test]
fn the_simulated_disk_answers_as_the_real_one() {
    let _limit = testkit::limit(120);
    testkit::for_each_seed(30, |seed| {
        let root = testkit::temp_dir("alike");
        let simulated = SimDisk::new(seed);
        simulated.create_dir_all(&root).unwrap();
        let disks: [&dyn Disk; 2] = [&RealDisk, &simulated];
        let mut rng = Rng::new(seed);
        let mut files: Vec<[Arc<dyn File>; 2]> = Vec::new();
        for step in 0..200 {
            let answers = random_step(&mut rng, &root, disks, &mut files);
            assert_eq!(answers[0], answers[1], "step {step}: the real answer, then the simulated one");
        }
    });
}

fn random_step(
    rng: &mut Rng,
    root: &Path,
    disks: [&dyn Disk; 2],
    files: &mut Vec<[Arc<dyn File>; 2]>,
) -> [String; 2] {
    let mut path = || {
        let dir = *rng.pick(&["", "x", "x/y"]);
        root.join(dir).join(*rng.pick(&["a", "b", "x", "y"]))
    };
    let (path, other) = (path(), path());
    let (offset, len) = (rng.below(10_000), rng.below(6000));
    let bytes = rng.bytes(len as usize);
    let opened = |files: &mut Vec<[Arc<dyn File>; 2]>, results: [io::Result<Arc<dyn File>>; 2]| {
        let answers = results.each_ref().map(|result| outcome(result.as_ref().map(|_| ())));
        if let [Ok(real), Ok(simulated)] = results {
            files.push([real, simulated]);
        }
        answers
    };
    let action = rng.below(16);
    match action {
        0 | 1 => opened(files, disks.map(|disk| disk.create(&path))),
        2 => opened(files, disks.map(|disk| disk.open(&path, Access::ReadWrite))),
        3 => disks.map(|disk| outcome(disk.rename(&path, &other))),
        4 => disks.map(|disk| outcome(disk.remove(&path))),
        5 => disks.map(|disk| outcome(disk.create_dir_all(&path))),
        6 => disks.map(|disk| outcome(disk.remove_dir(&path))),
        7 => disks.map(|disk| outcome(disk.exists(&path))),
        8 => disks.map(|disk| outcome(disk.list(path.parent().unwrap()))),
        9 => disks.map(|disk| outcome(disk.sync_dir(path.parent().unwrap()))),
        _ if files.is_empty() => Default::default(),
        _ => {
            let pair = rng.pick(files).each_ref();
            match action {
                10 | 11 => pair.map(|file| outcome(file.write_at(&[IoSlice::new(&bytes)], offset))),
                12 => pair.map(|file| {
                    let mut buf = vec![0; len as usize];
                    outcome(file.read_at(&mut buf, offset).map(|()| buf))
                }),
                13 => pair.map(|file| outcome(file.set_len(offset))),
                14 => pair.map(|file| outcome(file.allocate(offset).and_then(|()| file.sync()))),
                _ => pair.map(|file| outcome(file.map().map(|bytes| (bytes, file.len().unwrap())))),
            }
        }
    }
}

fn outcome<T: fmt::Debug>(result: Result<T, impl std::borrow::Borrow<io::Error>>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{:?}", error.borrow().kind()),
    }
}
