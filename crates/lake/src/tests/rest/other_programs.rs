//! Tests of other programs' changes in the catalog beside the table's own snapshots: commits that are rolled back, branches,
//! tags. Files that a kept snapshot names stay, whoever made it (G1), and the table still lands.

use std::time::Duration;

use iceberg::metadata::{LSN, Metadata, ROW};
use serde_json::{Value as Json, json};
use sim::Rng;
use table::materializer::Materializer as _;
use types::Kind;

use super::super::crashes::{self, Layouts, STEPS, States};
use super::super::replacement::writer::Writer;
use super::super::support::{Bench, read_with_metadata, small};
use super::super::upkeep::maintain;
use super::fake_catalog::{FakeCatalog, Fate};
use super::{begin, check, land, note, options_in};
use crate::Options;
use crate::lake_files::UnnamedFile;

/// An action of another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForeignAction {
    /// It rewrites all files, as copy-on-write deletes do, and rolls the commit back.
    RolledBack,
    /// It does so too, but the table tries to land before the rollback.
    MetAndRolledBack,
    /// It rolls its commit back, and keeps the snapshot under a tag.
    TaggedAndRolledBack,
    /// It commits to a branch.
    Branch,
    /// It appends to a branch; the branch's snapshot shares all files with the table.
    BranchThatShares,
    /// It makes a branch at the current snapshot and commits nothing to it.
    BranchAtMain,
    /// It makes a branch at an old snapshot.
    BranchInThePast,
    Tag,
}

use ForeignAction::*;

const ALL: [ForeignAction; 8] = [
    RolledBack,
    MetAndRolledBack,
    TaggedAndRolledBack,
    Branch,
    BranchThatShares,
    BranchAtMain,
    BranchInThePast,
    Tag,
];

impl ForeignAction {
    fn is_branch(self) -> bool {
        matches!(self, Branch | BranchThatShares | BranchAtMain | BranchInThePast)
    }
}

const LAYOUTS: [Layouts; 3] = [&[0], &[1], &[2]];

fn to(name: &str, kind: &str, id: i64) -> Json {
    json!({ "action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": id })
}

/// Adds a snapshot of another program on top of the current one.
fn add(bench: &Bench, fake: &FakeCatalog, id: i64, shares: bool) -> Json {
    let mut writer = Writer::new(bench, id);
    if shares {
        writer.manifests = writer.lake.manifests.iter().map(|manifest| manifest.file.clone()).collect();
        (writer.data, writer.deletes) = (Vec::new(), Vec::new());
    } else {
        writer = writer.rewrite_all();
    }
    let replace = writer.finish();
    let told = fake.metadata("main.t").unwrap();
    let snapshot = json!({
        "snapshot-id": id,
        "parent-snapshot-id": replace.parent,
        "sequence-number": told.last_sequence_number + 1,
        "timestamp-ms": bench.sim.env().clock.now() / 1000,
        "manifest-list": replace.manifest_list,
        "schema-id": told.current_schema_id,
        "summary": { "operation": "overwrite", "engine-name": "PyIceberg" },
    });
    json!({ "action": "add-snapshot", "snapshot": snapshot })
}

fn act(bench: &mut Bench, fake: &FakeCatalog, theirs: ForeignAction) {
    let told = fake.metadata("main.t").unwrap();
    let (current, first) = (told.current_snapshot_id.unwrap(), told.snapshots[0].snapshot_id);
    let change = |updates: &[Json]| fake.change("main.t", updates);
    match theirs {
        RolledBack | MetAndRolledBack | TaggedAndRolledBack => {
            change(&[add(bench, fake, 77, false), to("main", "branch", 77)]);
            if theirs == MetAndRolledBack {
                bench.keys(500..505);
                (0..2).for_each(|_| drop(bench.try_land().map(drop).unwrap_err()));
            }
            if theirs == TaggedAndRolledBack {
                change(&[to("theirs", "tag", 77)]);
            }
            change(&[to("main", "branch", current)]);
        }
        Branch => change(&[add(bench, fake, 77, false), to("audit", "branch", 77)]),
        BranchThatShares => change(&[add(bench, fake, 77, true), to("audit", "branch", 77)]),
        BranchAtMain => change(&[to("audit", "branch", current)]),
        BranchInThePast => change(&[to("audit", "branch", first)]),
        Tag => change(&[to("release", "tag", current)]),
    }
}

