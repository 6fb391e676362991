use std::collections::BTreeSet;

use testkit::{Rng, for_each_seed};

use super::*;

#[test]
fn a_delete_vector_is_a_set_and_its_clones_stay_as_they_were() {
    for_each_seed(20, |seed| {
        let mut rng = Rng::new(seed);
        let mut vector = DeleteVector::default();
        let mut model = BTreeSet::new();
        let mut held = Vec::new();
        let span = 1 + rng.below(100_000);
        for step in 0..4_000 {
            let row = rng.below(span);
            assert_eq!(vector.insert(row), model.insert(row));
            if step % 500 == 7 {
                held.push((vector.clone(), model.clone()));
            }
            if step == 3_000 {
                let cut = rng.below(span);
                let below = vector.split_below(cut);
                let rest = model.split_off(&cut);
                assert!(below.iter().eq(model.iter().copied()));
                model = rest;
            }
        }
        held.push((vector, model));
        for (vector, model) in held {
            assert_eq!(vector.len(), model.len() as u64, "S1");
            assert!(vector.to_bitmap().iter().eq(model.iter().copied()), "S1");
            for _ in 0..50 {
                let (a, b) = (rng.below(span), rng.below(span));
                let range = a.min(b)..=a.max(b);
                let expected: Vec<u64> = model.range(range.clone()).copied().collect();
                assert_eq!(vector.count(range.clone()), expected.len() as u64);
                let mut found: Vec<u64> = vector.iter(range).collect();
                found.sort_unstable();
                assert_eq!(found, expected);
                assert_eq!(vector.contains(a), model.contains(&a));
            }
        }
    });
}
