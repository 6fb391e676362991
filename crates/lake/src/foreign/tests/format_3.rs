//! Tests of the additions in format 3 other than its deletes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, StructArray};
use arrow::datatypes::{Fields, Int64Type};
use arrow::util::display::array_value_to_string;
use serde_json::{Value as Json, json};
use types::{Error, Kind};

use super::table_builder::{BY_P, TableBuilder, column, field, longs, n};

/// Returns the values that a row shows in columns that its file lacks.
fn shown(columns: Json) -> Result<Vec<String>, Error> {
    let mut builder = TableBuilder::new(columns);
    builder.data(1, vec![n(&[0, 1])]);
    let table = builder.open()?;
    table.check()?;
    let batch = table.read(0).next_batch()?.unwrap().rows;
    assert_eq!(batch.num_rows(), 2);
    let columns = batch.columns()[2..].iter();
    Ok(columns.map(|column| array_value_to_string(column, 1).unwrap()).collect())
}

#[test]
fn rows_show_the_default_of_a_column_that_was_added_later() {
    let _limit = testkit::limit(60);
    let of = |iceberg: &str, default: Json| {
        let column =
            json!({ "id": 3, "name": "x", "type": iceberg, "required": true, "initial-default": default });
        shown(json!([column])).map(|mut all| all.remove(0))
    };
    for (iceberg, default, wanted) in [
        ("boolean", json!(true), "true"),
        ("int", json!(-34), "-34"),
        ("long", json!(1i64 << 60), "1152921504606846976"),
        ("float", json!(1.5), "1.5"),
        ("double", json!(-0.25), "-0.25"),
        ("decimal(9,2)", json!("14.20"), "14.20"),
        ("date", json!("2017-11-16"), "2017-11-16"),
        ("time", json!("22:31:08.123456"), "22:31:08.123456"),
        ("timestamp", json!("2017-11-16T22:31:08.123456"), "2017-11-16T22:31:08.123456Z"),
        ("timestamptz", json!("2017-11-16T22:31:08.123456+00:00"), "2017-11-16T22:31:08.123456Z"),
        ("string", json!("iceberg"), "iceberg"),
        ("uuid", json!("f79c3e09-677c-4bbd-a479-3f349cb785e7"), "f79c3e09677c4bbda4793f349cb785e7"),
        ("fixed[4]", json!("000102ff"), "000102ff"),
        ("binary", json!("00Ff"), "00ff"),
    ] {
        assert_eq!(of(iceberg, default).unwrap(), wanted, "{iceberg}");
    }
    for (iceberg, default) in [
        ("boolean", json!("true")),
        ("int", json!(1i64 << 40)),
        ("int", json!(1.5)),
        ("long", json!("7")),
        ("date", json!("x")),
        ("decimal(4,2)", json!("14123.20")),
        ("timestamp", json!(7)),
        ("uuid", json!("f79c")),
        ("binary", json!("0")),
        ("binary", json!("€0")),
    ] {
        let error = of(iceberg, default.clone()).unwrap_err();
        let says = error.to_string().contains("column `x` has a default");
        assert!(error.kind() == Kind::Damaged && says, "{iceberg} {default}: {error}");
    }
    // No default means null; a required column without a default is an error.
    let none = |required: bool| shown(json!([{ "id": 3, "name": "x", "type": "int", "required": required }]));
    assert_eq!(none(false).unwrap(), [""]);
    assert!(none(true).unwrap_err().to_string().contains("required column `x`"));
}

#[test]
fn fields_of_structs_have_defaults_of_their_own() {
    let _limit = testkit::limit(60);
    let structs = |default: Json| {
        json!([{ "id": 3, "name": "point", "initial-default": default, "type": { "type": "struct", "fields": [
            { "id": 4, "name": "x", "type": "int", "initial-default": 7 },
            { "id": 5, "name": "y", "type": "long", "required": true, "initial-default": 8 } ] } }])
    };
    assert_eq!(shown(structs(json!(null))).unwrap(), [""]);
    assert_eq!(shown(structs(json!({}))).unwrap(), ["{x: 7, y: 8}"]);
    let error = shown(structs(json!({ "4": 1 }))).unwrap_err();
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("nested type"), "{error}");
    // In structs that are present only `y` is missing; a null struct stays null.
    let mut builder = TableBuilder::new(structs(json!({})));
    let x: ArrayRef = Arc::new(Int32Array::from(vec![Some(3), None, Some(1)]));
    let fields = Fields::from(vec![field(4, "x", x.data_type().clone())]);
    let stored = StructArray::new(fields, vec![x], Some(vec![true, true, false].into()));
    builder.data(1, vec![n(&[0, 1, 2]), column(3, "point", Arc::new(stored))]);
    let batch = builder.open().unwrap().read(0).next_batch().unwrap().unwrap().rows;
    let points = batch.column_by_name("point").unwrap();
    let text = |row| array_value_to_string(points, row).unwrap();
    assert_eq!([text(0), text(1), text(2)], ["{x: 3, y: 8}", "{x: , y: 8}", ""]);
    // Defaults of lists are not supported.
    let list = json!({ "type": "list", "element-id": 4, "element": "int" });
    let of =
        |default: Json| shown(json!([{ "id": 3, "name": "l", "type": list, "initial-default": default }]));
    assert_eq!(of(json!(null)).unwrap(), [""]);
    assert!(of(json!([])).unwrap_err().to_string().contains("nested type"));
}

