use types::{DataType, TableDef, TableId};

use super::*;
use crate::schema::Columns;

fn def(partition_by: &[&str], sort_by: &[&str]) -> TableDef {
    let mut def = TableDef::new(TableId(1), "main.t");
    def.add_column("at", &DataType::Timestamp, true, None).unwrap();
    def.add_column("user", &DataType::String, true, None).unwrap();
    def.add_column("n", &DataType::Int32, true, None).unwrap();
    lay_out(&mut def, partition_by, sort_by);
    def
}

fn lay_out(def: &mut TableDef, partition_by: &[&str], sort_by: &[&str]) {
    let texts = |by: &[&str]| by.iter().map(|by| (*by).to_owned()).collect::<Vec<_>>();
    def.set_partition_by(&texts(partition_by)).unwrap();
    def.set_sort_by(&texts(sort_by)).unwrap();
}

fn columns(def: &TableDef) -> Columns {
    Columns::of(&std::sync::Arc::new(def.clone())).unwrap()
}

fn metadata(def: &TableDef) -> Metadata {
    let columns = columns(def);
    Metadata::new("u".into(), "/t".into(), &columns.iceberg, columns.last_id, &columns.layout, 1)
}

/// Names, transforms and numbers of the default spec's fields.
fn spec(metadata: &Metadata) -> (i32, Vec<(String, String, i32)>) {
    let json = by_id(&metadata.partition_specs, "spec-id", metadata.default_spec_id).unwrap();
    let text = |field: &Json, key: &str| field[key].as_str().unwrap().to_owned();
    let field = |field: &Json| (text(field, "name"), text(field, "transform"), number(field, "field-id"));
    (metadata.default_spec_id, fields_of(json).map(field).collect())
}

fn change(metadata: &mut Metadata, def: &TableDef) {
    let columns = columns(def);
    metadata.set_schema(&columns.iceberg, columns.last_id);
    metadata.set_layout(&columns.layout);
    assert!(metadata.has_layout(&columns.layout));
}

#[test]
fn a_spec_is_numbered_and_named_as_iceberg_does_it() {
    let by = ["days(at)", "bucket(16, user)", "truncate(4, user)", "user", "hours(_time)"];
    let metadata = metadata(&def(&by, &["user", "n desc nulls last"]));
    let expected = [
        ("at_day", "day", 1000),
        ("user_bucket_16", "bucket[16]", 1001),
        ("user_trunc_4", "truncate[4]", 1002),
        ("user", "identity", 1003),
        ("_time_hour", "hour", 1004),
    ];
    let expected = expected.map(|(name, transform, id)| (name.to_owned(), transform.to_owned(), id));
    assert_eq!(spec(&metadata), (0, expected.to_vec()));
    assert_eq!((metadata.last_partition_id, metadata.partition_specs.len()), (1004, 1));
    assert_eq!(
        metadata.sort_orders,
        [
            json!({ "order-id": 0, "fields": [] }),
            json!({ "order-id": 1, "fields": [
                { "transform": "identity", "source-id": 17, "direction": "asc", "null-order": "nulls-last" },
                { "transform": "identity", "source-id": 18, "direction": "desc", "null-order": "nulls-last" },
            ]})
        ]
    );
    assert_eq!(metadata.default_sort_order_id, 1);
}

#[test]
fn another_layout_is_another_spec_and_what_was_there_before_keeps_its_numbers() {
    let mut metadata = metadata(&def(&[], &[]));
    assert_eq!((spec(&metadata), metadata.default_sort_order_id), ((0, vec![]), 0));
    change(&mut metadata, &def(&["days(at)", "user"], &["n"]));
    let field = |name: &str, transform: &str, id| (name.to_owned(), transform.to_owned(), id);
    let (day, user) = (field("at_day", "day", 1000), field("user", "identity", 1001));
    assert_eq!(spec(&metadata), (1, vec![day.clone(), user.clone()]));
    change(&mut metadata, &def(&["user", "bucket(4, n)"], &[]));
    let bucket = field("n_bucket_4", "bucket[4]", 1002);
    assert_eq!(spec(&metadata), (2, vec![user.clone(), bucket]));
    assert_eq!(metadata.default_sort_order_id, 0);
    change(&mut metadata, &def(&["days(at)", "user"], &["n"]));
    assert_eq!((spec(&metadata), metadata.default_sort_order_id), ((1, vec![day, user]), 1));
    change(&mut metadata, &def(&[], &[]));
    assert_eq!(spec(&metadata), (0, vec![]));
    assert_eq!((metadata.partition_specs.len(), metadata.sort_orders.len()), (3, 2));
    assert_eq!(metadata.last_partition_id, 1002);
}

/// Java refuses tables in which they are equal.
#[test]
fn a_partition_field_never_has_the_name_of_another_column() {
    let mut def = def(&["days(at)", "user"], &[]);
    let mut metadata = metadata(&def);
    def.add_column("AT_day", &DataType::Int32, true, None).unwrap();
    change(&mut metadata, &def);
    let names = |metadata: &Metadata| spec(metadata).1.into_iter().map(|f| f.0).collect::<Vec<_>>();
    assert_eq!(names(&metadata), ["at_day_1000", "user"]);
    // Earlier specs change too, because files refer to them.
    lay_out(&mut def, &[], &[]);
    def.alter(&types::AlterAction::RenameColumn { from: "user".into(), to: "who".into() }).unwrap();
    def.add_column("user", &DataType::Int32, true, None).unwrap();
    change(&mut metadata, &def);
    let old = &metadata.partition_specs[0]["fields"];
    assert_eq!((&old[0]["name"], &old[1]["name"]), (&json!("at_day_1000"), &json!("user_1001")));
    lay_out(&mut def, &["AT_day", "days(at)"], &[]);
    change(&mut metadata, &def);
    assert_eq!(names(&metadata), ["AT_day", "at_day_1000"]);
}

#[test]
fn the_type_of_a_column_that_is_gone_is_known_as_long_as_a_schema_has_it() {
    let mut table = def(&["user"], &[]);
    let mut metadata = metadata(&table);
    assert_eq!(metadata.dropped_source_columns(), [0; 0]);
    lay_out(&mut table, &[], &[]);
    table.alter(&types::AlterAction::DropColumn { name: "user".into(), if_exists: false }).unwrap();
    change(&mut metadata, &table);
    assert_eq!(metadata.dropped_source_columns(), [17]);
    assert_eq!(metadata.type_of(17), Some(PrimitiveType::String));
    assert_eq!(metadata.type_of(99), None);
}
