use super::*;
use crate::codec::{Decoder, Encoder};
use crate::{AlterAction, Kind, TableId};

fn def() -> TableDef {
    let mut def = TableDef::new(TableId(1), "main.t");
    for (name, data_type) in [
        ("user", "string"),
        ("at", "timestamp"),
        ("day", "date"),
        ("n", "int64"),
        ("price", "decimal(9,2)"),
        ("flag", "bool"),
        ("f", "float64"),
        ("raw", "binary"),
        ("id", "uuid"),
        ("place", "point"),
        ("tags", "list<string>"),
        ("odd, (name)", "int32"),
        ("desc", "int32"),
        ("hours", "int32"),
    ] {
        let data_type = DataType::parse(data_type, &mut ColumnId(0)).unwrap();
        def.add_column(name, &data_type, true, None).unwrap();
    }
    def
}

fn id(def: &TableDef, name: &str) -> ColumnId {
    def.schema.column_named(name).unwrap().id
}

fn partition(text: &str) -> Result<PartitionBy> {
    let mut def = def();
    def.set_partition_by(&[text.into()])?;
    Ok(def.partitions()?[0])
}

#[test]
fn each_way_to_partition_is_understood() {
    let def = def();
    for (text, transform, column) in [
        ("user", Transform::Identity, "user"),
        ("USER", Transform::Identity, "user"),
        (" identity( flag )", Transform::Identity, "flag"),
        ("f", Transform::Identity, "f"),
        ("years(at)", Transform::Year, "at"),
        ("Months(day)", Transform::Month, "day"),
        ("day(at)", Transform::Day, "at"),
        ("hours(\"AT\")", Transform::Hour, "at"),
        ("bucket(16, user)", Transform::Bucket(16), "user"),
        ("bucket(2147483647,id)", Transform::Bucket(i32::MAX as u32), "id"),
        ("truncate(4,price)", Transform::Truncate(4), "price"),
        ("truncate(1, raw)", Transform::Truncate(1), "raw"),
        ("odd, (name)", Transform::Identity, "odd, (name)"),
        ("bucket(3, \"odd, (name)\")", Transform::Bucket(3), "odd, (name)"),
        ("hours", Transform::Identity, "hours"),
    ] {
        assert_eq!(partition(text).unwrap(), PartitionBy { transform, column: id(&def, column) }, "{text}");
    }
    assert_eq!(partition("days(_time)").unwrap().column, TIME);
    assert_eq!(partition("truncate(1000, _row_id)").unwrap().column, ROW_ID);
}

#[test]
fn what_iceberg_does_not_have_is_refused_with_a_reason() {
    for (text, part) in [
        ("", "is not a partition field"),
        ("weeks(at)", "is not a partition field"),
        ("days", "there is no column `days`"),
        ("days(at", "is not a partition field"),
        ("days(nothing)", "there is no column `nothing`"),
        ("days(user)", "the column is string"),
        ("hours(day)", "the column is date"),
        ("bucket(user)", "is not a partition field"),
        ("bucket(0, user)", "from 1 on"),
        ("bucket(-1, user)", "from 1 on"),
        ("bucket(2147483648, user)", "from 1 on"),
        ("bucket(4, f)", "the column is float64"),
        ("bucket(4, flag)", "the column is bool"),
        ("truncate(4, at)", "the column is timestamp"),
        ("truncate(x, n)", "from 1 on"),
        ("place", "the column is point"),
        ("tags", "the column is list<string>"),
    ] {
        let error = partition(text).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{text}");
        assert!(error.to_string().contains(part), "{text}: {error}");
    }
    let mut def = def();
    let set = |def: &mut TableDef, by: &[&str]| {
        def.set_partition_by(&by.iter().map(|by| (*by).to_owned()).collect::<Vec<_>>())
    };
    set(&mut def, &["days(at)", "bucket(4, user)", "truncate(2, user)", "user"]).unwrap();
    let before = def.options.clone();
    for by in [&["days(at)", "hours(at)"][..], &["user", "identity(user)"], &["n"; LAYOUT_MAX + 1]] {
        assert_eq!(set(&mut def, by).unwrap_err().kind(), Kind::Invalid, "{by:?}");
        assert_eq!(def.options, before, "what is refused changes nothing");
    }
}

