use types::{TableId, Value};

use super::*;

fn def(columns: &[(&str, &str)]) -> Arc<TableDef> {
    let mut def = TableDef::new(TableId(1), "main.t");
    for (name, data_type) in columns {
        let data_type = DataType::parse(data_type, &mut ColumnId(0)).unwrap();
        def.add_column(name, &data_type, true, None).unwrap();
    }
    Arc::new(def)
}

#[test]
fn field_ids_are_the_column_ids_and_system_columns_come_first() {
    let columns =
        Columns::of(&def(&[("a", "int64"), ("b", "list<struct<c: string>>"), ("d", "decimal(10,2)")]))
            .unwrap();
    let fields = columns.iceberg["fields"].as_array().unwrap();
    let of = |at: usize| (fields[at]["id"].as_i64().unwrap(), fields[at]["name"].as_str().unwrap());
    assert_eq!(
        [of(0), of(1), of(2), of(3), of(4)],
        [(1, "_polynya_row_id"), (2, "_time"), (16, "a"), (17, "b"), (20, "d")]
    );
    assert_eq!(fields[0]["required"], true);
    assert_eq!(fields[1]["type"], "timestamptz");
    assert_eq!(fields[3]["type"]["element-id"], 18);
    assert_eq!(fields[3]["type"]["element"]["fields"][0]["id"], 19);
    assert_eq!(fields[4]["type"], "decimal(10, 2)");
    assert_eq!(columns.last_id, 20);
    // Parquet has the same ids. List elements have no bounds.
    let ids: Vec<i32> =
        columns.parquet.root_schema().get_fields().iter().map(|f| f.get_basic_info().id()).collect();
    assert_eq!(ids, [1, 2, 16, 17, 20]);
    assert_eq!(
        columns.leaves.iter().map(|leaf| (leaf.at, leaf.id)).collect::<Vec<_>>(),
        [(0, 1), (1, 2), (2, 16), (4, 20)]
    );
}

#[test]
fn what_is_in_structs_is_told_of_and_found_in_batches() {
    let columns = [
        ("s", "struct<v: vector(2), p: point, t: struct<l: list<int64>, n: int32>>"),
        ("p", "point3d"),
        ("j", "json"),
    ];
    let columns = Columns::of(&def(&columns)).unwrap();
    let of_parquet = |leaf: &Leaf| columns.parquet.column(leaf.at).self_type().get_basic_info().id();
    let told: Vec<(String, Vec<usize>)> = columns.leaves[2..]
        .iter()
        .map(|leaf| {
            assert_eq!(of_parquet(leaf), leaf.id);
            (columns.parquet.column(leaf.at).path().string(), leaf.path.clone())
        })
        .collect();
    let expected = [
        ("s.p.lon", vec![2, 1, 0]),
        ("s.p.lat", vec![2, 1, 1]),
        ("s.t.n", vec![2, 2, 1]),
        ("p.x", vec![3, 0]),
        ("p.y", vec![3, 1]),
        ("p.z", vec![3, 2]),
        ("j", vec![4]),
    ];
    assert_eq!(told, expected.map(|(name, path)| (name.to_owned(), path)));
}

/// The fields of two points in one struct once had equal ids.
#[test]
fn ids_inside_vectors_and_points_are_unique_and_stable() {
    let columns = [
        ("v", "vector(3)"),
        ("p", "point"),
        ("q", "point3d"),
        ("s", "struct<from: point, to: point, v: list<vector(2)>, w: list<struct<at: point3d>>>"),
        ("w", "vector(2)"),
    ];
    let first = Columns::of(&def(&columns[..4])).unwrap();
    let with_more = Columns::of(&def(&columns)).unwrap();
    let mut ids = Vec::new();
    fn collect(json: &Json, ids: &mut Vec<i64>) {
        for key in ["id", "element-id"] {
            ids.extend(json[key].as_i64());
        }
        for field in json["fields"].as_array().into_iter().flatten() {
            collect(field, ids);
        }
        for key in ["type", "element"] {
            if json[key].is_object() {
                collect(&json[key], ids);
            }
        }
    }
    collect(&with_more.iceberg, &mut ids);
    let mut unique = ids.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(ids.len(), unique.len(), "{ids:?}");
    assert_eq!(i64::from(with_more.last_id), *unique.last().unwrap());
    let of_parquet: Vec<i64> = (0..with_more.parquet.num_columns())
        .flat_map(|leaf| {
            let column = with_more.parquet.column(leaf);
            let info = column.self_type().get_basic_info();
            info.has_id().then(|| i64::from(info.id()))
        })
        .collect();
    assert_eq!(of_parquet.len(), with_more.parquet.num_columns());
    assert!(of_parquet.iter().all(|id| unique.contains(id)), "Parquet says the same ids: {of_parquet:?}");
    let fields = |columns: &Columns| columns.iceberg["fields"].as_array().unwrap()[..6].to_vec();
    assert_eq!(fields(&first), fields(&with_more));
}

#[test]
fn a_column_with_a_value_for_older_rows_is_known() {
    let mut def = (*def(&[("a", "int64")])).clone();
    def.add_column("b", &DataType::Int64, false, Some(Value::Int64(3))).unwrap();
    let columns = Columns::of(&Arc::new(def)).unwrap();
    assert_eq!(columns.initial, [ColumnId(17)]);
    assert_eq!(columns.iceberg["fields"][3]["required"], true);
}

#[test]
fn decimals_take_as_many_bytes_as_the_widest_number_needs() {
    assert_eq!(decimal_bytes(19), 9);
    assert_eq!(decimal_bytes(21), 9);
    assert_eq!(decimal_bytes(22), 10);
    assert_eq!(decimal_bytes(38), 16);
    for precision in 19..=38u8 {
        // The Parquet writer's formula.
        let theirs = (((10f64.powi(precision.into()) + 1.0).log2() + 1.0) / 8.0).ceil();
        assert_eq!(f64::from(decimal_bytes(precision.into())), theirs, "{precision}");
    }
}

#[test]
fn a_struct_without_fields_is_refused_with_its_table_and_column_wherever_it_is() {
    let empty = DataType::Struct(Vec::new());
    let inside = |data_type: DataType| {
        let field = types::Field { id: ColumnId(90), name: "f".into(), data_type, nullable: true };
        [DataType::List(Box::new(field.clone())), DataType::Struct(vec![field])]
    };
    let [in_list, in_struct] = inside(empty.clone());
    for data_type in [empty, in_list.clone(), in_struct].into_iter().chain(inside(in_list)) {
        let mut def = TableDef::new(TableId(1), "main.t");
        def.add_column("fine", &DataType::Int64, true, None).unwrap();
        // An earlier version let such a definition pass.
        def.add_column("c", &DataType::Int64, true, None).unwrap();
        def.schema.columns[1].data_type = data_type;
        let error = Columns::of(&Arc::new(def)).unwrap_err();
        assert_eq!(error.kind(), types::Kind::Schema);
        assert!(error.to_string().contains("column `c`") && error.to_string().contains("main.t"), "{error}");
    }
}
