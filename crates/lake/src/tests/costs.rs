//! Tests of the cost of a commit in counts: disk calls, syncs, files, bytes, serialised texts. It does not depend on the number
//! of earlier commits (O1). Times are in docs/decisions/009.

use std::collections::HashSet;
use std::time::Duration;

use iceberg::metadata::texts_made;

use super::support::Bench;
use crate::Options;

/// The cost of one commit.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    calls: u64,
    syncs: u64,
    files: u64,
    bytes: u64,
    /// Parts of the metadata that were serialised.
    texts: u64,
}

/// Lands a few rows and a delete, and returns the cost.
fn commit(bench: &mut Bench, n: u64) -> Cost {
    let before: HashSet<String> = if n == 0 { HashSet::new() } else { bench.files().into_iter().collect() };
    bench.keys(n as i64 * 3..n as i64 * 3 + 3);
    if n > 0 {
        bench.delete([1 + n * 2]);
    }
    bench.sim.clock.advance(Duration::from_secs(1));
    let (calls, syncs, texts) = (bench.sim.disk.calls(), bench.sim.disk.syncs(), texts_made());
    let lake = bench.try_land().unwrap();
    let mut cost = Cost {
        calls: bench.sim.disk.calls() - calls,
        syncs: bench.sim.disk.syncs() - syncs,
        texts: texts_made() - texts,
        ..Cost::default()
    };
    for name in bench.files().iter().filter(|name| !before.contains(*name)) {
        cost.files += 1;
        cost.bytes += bench.store().len(&lake.dir.join(name)).unwrap();
    }
    cost
}

fn median(costs: &[Cost], of: fn(&Cost) -> u64) -> u64 {
    let mut all: Vec<u64> = costs.iter().map(of).collect();
    all.sort_unstable();
    all[all.len() / 2]
}

#[test]
fn the_cost_of_a_commit_does_not_grow_with_earlier_commits() {
    let _limit = testkit::limit(300);
    let mut bench = Bench::new(Options { snapshots_max: 40, ..Options::new("lake", "lake") });
    let costs: Vec<Cost> = (0..600).map(|n| commit(&mut bench, n)).collect();
    // From here on the number of snapshots is constant. Medians are compared, since every eighth commit merges neighbours.
    let (early, late) = (&costs[60..160], &costs[500..600]);
    for (what, of) in [
        ("calls", (|cost| cost.calls) as fn(&Cost) -> u64),
        ("syncs", |cost| cost.syncs),
        ("files", |cost| cost.files),
        ("bytes", |cost| cost.bytes),
    ] {
        let (before, now) = (median(early, of), median(late, of));
        assert!(now * 10 <= before * 11, "{what}: {before} after 100 commits, {now} after 550");
    }
    // Data, positions, two manifests, their list, metadata and its hint; and two directories.
    assert!(median(late, |cost| cost.syncs) <= 11, "{:?}", late[50]);
    assert!(late.iter().all(|cost| cost.syncs <= 14 && cost.files <= 9), "{late:?}");
    // Each commit serialises its own snapshot. The schema was serialised with the table.
    assert!(costs[1..].iter().all(|cost| cost.texts == 1), "{:?}", &costs[..5]);
    // Mainly the metadata of forty snapshots.
    assert!(median(late, |cost| cost.bytes) < 60 << 10, "{:?}", late[50]);
}