#[test]
fn sort_columns_have_a_direction_and_a_place_for_nulls() {
    let table = def();
    for (text, column, descending, nulls_first) in [
        ("user", "user", false, false),
        ("user asc", "user", false, false),
        ("at DESC", "at", true, true),
        ("at desc nulls last", "at", true, false),
        ("\"odd, (name)\"  nulls   first", "odd, (name)", false, true),
        ("odd, (name) desc", "odd, (name)", true, true),
        ("desc", "desc", false, false),
        ("desc desc", "desc", true, true),
        ("f", "f", false, false),
    ] {
        let mut def = def();
        def.set_sort_by(&[text.into()]).unwrap();
        let expected = SortBy { column: id(&table, column), descending, nulls_first };
        assert_eq!(def.sort_columns().unwrap(), [expected], "{text}");
    }
    for (by, part) in [
        (&["place"][..], "it is point"),
        (&["nothing desc"], "there is no column `nothing`"),
        (&["user upwards"], "there is no column `user upwards`"),
        (&["user", "USER desc"], "second time"),
    ] {
        let by: Vec<String> = by.iter().map(|by| (*by).to_owned()).collect();
        let error = def().set_sort_by(&by).unwrap_err();
        assert!(error.to_string().contains(part), "{by:?}: {error}");
    }
}

#[test]
fn lists_are_cut_outside_of_brackets_and_quotes() {
    let text = "days(at), bucket(16, user) ,\"a, b\", truncate(2, \"c)\"),, n";
    assert_eq!(split_list(text), ["days(at)", "bucket(16, user)", "\"a, b\"", "truncate(2, \"c)\")", "n"]);
    assert!(split_list("  ").is_empty());
}

#[test]
fn columns_that_lay_a_table_out_keep_their_names_until_it_is_laid_out_otherwise() {
    let name = |text: &str| text.to_owned();
    let layout = [
        AlterAction::SetPartitionBy { to: vec![name("bucket(4, user)"), name("days(at)")] },
        AlterAction::SetSortBy { to: vec![name("n desc")] },
    ];
    let laid_out = def().altered(&layout).unwrap().unwrap();
    let mut e = Encoder::new();
    laid_out.encode(&mut e);
    assert_eq!(TableDef::decode(&mut Decoder::new(&e.bytes)).unwrap(), laid_out, "it survives storage");
    assert_eq!(laid_out.altered(&layout).unwrap(), None);
    for (column, part) in [
        ("user", "partitioned by `bucket(4, user)`"),
        ("at", "partitioned by `days(at)`"),
        ("n", "sorted by `n desc`"),
    ] {
        let rename = AlterAction::RenameColumn { from: name(column), to: name("other") };
        let drop = AlterAction::DropColumn { name: name(column), if_exists: false };
        for change in [rename, drop] {
            let error = laid_out.altered(std::slice::from_ref(&change)).unwrap_err();
            assert!(error.to_string().contains(part), "{change:?}: {error}");
            assert!(error.hint_text().unwrap().contains("first"), "{error}");
        }
    }
    // Keywords in the expressions are not column names.
    laid_out.altered(&[AlterAction::DropColumn { name: name("desc"), if_exists: false }]).unwrap().unwrap();
    laid_out.altered(&[AlterAction::DropColumn { name: name("day"), if_exists: false }]).unwrap().unwrap();
    let free = [
        AlterAction::SetPartitionBy { to: Vec::new() },
        AlterAction::SetSortBy { to: Vec::new() },
        AlterAction::DropColumn { name: name("user"), if_exists: false },
    ];
    let free = laid_out.altered(&free).unwrap().unwrap();
    assert!(free.options.partition_by.is_empty() && free.options.sort_by.is_empty());
}

/// Earlier versions stored any text.
#[test]
fn what_was_stored_before_it_was_checked_keeps_nobody_from_changing_the_table() {
    let mut old = def();
    old.options.partition_by = vec!["weeks(at)".into(), "user".into()];
    assert!(old.check_layout().is_err());
    let changed = old.altered(&[AlterAction::RenameColumn { from: "n".into(), to: "m".into() }]);
    changed.unwrap().unwrap();
    assert!(old.altered(&[AlterAction::DropColumn { name: "user".into(), if_exists: false }]).is_err());
    let cured = old.altered(&[AlterAction::SetPartitionBy { to: vec!["days(at)".into()] }]).unwrap().unwrap();
    cured.check_layout().unwrap();
}

#[test]
fn partitions_by_which_readers_leave_out_rows_are_warned_of() {
    let mut def = def();
    let mut warned = |by: &str| {
        def.set_partition_by(&[by.into()]).unwrap();
        def.partition_warnings()
    };
    for by in
        ["day", "at", "price", "f", "id", "months(day)", "days(at)", "hours(at)", "truncate(10, n)", "_time"]
    {
        let warnings = warned(by);
        assert!(warnings.len() == 1 && warnings[0].contains(by), "{by}: {warnings:?}");
    }
    assert!(warned("months(day)")[0].contains("DuckDB") && warned("id")[0].contains("PyIceberg"));
    for by in ["user", "n", "flag", "raw", "bucket(4, id)", "truncate(3, user)", "years(at)", "days(_time)"] {
        assert_eq!(warned(by), Vec::<String>::new(), "{by}");
    }
}
