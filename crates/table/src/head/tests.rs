use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use testkit::{Rng, for_each_seed};
use types::{DataType, TableDef, TableId};

use super::*;
use crate::parts::CompiledDef;

fn view() -> Arc<CompiledDef> {
    let mut def = TableDef::new(TableId(1), "main.t");
    def.add_column("n", &DataType::Int64, false, None).unwrap();
    def.add_column("s", &DataType::String, true, None).unwrap();
    CompiledDef::new(def)
}

fn rows(view: &CompiledDef, first: u64, count: usize) -> RecordBatch {
    let n: ArrayRef = Arc::new(Int64Array::from_iter_values((first..first + count as u64).map(|n| n as i64)));
    let s: ArrayRef = Arc::new(StringArray::from_iter_values((0..count).map(|i| format!("text {i}"))));
    RecordBatch::try_new(view.user.schema().clone(), vec![n, s]).unwrap()
}

fn check(head: &Head, first: u64, next: u64) {
    let mut row = first;
    for batch in head.batches() {
        assert_eq!(batch.first, row);
        assert!(batch.rows() > 0 && batch.rows() <= BATCH_ROWS);
        let ids = batch.stored.row_ids();
        let n = batch.stored.batch.column(2).as_primitive::<Int64Type>().values();
        assert!(ids.iter().all(|id| {
            let same = *id as u64 == row;
            row += 1;
            same
        }));
        assert_eq!(ids, n.as_ref());
        assert_eq!(batch.runs[0].first, batch.first);
        assert!(ids.iter().all(|id| lsn_runs::lsn_at(&batch.runs, *id as u64) == *id as u64 / 100 + 1));
    }
    assert_eq!(row, next);
    assert_eq!(head.rows(), next - first);
}

#[test]
fn folding_keeps_few_batches_and_copies_each_row_a_logarithmic_number_of_times() {
    let _limit = testkit::limit(120);
    let view = view();
    for_each_seed(6, |seed| {
        let mut rng = Rng::new(seed);
        let (mut head, mut next) = (Head::default(), 1u64);
        let largest = *rng.pick(&[1, 3, 100, 5_000, 30_000]);
        for _ in 0..600 {
            let count = 1 + rng.below(largest) as usize;
            let runs: Vec<LsnRun> = (next..next + count as u64)
                .filter(|row| *row == next || row % 100 == 0)
                .map(|row| LsnRun { lsn: row / 100 + 1, first: row })
                .fold(Vec::new(), |mut runs, run| {
                    lsn_runs::push(&mut runs, run);
                    runs
                });
            head.push(next, 5, runs, &rows(&view, next, count), &view.layout, &view.all).unwrap();
            next += count as u64;
            let n = next - 1;
            let bound = (n + 1).ilog2() as u64 + n / BATCH_ROWS as u64;
            assert!(head.batches().len() as u64 <= bound, "{} batches of {n} rows", head.batches().len());
            if next > 200_000 {
                break;
            }
        }
        check(&head, 1, next);
        // log1.5 of 8192 is 22.2; copies out of larger allocations add at most one.
        assert!(head.copied <= (next - 1) * 24, "{} copies of {next} rows", head.copied);
        let held = head.clone();
        let cut = 1 + rng.below(next - 1);
        head.drop_below(cut);
        check(&head, cut, next);
        check(&held, 1, next);
    });
}

#[test]
fn a_small_slice_does_not_pin_a_large_batch() {
    let view = view();
    let mut head = Head::default();
    let large = rows(&view, 1, 100_000);
    head.push(1, 5, vec![LsnRun { lsn: 1, first: 1 }], &large.slice(0, 3), &view.layout, &view.all).unwrap();
    assert!(head.bytes() < 2_000, "{} bytes for three rows", head.bytes());
    assert_eq!(head.bytes(), memory::held(&head.batches()[0].stored.batch));
}

#[test]
fn rows_left_behind_by_a_seal_do_not_keep_the_sealed_ones_in_memory() {
    let view = view();
    let mut head = Head::default();
    head.push(1, 5, vec![LsnRun { lsn: 1, first: 1 }], &rows(&view, 1, 30_000), &view.layout, &view.all)
        .unwrap();
    let before = head.bytes();
    head.drop_below(20_000);
    let held: u64 = head.batches().iter().map(|batch| memory::held(&batch.stored.batch)).sum();
    assert!(held < before / 2, "{held} bytes held of {before}");
    assert_eq!(head.bytes(), held);
}