#[test]
fn columns_without_a_type_are_left_out() {
    let _limit = testkit::limit(60);
    let mut builder = TableBuilder::new(json!([
        { "id": 3, "name": "nothing", "type": "unknown" },
        { "id": 4, "name": "s", "type": { "type": "struct", "fields": [
            { "id": 5, "name": "nothing", "type": "unknown" }, { "id": 6, "name": "x", "type": "int" } ] } },
    ]));
    builder.data(1, vec![n(&[0, 1])]);
    assert_eq!(builder.rows().unwrap(), [0, 1]);
    let table = builder.open().unwrap();
    let columns: Vec<String> = table.columns.iter().map(|c| format!("{} {}", c.name, c.data_type)).collect();
    assert_eq!(columns, ["n int64", "p string", "s struct<x: int32>"]);
    assert_eq!(table.left_out, ["nothing"]);
    for other in [
        json!("timestamp_ns"),
        json!("timestamptz_ns"),
        json!("variant"),
        json!("geometry(OGC:CRS84)"),
        json!("geography"),
        json!({ "type": "list", "element-id": 7, "element": "unknown" }),
    ] {
        let builder = TableBuilder::new(json!([{ "id": 3, "name": "odd", "type": other }]));
        let error = builder.open().unwrap_err();
        assert!(error.kind() == Kind::Invalid && error.to_string().contains("column `odd` is of"), "{error}");
    }
}

#[test]
fn row_lineage_columns_are_skipped() {
    let _limit = testkit::limit(60);
    let mut builder = TableBuilder::new(json!([]));
    builder.data(
        1,
        vec![
            column(2_147_483_540, "_row_id", longs(&[500, 501])),
            n(&[0, 1]),
            column(2_147_483_539, "_last_updated_sequence_number", longs(&[1, 1])),
        ],
    );
    assert_eq!(builder.rows().unwrap(), [0, 1]);
    let table = builder.open().unwrap();
    let batch = table.read(0).next_batch().unwrap().unwrap().rows;
    assert_eq!(batch.num_columns(), 2);
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().values(), &[0, 1]);
}

#[test]
fn partitions_by_several_columns_are_distinguished_by_their_values() {
    let _limit = testkit::limit(60);
    for sources in [json!([2]), json!([1, 2])] {
        let mut builder = TableBuilder::new(json!([]));
        let by = &mut builder.json["partition-specs"][BY_P as usize]["fields"][0];
        by.as_object_mut().unwrap().remove("source-id");
        by["source-ids"] = sources.clone();
        by["transform"] = json!("mixed[7]");
        for p in ["a", "b"] {
            let file = builder.data(1, vec![n(&[0, 1])]);
            (file.spec, file.p) = (BY_P, Some(p.to_owned()));
        }
        let deletes = builder.equality(2, &[1], vec![n(&[1])]);
        (deletes.spec, deletes.p) = (BY_P, Some("b".to_owned()));
        assert_eq!(builder.rows().unwrap(), [0, 1, 0], "{sources}");
    }
}

#[test]
fn encrypted_and_newer_tables_are_refused() {
    let _limit = testkit::limit(60);
    let refused = |change: &dyn Fn(&mut TableBuilder)| {
        let mut builder = TableBuilder::new(json!([]));
        builder.data(1, vec![n(&[0, 1])]);
        change(&mut builder);
        builder.open().unwrap_err()
    };
    let error = refused(&|builder| builder.json["snapshots"][0]["key-id"] = json!("5f819b"));
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("encrypted"), "{error}");
    let error = refused(&|builder| builder.files[0].key = Some(vec![7]));
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("encrypted"), "{error}");
    let error = refused(&|builder| builder.is_encrypted = true);
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("encrypted"), "{error}");
    let error = refused(&|builder| builder.json["format-version"] = json!(4));
    assert!(error.kind() == Kind::Newer && error.to_string().contains("format 4"), "{error}");
    // Encryption keys that no file uses do no harm.
    let mut builder = TableBuilder::new(json!([]));
    builder.data(1, vec![n(&[0, 1])]);
    builder.json["encryption-keys"] = json!([{ "key-id": "5f819b", "encrypted-key-metadata": "aWNl" }]);
    assert_eq!(builder.rows().unwrap(), [0, 1]);
    for odd in [json!(7), json!([7]), json!([{ "fields": 7 }]), json!([{ "fields": [7] }]), json!(null)] {
        let error = refused(&|builder| builder.json["partition-specs"] = odd.clone());
        assert_eq!(error.kind(), Kind::Damaged, "{odd}: {error}");
    }
}
