//! Tests of the lake in an external catalog: the requests, and the handling of late, lost and wrong responses.

mod fake_catalog;
mod faults;
mod network;
mod other_programs;
mod requests;
mod vended;

use types::Result;

use self::fake_catalog::FakeCatalog;
use super::crashes::{self, Layouts, States};
use super::support::{Bench, read_with_metadata, rows_of, small};
use crate::Options;
use crate::rest::Catalog;

/// Returns options of a lake in the catalog `fake`.
fn options_in(fake: &FakeCatalog) -> Options {
    Options { catalog: Some(catalog_in(fake, "database")), ..small() }
}

fn catalog_in(fake: &FakeCatalog, owner: &str) -> Catalog {
    let options = crate::rest::Options { uri: fake_catalog::URI.into(), ..Default::default() };
    Catalog::new(Box::new(fake.clone()), &options, owner).unwrap()
}

fn begin(layouts: Layouts) -> (Bench, FakeCatalog) {
    let fake = FakeCatalog::default();
    (crashes::begin_in(layouts, options_in(&fake)), fake)
}

/// K1: checks that a reader of the catalog finds the table's rows at the position that the catalog tells.
fn check(bench: &Bench, fake: &FakeCatalog, states: &States, what: &str) {
    let Some(metadata) = fake.metadata("main.t") else { return };
    let dir = std::path::PathBuf::from(&metadata.location);
    let (row, lsn) = metadata.position().unwrap();
    let found = read_with_metadata(&bench.store(), &dir, metadata).unwrap_or_else(|e| panic!("{what}: {e}"));
    let expected = states.get(&(row.0, lsn.0));
    let expected =
        expected.unwrap_or_else(|| panic!("{what}: it stands at {row} {lsn}, where the table never was"));
    assert!(expected.keys().eq(found.keys()), "{what}: other rows than the table had at {row} {lsn}");
}

/// Lands everything and compares the rows that the catalog's readers find with the table.
fn land(bench: &mut Bench, fake: &FakeCatalog) {
    let lake = bench.land();
    let told = fake.metadata("main.t").unwrap();
    assert_eq!(
        read_with_metadata(&bench.store(), &lake.dir, told).unwrap(),
        rows_of(&bench.snapshot()).unwrap()
    );
}

/// Records the table's present state under the position that a lake with it would tell.
fn note(bench: &Bench, states: &mut States) -> Result<()> {
    // The table may also be created in the lake now, without rows.
    states.insert((0, bench.lsn), Default::default());
    states.insert((bench.tip.next_row().0 - 1, bench.lsn), rows_of(&bench.snapshot())?);
    Ok(())
}
