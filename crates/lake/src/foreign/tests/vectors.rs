//! Tests of rows that are deleted by position: in deletion vectors, in delete files, and in both.

use roaring::RoaringTreemap;
use serde_json::json;
use types::Kind;

use super::table_builder::{BY_P, TableBuilder, n};

fn positions(of: &[u64]) -> RoaringTreemap {
    of.iter().copied().collect()
}

/// Returns two data files of ten rows each, 0 to 9 and 10 to 19, with the sequence numbers 1 and 2, and their paths.
fn two_files() -> (TableBuilder, String, String) {
    let mut builder = TableBuilder::new(json!([]));
    builder.data(1, vec![n(&(0..10).collect::<Vec<_>>())]);
    let first = builder.last();
    builder.data(2, vec![n(&(10..20).collect::<Vec<_>>())]);
    let second = builder.last();
    (builder, first, second)
}

#[test]
fn vectors_of_one_file_and_of_several_delete_rows() {
    let _limit = testkit::limit(60);
    let (mut builder, first, second) = two_files();
    builder.vectors(
        2,
        &[(&first, positions(&[0, 3, 9])), (&second, positions(&[1])), ("gone", positions(&[77]))],
    );
    assert_eq!(builder.rows().unwrap(), [1, 2, 4, 5, 6, 7, 8, 10, 12, 13, 14, 15, 16, 17, 18, 19]);
    assert_eq!(builder.open().unwrap().end_offset(), 16);
    // One vector deletes all rows of a file, the other none.
    builder.files.truncate(2);
    builder.vectors(2, &[(&first, (0..10).collect())]);
    builder.vectors(3, &[(&second, positions(&[]))]);
    assert_eq!(builder.rows().unwrap(), (10..20).collect::<Vec<_>>());
}

#[test]
fn rows_of_several_containers_are_deleted() {
    let _limit = testkit::limit(120);
    let mut builder = TableBuilder::new(json!([]));
    let rows: Vec<i64> = (0..200_000).collect();
    builder.data(1, vec![n(&rows)]);
    let path = builder.last();
    let deleted: RoaringTreemap = [0, 65_535, 65_536, 199_999]
        .into_iter()
        .chain((70_000..131_072).step_by(2))
        .chain(131_072..190_000)
        .collect();
    builder.vectors(1, &[(&path, deleted.clone())]);
    let table = builder.open().unwrap();
    let wanted: Vec<i64> = rows.into_iter().filter(|row| !deleted.contains(*row as u64)).collect();
    assert_eq!(table.end_offset(), wanted.len() as u64);
    for from in [0, 1, 5, 65_533, 65_534, 90_000, wanted.len() - 1, wanted.len()] {
        let found = super::table_builder::rows_from(&table, from as u64).unwrap();
        let found: Vec<i64> = found.into_iter().map(|(_, n)| n).collect();
        assert!(found == wanted[from..], "from {from}");
    }
}

#[test]
fn a_deletion_vector_replaces_position_delete_files() {
    let _limit = testkit::limit(60);
    let (mut builder, first, second) = two_files();
    builder.positions(2, &[(&first, 0), (&first, 5), (&second, 5)]);
    assert_eq!(builder.rows().unwrap().len(), 17);
    builder.vectors(3, &[(&first, positions(&[5, 6]))]);
    // Row 0 reappears: a vector replaces all earlier deletes by position of its data file.
    assert_eq!(builder.rows().unwrap(), [0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19]);
    // Equality deletes apply besides the vector.
    builder.equality(2, &[1], vec![n(&[1, 5, 12])]);
    assert_eq!(builder.rows().unwrap(), [0, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19]);
}