/// Makes some commits with deletes, so that old snapshots have files of their own.
fn filled(layouts: Layouts) -> (Bench, FakeCatalog) {
    let (mut bench, fake) = begin(layouts);
    for n in 0..4 {
        bench.keys(10 * n..10 * n + 10);
        if n > 0 {
            bench.delete([10 * n as u64 - 3]);
        }
        land(&mut bench, &fake);
        bench.sim.clock.advance(Duration::from_secs(1));
    }
    (bench, fake)
}

/// Lands, although another program's change makes some commits fail first.
fn land_on(bench: &mut Bench, fake: &FakeCatalog) {
    let mut tries = 0;
    while let Err(error) = bench.try_land() {
        tries += 1;
        assert!(tries < 3 && error.kind() != Kind::Internal, "{error}");
    }
    land(bench, fake);
}

/// Returns the metadata for a reader that asks for a snapshot by its id.
fn at(mut metadata: Metadata, id: i64) -> Metadata {
    metadata.current_snapshot_id = Some(id);
    let ours = metadata.ancestors(id).find(|s| s.summary.contains_key(ROW)).cloned();
    // The ancestors of another program's snapshot may have expired.
    for key in [ROW, LSN] {
        let value = ours.as_ref().map_or("0".to_owned(), |ours| ours.summary[key].clone());
        metadata.properties.insert(key.into(), value);
    }
    if ours.is_none() {
        let zero = |key: &str| (key.to_owned(), "0".to_owned());
        let snapshot = metadata.snapshots.iter_mut().find(|s| s.snapshot_id == id).unwrap();
        let mut told = (**snapshot).clone();
        told.summary.extend([zero(ROW), zero(LSN)]);
        *snapshot = told.into();
    }
    metadata
}

/// G1: checks that every snapshot in the catalog can be read.
fn check_readable(bench: &Bench, fake: &FakeCatalog, what: &str) {
    let told = fake.metadata("main.t").unwrap();
    let dir = std::path::PathBuf::from(&told.location);
    for snapshot in &told.snapshots {
        let id = snapshot.snapshot_id;
        read_with_metadata(&bench.store(), &dir, at(told.clone(), id))
            .unwrap_or_else(|e| panic!("{what}: snapshot {id} cannot be read: {e} {:?}", e.hint_text()));
    }
}

/// Commits until snapshots expire and files are merged.
fn go_on(bench: &mut Bench, fake: &FakeCatalog, what: &str) {
    for n in 0..14i64 {
        bench.delete([5 + 2 * n as u64]).keys(100 + 3 * n..103 + 3 * n);
        land_on(bench, fake);
        check_readable(bench, fake, what);
        bench.sim.clock.advance(Duration::from_secs(7));
    }
}

/// Removes the other programs' branches and all but the newest snapshot. After that no unnamed file is left.
fn end(bench: &mut Bench, fake: &FakeCatalog, what: &str) {
    let left = erase_all(bench, fake, what);
    assert!(left.is_empty(), "{what}: {left:?}");
}

/// Removes the other programs' branches and all but the newest snapshot. Returns the files that nothing names.
fn erase_all(bench: &mut Bench, fake: &FakeCatalog, what: &str) -> Vec<UnnamedFile> {
    let told = fake.metadata("main.t").unwrap();
    for branch in told.branches().into_keys() {
        fake.change("main.t", &[json!({ "action": "remove-snapshot-ref", "ref-name": branch })]);
    }
    bench.delete([22]);
    bench.erase().unwrap_or_else(|e| panic!("{what}: {e}"));
    check_readable(bench, fake, what);
    let told = fake.metadata("main.t").unwrap();
    assert_eq!((told.snapshots.len(), told.refs.len()), (1, 1), "{what}");
    let unnamed = bench.lake().unnamed_files().unwrap();
    bench.delete([23]);
    land(bench, fake);
    unnamed
}

#[test]
fn snapshots_expire_and_those_of_other_programs_stay_readable() {
    let _limit = testkit::limit(300);
    let all = ALL.into_iter().flat_map(|theirs| LAYOUTS.map(|layouts| (theirs, layouts)));
    for (theirs, layouts) in all {
        // The action is known before the next commit begins, or that commit reveals it.
        for is_known in [false, true] {
            let what = format!("{theirs:?}, {layouts:?}, known: {is_known}");
            let (mut bench, fake) = filled(layouts);
            let first = fake.metadata("main.t").unwrap().snapshots[0].snapshot_id;
            act(&mut bench, &fake, theirs);
            if is_known {
                bench.restart();
            }
            check_readable(&bench, &fake, &what);
            go_on(&mut bench, &fake, &what);
            let told = fake.metadata("main.t").unwrap();
            let is_there = |id| told.snapshot(id).is_some();
            // A branch keeps its snapshot. Snapshots without a branch expire, even if they have a tag.
            assert_eq!(is_there(77), matches!(theirs, Branch | BranchThatShares), "{what}");
            assert_eq!(is_there(first), theirs == BranchInThePast, "{what}");
            assert_eq!(told.refs.contains_key("audit"), theirs.is_branch(), "{what}");
            assert!(!told.refs.contains_key("release") && !told.refs.contains_key("theirs"), "{what}");
            assert!(told.snapshots.len() <= small().snapshots_max + 2, "{what}");
            end(&mut bench, &fake, &what);
        }
    }
}

