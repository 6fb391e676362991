//! Compares index and tail with a textbook BM25 that reads every row and shares no code with the index.

use std::collections::BTreeSet;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use types::{ROW_ID, RowId};

use super::support::{BODY, Machine, TITLE, batch, declared, keyed};
use crate::text::Query;

const WORDS: [&str; 12] =
    ["heron", "crane", "stork", "ibis", "river", "lake", "marsh", "reed", "egg", "nest", "wing", "beak"];
const WEIGHTS: [f64; 2] = [2.0, 1.0];

/// A live row with its words in each column.
type Document = (RowId, [Vec<String>; 2]);

fn documents(machine: &Machine) -> Vec<Document> {
    let table = machine.table();
    let projection = table.projection(&[ROW_ID, TITLE, BODY]).unwrap();
    let batch = table.scan_from(RowId(1), usize::MAX, &projection).unwrap();
    let ids = batch.column(0).as_primitive::<Int64Type>();
    let words = |column: usize, row: usize| -> Vec<String> {
        batch.column(column).as_string::<i32>().value(row).split(' ').map(str::to_owned).collect()
    };
    (0..batch.num_rows()).map(|row| (RowId(ids.value(row) as u64), [words(1, row), words(2, row)])).collect()
}

fn count(words: &[String], wanted: &str) -> f64 {
    words.iter().filter(|word| *word == wanted).count() as f64
}

/// Returns the rows with at least one of the words and their scores, best first.
fn expected(documents: &[Document], words: &[&str]) -> Vec<(RowId, f64)> {
    let (k1, b) = (1.2, 0.75);
    let rows = documents.len() as f64;
    let mut scores: Vec<(RowId, f64)> = documents.iter().map(|(row, _)| (*row, 0.0)).collect();
    for column in 0..2 {
        let average = documents.iter().map(|(_, texts)| texts[column].len() as f64).sum::<f64>() / rows;
        for word in words {
            let df = documents.iter().filter(|(_, texts)| count(&texts[column], word) > 0.0).count() as f64;
            let rarity = (1.0 + (rows - df + 0.5) / (df + 0.5)).ln();
            for ((_, texts), (_, score)) in documents.iter().zip(&mut scores) {
                let (tf, length) = (count(&texts[column], word), texts[column].len() as f64);
                let share = tf / (tf + k1 * (1.0 - b + b * length / average));
                *score += WEIGHTS[column] * rarity * (k1 + 1.0) * share;
            }
        }
    }
    scores.retain(|(_, score)| *score > 0.0);
    scores.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    scores
}

#[test]
fn scores_are_those_of_bm25_over_the_live_rows_whatever_the_index_has_reached() {
    let _limit = testkit::limit(300);
    testkit::for_each_seed(10, |seed| {
        let mut rng = testkit::Rng::new(seed);
        let mut def = keyed();
        def.indexes = vec![declared(&[TITLE, BODY], &[("weights", "2,1"), ("language", "none")])];
        let machine = Machine::new(seed, def);
        for round in 0..12 {
            // Texts have at most 39 words, because the lengths of longer ones are rounded.
            let words = |rng: &mut testkit::Rng, most: u64| -> String {
                let word = |rng: &mut testkit::Rng| WORDS[rng.below(12).min(rng.below(12)) as usize];
                (0..1 + rng.below(most)).map(|_| word(rng)).collect::<Vec<_>>().join(" ")
            };
            let ids: BTreeSet<u64> = (0..1 + rng.below(60)).map(|_| rng.below(200)).collect();
            let rows: Vec<_> = ids
                .into_iter()
                .map(|id| (id as i64, Some(words(&mut rng, 4)), Some(words(&mut rng, 39))))
                .collect();
            machine.insert(batch(&rows));
            let last = machine.table().next_row().0;
            machine.delete((0..rng.below(20)).map(|_| RowId(1 + rng.below(last))).collect());
            if rng.below(3) == 0 {
                machine.catch_up();
            }
            let documents = documents(&machine);
            for _ in 0..4 {
                let asked: BTreeSet<&str> =
                    (0..1 + rng.below(4)).map(|_| WORDS[rng.below(12) as usize]).collect();
                let asked: Vec<&str> = asked.into_iter().collect();
                let expected = expected(&documents, &asked);
                let found = machine.search(&Query { limit: 10_000, ..Query::new(&asked.join(" ")) });
                assert_eq!((found.total, found.exact), (expected.len() as u64, true));
                for (at, (hit, (_, score))) in found.hits.iter().zip(&expected).enumerate() {
                    let close = (f64::from(hit.score) - score).abs() <= 1e-5 * score.max(1.0);
                    assert!(close, "round {round}, {asked:?}, place {at}: {} is not {score}", hit.score);
                }
                // Rows whose scores clearly differ from their neighbours' must be in the expected order.
                for (at, (hit, (row, score))) in found.hits.iter().zip(&expected).enumerate() {
                    let apart = |other: Option<&(RowId, f64)>| {
                        other.is_none_or(|(_, near)| (near - score).abs() > 1e-4)
                    };
                    if apart(expected.get(at.wrapping_sub(1))) && apart(expected.get(at + 1)) {
                        assert_eq!(hit.row, *row, "round {round}, {asked:?}, place {at}");
                    }
                }
            }
        }
    });
}
