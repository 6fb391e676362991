use testkit::{Rng, for_each_seed};

use super::*;

#[test]
fn cut_joined_and_stored_runs_name_the_same_commits() {
    for_each_seed(50, |seed| {
        let mut rng = Rng::new(seed);
        let first = 1 + rng.below(1_000);
        // The lsn of each row.
        let mut lsns = Vec::new();
        let mut lsn = rng.below(1_000);
        for _ in 0..1 + rng.below(60) {
            lsn += 1 + rng.below(3);
            lsns.extend(std::iter::repeat_n(lsn, 1 + rng.index(30)));
        }
        let end = first + lsns.len() as u64;
        let mut runs = Vec::new();
        lsns.iter().zip(first..).for_each(|(lsn, row)| push(&mut runs, LsnRun { lsn: *lsn, first: row }));
        let check = |runs: &[LsnRun], from: u64, to: u64| {
            assert_eq!(runs.first().map(|run| run.first), (from < to).then_some(from));
            (from..to).for_each(|row| assert_eq!(lsn_at(runs, row), lsns[(row - first) as usize]));
        };
        check(&runs, first, end);

        let mut e = Encoder::new();
        encode(&runs, &mut e);
        let mut d = Decoder::new(&e.bytes);
        assert_eq!(decode(&mut d).unwrap(), runs);
        d.finish().unwrap();

        let cut = first + rng.below(end - first + 1);
        let (mut low, high) = (slice(&runs, first, cut), slice(&runs, cut, end));
        check(&low, first, cut);
        check(&high, cut, end);
        high.into_iter().for_each(|run| push(&mut low, run));
        assert_eq!(low, runs);
    });
}

#[test]
fn runs_that_do_not_ascend_are_damage() {
    let mut e = Encoder::new();
    e.varint(2);
    [5, 1, 0, 1].into_iter().for_each(|n| e.varint(n));
    assert!(decode(&mut Decoder::new(&e.bytes)).is_err());
    let mut e = Encoder::new();
    e.varint(2);
    [5, 1, u64::MAX, 1].into_iter().for_each(|n| e.varint(n));
    assert!(decode(&mut Decoder::new(&e.bytes)).is_err());
}