#[test]
fn an_erasure_keeps_files_that_snapshots_of_other_programs_need() {
    let _limit = testkit::limit(300);
    for theirs in ALL {
        for layouts in LAYOUTS {
            for goes_on in [false, true] {
                let what = format!("{theirs:?}, {layouts:?}, goes on: {goes_on}");
                let (mut bench, fake) = filled(layouts);
                act(&mut bench, &fake, theirs);
                if goes_on {
                    bench.keys(200..220);
                    land_on(&mut bench, &fake);
                }
                bench.delete([2, 12]);
                if theirs.is_branch() {
                    let before = fake.metadata("main.t").unwrap();
                    let error = bench.erase().unwrap_err();
                    assert_eq!(error.kind(), Kind::Conflict, "{what}: {error}");
                    assert!(error.to_string().contains("has a branch `audit`"), "{what}: {error}");
                    assert!(error.hint_text().unwrap().contains("drop the branch"), "{what}");
                    let after = fake.metadata("main.t").unwrap();
                    assert_eq!(
                        after.snapshots.len(),
                        before.snapshots.len(),
                        "{what}: nothing was committed"
                    );
                    check_readable(&bench, &fake, &what);
                    // Other work does not wait for the erasure.
                    bench.keys(300..310);
                    land_on(&mut bench, &fake);
                    check_readable(&bench, &fake, &what);
                }
                end(&mut bench, &fake, &what);
            }
        }
    }
}

#[test]
fn maintenance_keeps_files_that_snapshots_of_other_programs_need() {
    let _limit = testkit::limit(300);
    for theirs in ALL {
        for layouts in LAYOUTS {
            let what = format!("{theirs:?}, {layouts:?}");
            let (mut bench, fake) = filled(layouts);
            act(&mut bench, &fake, theirs);
            // The snapshots are old enough to expire, and the files small enough to be merged.
            bench.sim.clock.advance(Duration::from_secs(300));
            let mut tries = 0;
            while let Err(error) = maintain(&mut bench) {
                tries += 1;
                assert!(tries < 3, "{what}: {error}");
            }
            check_readable(&bench, &fake, &what);
            land_on(&mut bench, &fake);
            bench.sim.clock.advance(Duration::from_secs(300));
            maintain(&mut bench).unwrap();
            check_readable(&bench, &fake, &what);
            assert_eq!(
                fake.metadata("main.t").unwrap().refs.contains_key("audit"),
                theirs.is_branch(),
                "{what}"
            );
            go_on(&mut bench, &fake, &what);
            end(&mut bench, &fake, &what);
        }
    }
}

#[test]
fn a_start_keeps_files_that_snapshots_of_other_programs_need() {
    let _limit = testkit::limit(300);
    for theirs in ALL {
        for layouts in LAYOUTS {
            let what = format!("{theirs:?}, {layouts:?}");
            let (mut bench, fake) = filled(layouts);
            act(&mut bench, &fake, theirs);
            for n in 0..8i64 {
                bench.restart();
                bench.keys(100 + 3 * n..103 + 3 * n).delete([4 + 2 * n as u64]);
                land_on(&mut bench, &fake);
                check_readable(&bench, &fake, &what);
                bench.sim.clock.advance(Duration::from_secs(9));
            }
            end(&mut bench, &fake, &what);
        }
    }
}

