use arrow::array::{Int32Array, StringArray};

use super::*;

fn table(by: &[&str]) -> TableDef {
    let mut def = TableDef::new(types::TableId(1), "main.t");
    for (name, data_type) in [
        ("country", DataType::String),
        ("user", DataType::Int64),
        ("code", DataType::String),
        ("at", DataType::Timestamp),
        ("day", DataType::Date),
        ("ok", DataType::Bool),
        ("share", DataType::Float64),
        ("price", DataType::Decimal { precision: 9, scale: 2 }),
    ] {
        def.add_column(name, &data_type, true, None).unwrap();
    }
    def.set_partition_by(&by.iter().map(|by| (*by).to_owned()).collect::<Vec<_>>()).unwrap();
    def
}

/// Returns the value of a partition with one integer field.
fn number(by: &str, asked: &str) -> i32 {
    let partition = Partition::parse(&table(&[by]), asked).unwrap();
    partition.0[0].wanted.as_ref().unwrap().as_primitive::<arrow::datatypes::Int32Type>().value(0)
}

#[test]
fn values_are_written_as_in_paths() {
    assert_eq!(number("days(at)", "at_day=2026-11-21"), 20_778);
    assert_eq!(number("days(_time)", "_time_day=1969-12-31"), -1);
    assert_eq!(number("months(at)", "at_month=2026-11"), 56 * 12 + 10);
    assert_eq!(number("months(day)", "day_month=1969-12"), -1);
    assert_eq!(number("years(at)", "at_year=2026"), 56);
    assert_eq!(number("years(at)", "at_year=1969"), -1);
    assert_eq!(number("hours(at)", "at_hour=1970-01-02-03"), 27);
    assert_eq!(number("hours(at)", "at_hour=1969-12-31-23"), -1);
    assert_eq!(number("bucket(16, user)", "user_bucket_16=15"), 15);
    // The field has the name that Iceberg's builders give it.
    assert_eq!(number("bucket(16, user)", "user_bucket=3"), 3);
    let text = |by: &str, asked: &str| {
        let partition = Partition::parse(&table(&[by]), asked).unwrap();
        let wanted = partition.0[0].wanted.as_ref();
        wanted.map(|wanted| wanted.as_string::<i32>().value(0).to_owned())
    };
    assert_eq!(text("country", "country=de").as_deref(), Some("de"));
    assert_eq!(text("country", "country=").as_deref(), Some(""));
    assert_eq!(text("country", "country=a%2Fb%3Dc%25").as_deref(), Some("a/b=c%"));
    assert_eq!(text("truncate(4, code)", "code_trunc_4=abcd").as_deref(), Some("abcd"));
    assert_eq!(text("truncate(4, code)", "code_trunc=abcd").as_deref(), Some("abcd"));
    // A text may be the word "null"; for other types it means null.
    assert_eq!(text("country", "country=null").as_deref(), Some("null"));
    assert_eq!(text("country", "country=__HIVE_DEFAULT_PARTITION__"), None);
    assert_eq!(text("days(at)", "at_day=null"), None);
    for fits in ["ok=true", "share=1.5", "share=NaN", "price=12.50", "day=2026-11-21", "user=-7"] {
        let (column, _) = fits.split_once('=').unwrap();
        Partition::parse(&table(&[column]), fits).unwrap();
    }
    let several = table(&["country", "days(at)", "bucket(4, user)"]);
    assert_eq!(Partition::parse(&several, "at_day=2026-11-21/country=de").unwrap().0.len(), 2);
}

#[test]
fn what_names_no_partition_is_refused_with_those_that_there_are() {
    let def = table(&["country", "days(at)", "bucket(4, user)", "bucket(8, user)", "truncate(3, code)"]);
    for (asked, why) in [
        ("", "`partition` is name=value, `` was given"),
        ("de", "`partition` is name=value, `de` was given"),
        ("country=de/", "`partition` is name=value, `` was given"),
        ("land=de", "there is no partition field `land`"),
        ("at=2026-11-21", "there is no partition field `at`"),
        ("country=de/country=fr", "`country` is given twice"),
        ("country=%ff", "`%ff` is not UTF-8"),
        ("at_day=21.11.2026", "`at_day` is a day as 2026-11-21, `21.11.2026` was given"),
        ("at_day=20778", "`at_day` is a day as 2026-11-21"),
        ("user_bucket_4=4", "`user_bucket_4` is a whole number below 4, `4` was given"),
        ("user_bucket_4=-1", "`user_bucket_4` is a whole number below 4"),
        ("user_bucket_4=x", "`user_bucket_4` is a whole number below 4"),
        // Two fields match this short name, so neither is chosen.
        ("user_bucket=1", "there is no partition field `user_bucket`"),
    ] {
        let error = Partition::parse(&def, asked).unwrap_err();
        assert_eq!(error.kind(), types::Kind::Invalid, "{asked}");
        assert!(error.message().contains(why), "{asked}: {error}");
    }
    let error = Partition::parse(&def, "land=de").unwrap_err();
    let hint = error.hint_text().unwrap();
    assert!(hint.contains("`country`") && hint.contains("`user_bucket_8`"), "{hint}");
    let error = Partition::parse(&table(&[]), "country=de").unwrap_err();
    assert_eq!(error.hint_text(), Some("the table has no `partition_by`"));
    for (by, asked) in [
        ("years(at)", "at_year=26"),
        ("years(at)", "at_year=2026-11"),
        ("months(at)", "at_month=2026-13"),
        ("months(at)", "at_month=2026"),
        ("hours(at)", "at_hour=2026-11-21"),
        ("hours(at)", "at_hour=2026-11-21-24"),
        ("hours(at)", "at_hour=2026-11-21-8"),
        ("user", "user=1.5"),
        ("ok", "ok=yes"),
        ("share", "share=half"),
        ("price", "price=1.234"),
    ] {
        assert!(Partition::parse(&table(&[by]), asked).is_err(), "{asked}");
    }
}

#[test]
fn a_mask_takes_the_rows_of_all_fields_and_nulls_where_they_are_asked_for() {
    let def = table(&["country", "bucket(4, user)"]);
    let countries: ArrayRef =
        Arc::new(StringArray::from(vec![Some("de"), Some("fr"), None, Some("de"), Some("de")]));
    let users: ArrayRef =
        Arc::new(arrow::array::Int64Array::from(vec![Some(1), Some(1), Some(1), None, Some(2)]));
    let mask = |asked: &str| {
        let partition = Partition::parse(&def, asked).unwrap();
        let country = def.schema.column_named("country").unwrap().id;
        let mask =
            partition.mask_of(|part| if part.column == country { countries.clone() } else { users.clone() });
        mask.unwrap().values().set_indices().collect::<Vec<_>>()
    };
    assert_eq!(mask("country=de"), [0, 3, 4]);
    assert_eq!(mask("country=__HIVE_DEFAULT_PARTITION__"), [2]);
    assert_eq!(mask("user_bucket_4=null"), [3]);
    let buckets: Vec<Vec<usize>> = (0..4).map(|n| mask(&format!("country=de/user_bucket_4={n}"))).collect();
    let mut all = buckets.concat();
    all.sort_unstable();
    assert_eq!(all, [0, 4], "each in one bucket, the null in none");
    let values = transform::apply(Transform::Bucket(4), &users).unwrap();
    let values: &Int32Array = values.as_primitive();
    assert!(buckets[usize::try_from(values.value(0)).unwrap()].contains(&0));
}
