//! Tests of an erasure of evicted rows: no trace of them stays in this machine's files.

use super::*;

/// The sidecar of an evicted segment stays here. It kept the greatest value of a block, and an erasure of that row left it
/// there.
#[test]
fn an_erasure_leaves_no_local_bound_that_may_be_an_erased_value() {
    let _limit = testkit::limit(60);
    const SECRET: &str = "zz-the-greatest-of-all";
    let machine = SimEnv::new(1);
    let life = Life::begin(&machine, small()).unwrap();
    let [def, _] = defs(HotLimit::Bytes(0), 0, false);
    life.submit(vec![Op::CreateTable { def, if_absent: true }]);
    life.settle();
    let table = || life.engine.root().table(NAMES[0]).unwrap().clone();
    let batch = batch(&mut Rng::new(7), 61);
    let mut texts: Vec<Option<&str>> = batch.column(1).as_string::<i32>().iter().collect();
    texts[4] = Some(SECRET);
    let mut columns = batch.columns().to_vec();
    columns[1] = Arc::new(StringArray::from(texts));
    let batch = RecordBatch::try_new(batch.schema(), columns).unwrap();
    life.submit(vec![Op::Insert { table: NAMES[0].into(), batch, mode: Mode::Append }]);
    life.run_until_idle();
    assert!(table().has_evicted());
    let says = || {
        let is_here = |file: &std::path::PathBuf| file.to_string_lossy().ends_with(".meta");
        let files = machine.disk.files().into_iter().filter(is_here);
        let bytes = files.map(|file| machine.disk.contents(file.strip_prefix("/").unwrap()).unwrap());
        bytes.filter(|bytes| bytes.windows(SECRET.len()).any(|found| found == SECRET.as_bytes())).count()
    };
    assert_eq!(says(), 1);
    life.submit(vec![Op::Delete { table: NAMES[0].into(), rows: vec![RowId(5)], must_exist: true }]);
    life.run_until_idle();
    let erase = || {
        let erasure = life.engine.erase(table().def().id, table().lsn()).unwrap();
        for _ in 0..20 {
            life.run_until_idle();
        }
        let told = erasure.state();
        assert!(matches!(told.ended, Some(Ok(()))), "{told:?}");
        told
    };
    assert_eq!(erase().segments_rewritten, 1);
    assert_eq!(says(), 0);
    let read = || table().scan_from(RowId(1), 100, table().all_columns()).unwrap().num_rows();
    assert_eq!(read(), 60);
    // A second erasure has nothing to rewrite.
    assert_eq!(erase().segments_rewritten, 0);
    assert_eq!(read(), 60);
}
