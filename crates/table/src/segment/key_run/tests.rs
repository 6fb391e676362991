use std::collections::HashMap;

use testkit::{Rng, for_each_seed};

use super::*;

#[test]
fn a_key_run_finds_what_was_put_in_and_nothing_else() {
    for_each_seed(10, |seed| {
        let mut rng = Rng::new(seed);
        let count = rng.below(5_000) as u32;
        // Hashes from a small range collide; those from the full range do not.
        let small = rng.one_in(2);
        let pairs: Vec<(u64, u32)> =
            (0..count).map(|i| (if small { rng.below(300) } else { rng.next_u64() }, i)).collect();
        let mut model: HashMap<u64, Vec<u32>> = HashMap::new();
        pairs.iter().for_each(|(hash, ordinal)| model.entry(*hash).or_default().push(*ordinal));
        let run = KeyRun::open(encode(pairs).into(), count.into()).unwrap();
        for (hash, ordinals) in &model {
            let mut found: Vec<u32> = run.candidates(*hash).collect();
            found.sort_unstable();
            assert_eq!(found, *ordinals);
        }
        for _ in 0..500 {
            let absent = rng.next_u64();
            assert_eq!(run.candidates(absent).count(), model.get(&absent).map_or(0, Vec::len));
        }
    });
}

#[test]
fn bytes_that_are_no_key_run_are_damage_and_never_a_panic() {
    let good = encode((0..100).map(|i| (u64::from(i) << 57 | u64::from(i), i)).collect());
    assert!(KeyRun::open(good.clone().into(), 100).is_ok());
    assert!(KeyRun::open(good.clone().into(), 99).is_err());
    for cut in 0..good.len() {
        assert!(KeyRun::open(good[..cut].to_vec().into(), 100).is_err());
    }
    let mut rng = Rng::new(1);
    for _ in 0..2_000 {
        let mut bad = good.clone();
        let at = rng.index(bad.len());
        bad[at] ^= 1 << rng.below(8);
        if let Ok(run) = KeyRun::open(bad.into(), 100) {
            for hash in 0..200u64 {
                let _ = run.candidates(hash << 57 | hash).count();
            }
        }
    }
}