/// Branches and tags come and go, commits are made and rolled back, requests fail or arrive late, and processes are killed.
#[test]
fn every_snapshot_stays_readable_under_random_actions_and_failures() {
    let _limit = testkit::limit(600);
    let (mut acts, mut failures, mut erasures) = (0, 0, [0, 0]);
    let seeds = testkit::seeds(60);
    let count = (seeds.end - seeds.start) as usize;
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let layouts: Layouts = [&[0][..], &[2, 3], &[6, 1], &[0, 5]][(seed % 4) as usize];
        let (mut bench, fake) = begin(layouts);
        fake.answers_overtaken_with([0, 409][(seed / 4 % 2) as usize]);
        let mut states = States::new();
        for step in 0..STEPS {
            let what = format!("seed {seed}, step {step}");
            crashes::changes(&mut bench, step, layouts);
            note(&bench, &mut states).unwrap();
            if rng.one_in(2) {
                fake.fail_at_random(rng.below(u64::MAX), 3 + rng.below(8));
            }
            for _ in 0..rng.below(5) {
                let failed = bench.try_land().map(drop).err();
                assert!(failed.as_ref().is_none_or(|e| e.kind() != Kind::Internal), "{what}: {failed:?}");
                failures += usize::from(failed.is_some());
                if rng.one_in(4) {
                    fake.deliver();
                }
                check(&bench, &fake, &states, &what);
            }
            if rng.one_in(4) {
                erasures[usize::from(bench.erase().is_ok())] += 1;
                check(&bench, &fake, &states, &what);
            }
            fake.works_again();
            if rng.one_in(2) {
                acts += usize::from(act_at_random(&bench, &fake, &mut rng, 1_000 + step as i64));
            }
            if fake.metadata("main.t").is_some() {
                check_readable(&bench, &fake, &what);
            }
            if rng.one_in(4) {
                bench.sim = bench.sim.kill();
                bench.restart();
            }
            bench.sim.clock.advance(Duration::from_secs(rng.below(15)));
        }
        fake.deliver();
        land_on(&mut bench, &fake);
        // Unnamed files of other programs may stay for a while, if a commit was taken for failed.
        let what = format!("seed {seed}");
        let left = erase_all(&mut bench, &fake, &what);
        assert!(left.iter().all(|file| !file.is_ours), "{what}: {left:?}");
    }
    let is_met = acts > count && failures > count && erasures.iter().all(|n| *n > count / 4);
    assert!(is_met || count < 10, "{acts} acts, {failures} failures, {erasures:?} erasures in {count} seeds");
}

/// Performs a random action, if its base is the table's present state.
fn act_at_random(bench: &Bench, fake: &FakeCatalog, rng: &mut Rng, id: i64) -> bool {
    let Some(told) = fake.metadata("main.t").filter(|told| told.current_snapshot_id.is_some()) else {
        return false;
    };
    let current = told.current_snapshot_id.unwrap();
    let is_known = bench.position.is_some() && bench.lake().snapshot_id() == Some(current);
    let any = told.snapshots[rng.below(told.snapshots.len() as u64) as usize].snapshot_id;
    let name = ["a", "b"][rng.below(2) as usize];
    let updates = match rng.below(6) {
        0 | 1 if is_known => vec![add(bench, fake, id, rng.one_in(2)), to(name, "branch", id)],
        2 if is_known => {
            fake.change("main.t", &[add(bench, fake, id, false), to("main", "branch", id)]);
            vec![to("main", "branch", current)]
        }
        3 => vec![to("tag", "tag", any)],
        4 => vec![to(name, "branch", any)],
        _ if told.refs.contains_key(name) => {
            vec![json!({ "action": "remove-snapshot-ref", "ref-name": name })]
        }
        _ => return false,
    };
    fake.change("main.t", &updates);
    true
}

/// Another program commits to a branch while the table lands: each of its commits takes the sequence number of the table's next
/// one.
#[test]
fn commits_of_other_programs_to_a_branch_do_not_stop_the_table() {
    let _limit = testkit::limit(120);
    for status in [0, 409, 412, 422] {
        let fake = FakeCatalog::default();
        fake.answers_overtaken_with(status);
        // No snapshot expires, so that the table is not compared before a commit.
        let options = Options { snapshots_min: 50, snapshots_max: 100, ..options_in(&fake) };
        let mut bench = Bench::new(options);
        bench.keys(0..10);
        land(&mut bench, &fake);
        for n in 0..4 {
            // The snapshot is written while a commit is under way.
            bench.keys(100 + 10 * n..110 + 10 * n);
            let theirs = add(&bench, &fake, 77 + n, n % 2 == 0);
            fake.change("main.t", &[theirs, to("audit", "branch", 77 + n)]);
            let error = bench.try_land().map(drop).unwrap_err();
            assert!(error.to_string().contains("sequence number"), "{error}");
            bench
                .try_land()
                .map(drop)
                .unwrap_or_else(|e| panic!("{status}, {n}: it does not land any more: {e}"));
            land(&mut bench, &fake);
            check_readable(&bench, &fake, "beside a branch");
        }
        go_on(&mut bench, &fake, "beside a branch");
        end(&mut bench, &fake, "beside a branch");
    }
}