#[test]
fn position_delete_files_apply_to_data_files_that_are_not_newer() {
    let _limit = testkit::limit(60);
    let (mut builder, first, second) = two_files();
    builder.positions(1, &[(&first, 1), (&second, 1)]);
    assert_eq!(builder.rows().unwrap().len(), 19);
    builder.files[2].sequence = 2;
    assert_eq!(builder.rows().unwrap().len(), 18);
    // The manifest names another data file than the only one to which the deletes apply.
    builder.files[2].of = Some(first.clone());
    let error = builder.rows().unwrap_err();
    assert!(error.kind() == Kind::Damaged && error.to_string().contains("002.parquet"), "{error}");
    builder.files.pop();
    builder.positions(2, &[(&first, 1)]).of = Some(first.clone());
    assert_eq!(builder.rows().unwrap().len(), 19);
    builder.files[2].spec = BY_P;
    let error = builder.rows().unwrap_err();
    assert!(error.to_string().contains("another partition"), "{error}");
    builder.files.pop();
    builder.positions(2, &[(&first, 10)]);
    let error = builder.rows().unwrap_err();
    assert!(
        error.to_string().contains("does not have") && error.to_string().contains("000.parquet"),
        "{error}"
    );
}

#[test]
fn vectors_that_are_wrong_are_an_error_that_names_their_file() {
    let _limit = testkit::limit(60);
    let refused = |change: &dyn Fn(&mut TableBuilder, &str), why: &str| {
        let (mut builder, first, _) = two_files();
        builder.vectors(2, &[(&first, positions(&[0, 3, 9]))]);
        assert_eq!(builder.rows().unwrap().len(), 17);
        change(&mut builder, &first);
        let error = builder.open().unwrap_err();
        assert!(error.kind() == Kind::Damaged && error.to_string().contains(why), "{error}");
        assert!(error.context().iter().any(|(key, _)| *key == "file"), "{error:?}");
    };
    refused(&|builder, _| builder.files[2].of = None, "without the data file");
    refused(&|builder, _| builder.files[2].blob = None, "without the place");
    refused(&|builder, _| builder.files[2].blob = Some((4, -1)), "without the length");
    refused(&|builder, _| builder.files[2].blob = Some((4, i64::MAX)), "beyond the end");
    refused(&|builder, _| builder.files[2].blob = Some((i64::MAX, i64::MAX)), "beyond the end");
    refused(&|builder, _| builder.files[2].blob = Some((4, 3)), "ends too early");
    refused(&|builder, _| builder.files[2].blob = Some((5, 40)), "another length");
    refused(
        &|builder, _| {
            builder.files[2].bytes = 1 << 40;
            builder.files[2].blob = Some((4, 1 << 20));
        },
        "beyond the end",
    );
    refused(&|builder, _| builder.files[2].rows = 4, "3 rows, and its manifest says 4");
    refused(&|builder, _| builder.files[2].sequence = 0, "older than its data file");
    refused(&|builder, _| builder.files[2].spec = BY_P, "another partition");
    refused(&|builder, first| builder.vectors(3, &[(first, positions(&[0]))]), "two deletion vectors");
    refused(
        &|builder, first| {
            builder.files.pop();
            builder.vectors(3, &[(first, positions(&[0, 10]))]);
        },
        "does not have",
    );
}

/// Flips bits in each byte of the file, one byte at a time.
#[test]
fn a_vector_with_a_changed_byte_deletes_nothing_else() {
    let _limit = testkit::limit(60);
    let (mut builder, first, _) = two_files();
    builder.vectors(2, &[(&first, positions(&[0, 3, 9]))]);
    let (wanted, path) = (builder.rows().unwrap(), builder.last());
    let name = path.rsplit('/').next().unwrap();
    let whole = builder.bytes(&path);
    let (begin, len) = builder.files[2].blob.unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x11;
        builder.put(&format!("data/{name}"), &bytes);
        match builder.rows() {
            Ok(rows) => assert!(rows == wanted && !(begin..begin + len).contains(&(at as i64)), "byte {at}"),
            Err(error) => {
                assert!(
                    error.kind() == Kind::Damaged && error.to_string().contains(name),
                    "byte {at}: {error}"
                );
            }
        }
    }
}
