//! Tests of a table that is dropped, and another one that gets its name.

use std::sync::Arc;

use table::materializer::Materializer as _;

use super::support::{Bench, def, read};
use crate::objects::Objects;
use crate::{Options, abandoned_lakes, newest_version};

/// Returns a bench of another table with the same name, on the same machine and in the same process.
fn next_of_its_name(bench: &Bench) -> Bench {
    let mut new = def();
    new.id = bench.tip.def().id.next();
    let mut next = Bench::of(new, Options::new("lake", "lake"));
    next.sim = bench.sim.clone();
    next.materializer = bench.materializer.clone();
    next.sim.env().disk.create_dir_all(&next.place().dir).unwrap();
    next
}

/// The clean-up after the old table's last commit removed the new table's `v1.metadata.json`: the new lake failed with "No such
/// file", and landed again from nothing.
#[test]
fn garbage_of_a_dropped_table_does_not_include_files_of_the_next_one() {
    let mut old = Bench::new(Options { metadata_files_max: 0, ..Options::new("lake", "lake") });
    old.keys(0..10);
    old.land();
    // This commit's clean-up is still to come.
    old.keys(10..20);
    let position = {
        let mut budget = table::materializer::Budget { rows: 100, urgent: true, tick: &mut |_| Ok(()) };
        let materializer: &dyn table::materializer::Materializer = &*old.materializer;
        match materializer.step(&old.place(), &old.snapshot(), old.position.as_ref(), &mut budget).unwrap() {
            table::materializer::Progress::Advanced(position) => Arc::new(position),
            other => panic!("{other:?}"),
        }
    };
    let garbage = position.published::<crate::Lake>().unwrap().garbage.paths();
    assert!(
        garbage.iter().any(|path| path.ends_with("v1.metadata.json") || path.ends_with("v2.metadata.json"))
    );
    let mut new = next_of_its_name(&old);
    new.keys(100..105);
    new.land();
    let files = new.files();
    old.materializer.clean(&old.place(), &position).unwrap();
    assert_eq!(new.files(), files, "they are the new table's");
    // A step of the old table that began before the drop.
    old.position = Some(position);
    old.keys(20..30);
    old.step(true).unwrap();
    assert_eq!(new.files(), files);
    old.materializer.dropped(&old.place()).unwrap();
    assert_eq!(new.files(), files);
    new.keys(0..3);
    assert_eq!(new.land().rows(), 8);
}

/// The lake is where it was before another warehouse or a catalog was configured; the table may have been renamed since.
#[test]
fn an_abandoned_lake_is_found_and_removed_by_the_tables_id() {
    let mut old = Bench::new(Options::new("lake", "lake"));
    old.keys(0..10);
    old.land();
    let (env, warehouse) = (old.sim.env(), std::path::Path::new("lake"));
    let (table, another) = (old.tip.def().id, old.tip.def().id.next());
    let files = old.files();
    assert!(abandoned_lakes::find(&env, warehouse, another, None).unwrap().is_empty());
    assert!(!abandoned_lakes::remove(&env, warehouse, another, None).unwrap());
    assert_eq!(old.files(), files, "it is another table's");
    assert_eq!(abandoned_lakes::find(&env, warehouse, table, None).unwrap(), [old.dir()]);
    assert!(!abandoned_lakes::remove(&env, warehouse, table, Some(&old.dir())).unwrap(), "it is written now");
    assert!(abandoned_lakes::remove(&env, warehouse, table, None).unwrap());
    assert_eq!(newest_version(&old.store(), &old.dir()).unwrap(), None);
    assert!(!abandoned_lakes::remove(&env, warehouse, table, None).unwrap());
}

#[test]
fn an_abandoned_lake_is_removed_with_its_table() {
    let mut old = Bench::new(Options::new("lake", "lake"));
    old.keys(0..10);
    old.land();
    // No credentials are available for this store.
    let objects = Objects::without_key("s3://bucket/lake", &Default::default(), "").unwrap();
    let elsewhere =
        crate::Materializer::new(Options { former: Some("lake".into()), ..Options::remote(objects) });
    let another = next_of_its_name(&old);
    elsewhere.dropped(&another.place()).unwrap();
    assert_eq!(read(&old.store(), &old.dir()).unwrap().len(), 10, "it is another table's");
    elsewhere.dropped(&old.place()).unwrap();
    assert_eq!(newest_version(&old.store(), &old.dir()).unwrap(), None);
}

/// All of these events in quick succession, repeatedly.
#[test]
fn tables_of_one_name_that_come_and_go_quickly_never_meet() {
    let _limit = testkit::limit(300);
    let mut bench = Bench::new(Options { metadata_files_max: 0, ..Options::new("lake", "lake") });
    for round in 0..testkit::scaled(60).clamp(20, 60) {
        bench.keys(0..20);
        bench.land();
        bench.keys(20..25);
        bench.step(true).unwrap();
        let mut next = next_of_its_name(&bench);
        next.keys(50..60);
        let (materializer, place, position) =
            (bench.materializer.clone(), bench.place(), bench.position.clone());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let position = position.expect("it landed");
                materializer.clean(&place, &position).unwrap();
                materializer.dropped(&place).unwrap();
            });
            for _ in 0..3 {
                next.step(true).unwrap_or_else(|e| panic!("round {round}: {e}"));
            }
        });
        next.land();
        assert_eq!(read(&next.store(), &next.dir()).unwrap().len(), 10);
        bench = next;
    }
    bench.materializer.dropped(&bench.place()).unwrap();
    assert_eq!(newest_version(&bench.store(), &bench.dir()).unwrap(), None);
}