/// Another commit overtook one without a response. That one is not repeated for ever, and does no harm if it arrives late.
#[test]
fn a_pending_commit_that_a_branch_overtook_is_made_again() {
    let _limit = testkit::limit(60);
    for fate in [Fate::Dropped, Fate::Late, Fate::Before(500)] {
        for delivers in [false, true] {
            let (mut bench, fake) = filled(&[0]);
            fake.answers_overtaken_with(409);
            bench.keys(100..110);
            fake.fail(1, false, fate);
            assert!(bench.try_land().is_err());
            fake.works_again();
            let theirs = add(&bench, &fake, 77, true);
            fake.change("main.t", &[theirs, to("audit", "branch", 77)]);
            if delivers {
                fake.deliver();
            }
            bench.try_land().unwrap();
            fake.deliver();
            land(&mut bench, &fake);
            go_on(&mut bench, &fake, "overtaken");
            end(&mut bench, &fake, "overtaken");
        }
    }
}

/// A refusal for another reason than the table's state costs one request, and the files of failed tries do not accumulate.
#[test]
fn a_catalog_that_refuses_every_commit_costs_one_request_a_try() {
    let _limit = testkit::limit(60);
    let (mut bench, fake) = filled(&[0]);
    let before = bench.lake();
    bench.keys(100..110);
    fake.log();
    for n in 0..5u64 {
        // Only the commit fails, not the request before it.
        fake.fail(if n == 0 { 1 } else { 2 }, false, Fate::Before(400));
        assert_eq!(bench.try_land().map(drop).unwrap_err().kind(), Kind::Invalid);
    }
    fake.works_again();
    assert!(std::sync::Arc::ptr_eq(&before, &bench.lake()), "it is the lake that was known");
    let unnamed = bench.lake().unnamed_files().unwrap();
    assert!(unnamed.is_empty(), "{unnamed:?}");
    land(&mut bench, &fake);
}

/// A table without its branch `main` has no rows, whatever its properties say.
#[test]
fn a_table_whose_main_branch_was_removed_does_not_land_as_if_it_were_whole() {
    let _limit = testkit::limit(60);
    let (mut bench, fake) = filled(&[0]);
    let current = bench.lake().snapshot_id().unwrap();
    fake.change(
        "main.t",
        &[to("saved", "branch", current), json!({ "action": "remove-snapshot-ref", "ref-name": "main" })],
    );
    bench.keys(100..110);
    for _ in 0..3 {
        assert!(bench.try_land().is_err());
    }
    assert_eq!(fake.metadata("main.t").unwrap().current_snapshot_id, None);
    fake.change("main.t", &[to("main", "branch", current)]);
    land_on(&mut bench, &fake);
}

/// G1, even after an error elsewhere: a file that a snapshot names is not removed although it is queued as garbage, and an
/// error reports it.
#[test]
fn garbage_that_a_snapshot_names_is_kept_and_reported() {
    let _limit = testkit::limit(60);
    for in_catalog in [false, true] {
        let fake = FakeCatalog::default();
        let mut bench = Bench::new(if in_catalog { options_in(&fake) } else { small() });
        for n in 0..3 {
            bench.keys(10 * n..10 * n + 10);
            if n > 0 {
                bench.delete([10 * n as u64 - 3]);
            }
            bench.land();
        }
        let lake = bench.lake();
        let (tell, hold) = lake.retained_names();
        let mut named: Vec<String> = tell.chain(hold).map(str::to_owned).collect();
        if !in_catalog {
            named.push(lake.metadata_location());
        }
        assert!(named.len() > 8, "{named:?}");
        for name in named {
            let path = lake.local(&name).unwrap();
            let beside = lake.dir.join("data/00000000000000aa-1.parquet");
            crate::files::write(&bench.sim.env(), &beside, b"garbage").unwrap();
            lake.garbage.push(path.clone());
            lake.garbage.push(beside.clone());
            let position = bench.position.clone().unwrap();
            let error = bench.materializer.clean(&bench.place(), &position).unwrap_err();
            assert!(error.to_string().contains("G1"), "{error}");
            assert!(bench.store().exists(&path).unwrap(), "{name}");
            assert!(!bench.store().exists(&beside).unwrap(), "what is garbage goes");
            bench.materializer.clean(&bench.place(), &position).unwrap();
        }
        bench.land();
    }
}
