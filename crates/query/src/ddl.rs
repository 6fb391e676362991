//! Turns CREATE TABLE and CREATE INDEX into definitions.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ColumnOption, CreateIndex, CreateTable, CreateTableOptions, Expr, Ident, IndexColumn,
    IndexType, NullsDistinctOption, ObjectNamePart, SqlOption, TableConstraint, UniqueConstraint,
    Value as SqlValue,
};
use dialect::values::literal;
use sql::names::ParsedTableName;
use sql::not_yet;
use sql::sql_type;
use types::{DataType, Error, HotLimit, NewIndex, Result, TableDef, TableId, Value, name};

/// Returns the table definition of a CREATE TABLE; for CREATE TABLE AS, all of it but the columns.
pub(crate) fn definition(create: &CreateTable) -> Result<TableDef> {
    refuse_what_is_missing(create)?;
    let full_name = name::full_table_name(&ParsedTableName::of(&create.name)?.text())?;
    let mut def = TableDef::new(TableId(0), full_name);
    let mut key: Vec<String> = Vec::new();
    let mut uniques: Vec<NewIndex> = Vec::new();
    for column in &create.columns {
        let data_type = sql_type::from_sql(&column.data_type)
            .map_err(|e| e.with("column", name::printable(&column.name.value)))?;
        let (mut nullable, mut default) = (true, None);
        for option in &column.options {
            match &option.option {
                ColumnOption::Null => nullable = true,
                ColumnOption::NotNull => nullable = false,
                ColumnOption::PrimaryKey(_) if key.is_empty() => key.push(column.name.value.clone()),
                ColumnOption::Unique(unique) => {
                    let mut index = unique_index(unique)?;
                    index.columns = vec![column.name.value.clone()];
                    index.name = option.name.as_ref().map_or(index.name, |name| name.value.clone());
                    uniques.push(index);
                }
                ColumnOption::PrimaryKey(_) => {
                    return Err(Error::invalid("two columns are declared PRIMARY KEY")
                        .hint("write PRIMARY KEY (a, b) after the columns"));
                }
                ColumnOption::Default(expr) => {
                    default = default_value(expr, &data_type, &column.name.value)?;
                }
                other => return Err(not_yet(&format!("`{other}` on a column"))),
            }
        }
        def.add_column(&column.name.value, &data_type, nullable, default)?;
    }
    for constraint in &create.constraints {
        match constraint {
            TableConstraint::PrimaryKey(primary) if key.is_empty() => {
                key = primary.columns.iter().map(key_column).collect::<Result<_>>()?;
            }
            TableConstraint::PrimaryKey(_) => return Err(Error::invalid("two primary keys are declared")),
            TableConstraint::Unique(unique) => {
                uniques.push(unique_index(unique)?);
            }
            other => return Err(not_yet(&format!("`{other}`"))),
        }
    }
    if create.query.is_none() {
        if def.schema.columns.is_empty() {
            return Err(Error::invalid("a table needs a column"));
        }
        def.set_primary_key(&key)?;
        for unique in &uniques {
            def.add_index(unique)?;
        }
        options(&create.table_options, &mut def)?;
    }
    Ok(def)
}

/// Returns the index of a UNIQUE constraint in CREATE TABLE or ALTER TABLE.
pub(crate) fn unique_index(unique: &UniqueConstraint) -> Result<NewIndex> {
    if matches!(unique.nulls_distinct, NullsDistinctOption::NotDistinct) {
        return Err(not_yet("NULLS NOT DISTINCT"));
    }
    let name = unique.name.as_ref().or(unique.index_name.as_ref()).map(|name| name.value.clone());
    let kind = types::INDEX_COLUMN.to_owned();
    let columns = unique.columns.iter().map(key_column).collect::<Result<_>>()?;
    Ok(NewIndex { name: name.unwrap_or_default(), kind, columns, options: Vec::new(), unique: true })
}

/// Returns the value of a DEFAULT clause; `None` for null.
pub(crate) fn default_value(expr: &Expr, data_type: &DataType, column: &str) -> Result<Option<Value>> {
    let value = literal::value(expr, data_type, &[]).ok_or_else(|| {
        Error::invalid(format!("DEFAULT {expr} is not supported yet")).hint("a default is a literal")
    })?;
    let value = value.map_err(|e| e.with("column", name::printable(column)))?;
    Ok(Some(value).filter(|value| *value != Value::Null))
}

/// Applies the options of CREATE TABLE … WITH (…) to `def`, whose columns must be set.
pub(crate) fn options(given: &CreateTableOptions, def: &mut TableDef) -> Result<()> {
    let given = match given {
        CreateTableOptions::None => return Ok(()),
        CreateTableOptions::With(options) => options,
        other => return Err(not_yet(&format!("`{other}`"))),
    };
    for option in given {
        let SqlOption::KeyValue { key, value } = option else {
            return Err(
                Error::invalid(format!("`{option}` is not an option")).hint("write WITH (name = value)")
            );
        };
        let wrong =
            |expected: &str| Error::invalid(format!("{expected} is expected for `{key}`, {value} was given"));
        match key.value.to_ascii_lowercase().as_str() {
            "lake" => match text(value).as_deref() {
                Some("true" | "on") => def.options.lake = Some(true),
                Some("false" | "off") => def.options.lake = Some(false),
                _ => return Err(wrong("true or false")),
            },
            // Earlier versions stored it without effect.
            "retention" => {
                return Err(Error::invalid("`retention` deletes nothing")
                    .hint("write `ttl = '7 days'`: rows that are older are deleted; `hot` says what stays on this machine"));
            }
            "ttl" => def.options.ttl = time_to_live(value)?,
            "hot" => {
                def.set_hot(hot(value)?);
                def.check_hot()?;
            }
            "time" => {
                let wanted = text(value).ok_or_else(|| wrong("a column"))?;
                let column = def.schema.column_named(&wanted).ok_or_else(|| wrong("a column"))?;
                if column.data_type != DataType::Timestamp {
                    return Err(wrong("a timestamp column"));
                }
                def.time = Some(column.id);
            }
            "partition_by" => def.set_partition_by(&layout("partition_by", value)?)?,
            "sort_by" => def.set_sort_by(&layout("sort_by", value)?)?,
            other => {
                return Err(Error::invalid(format!(
                    "`{}` is not an option of a table",
                    name::printable(other)
                ))
                .hint("options are hot, ttl, time, lake, partition_by and sort_by"));
            }
        }
    }
    Ok(())
}

/// Parses the value of `ttl`: a time such as '7 days', in microseconds, or none.
pub(crate) fn time_to_live(value: &Expr) -> Result<Option<i64>> {
    let text = text(value).unwrap_or_default();
    match duration(&text) {
        Some(micros) => Ok(Some(micros)),
        None if text.eq_ignore_ascii_case("none") => Ok(None),
        None => Err(Error::invalid(format!(
            "a time as '7 days', or none, is expected for `ttl`, {value} was given"
        ))),
    }
}

/// Parses the value of `hot`: a time such as '24 hours', bytes such as '10 GB', or none.
pub(crate) fn hot(value: &Expr) -> Result<Option<HotLimit>> {
    let text = text(value).unwrap_or_default();
    match (duration(&text), bytes(&text)) {
        (Some(micros), _) => Ok(Some(HotLimit::Micros(micros))),
        (None, Some(bytes)) => Ok(Some(HotLimit::Bytes(bytes))),
        _ if text.eq_ignore_ascii_case("none") => Ok(None),
        _ => Err(Error::invalid(format!(
            "a time as '24 hours', bytes as '10 GB', or none, is expected for `hot`, {value} was given"
        ))),
    }
}

/// Parses bytes: `10 GB`, `512mb`, `1 TiB`.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let count: u64 = text[..digits].parse().ok()?;
    let unit: u64 = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "b" | "bytes" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return None,
    };
    count.checked_mul(unit)
}

/// Parses the value of `time` for an existing table: a column, or none.
pub(crate) fn time_column(value: &Expr) -> Result<Option<String>> {
    match text(value) {
        Some(text) if text.eq_ignore_ascii_case("none") => Ok(None),
        Some(text) => Ok(Some(text)),
        None => Err(Error::invalid(format!("a column, or none, is expected for `time`, {value} was given"))),
    }
}

/// Parses the value of `partition_by` or `sort_by`: a list in one text, or none.
pub(crate) fn layout(option: &str, value: &Expr) -> Result<Vec<String>> {
    match text(value) {
        Some(text) if text.eq_ignore_ascii_case("none") => Ok(Vec::new()),
        Some(text) => Ok(types::layout::split_list(&text)),
        None => Err(Error::invalid(format!(
            "a text as 'days(at), user', or none, is expected for `{option}`, {value} was given"
        ))),
    }
}

fn text(value: &Expr) -> Option<String> {
    match value {
        Expr::Identifier(ident) => Some(ident.value.clone()),
        Expr::Value(value) => match &value.value {
            SqlValue::Boolean(v) => Some(v.to_string()),
            SqlValue::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Parses a time such as `7 days`, `24h` or `90 minutes` into microseconds.
fn duration(text: &str) -> Option<i64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let count: i64 = text[..digits].parse().ok().filter(|count| *count > 0)?;
    let seconds = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "s" | "second" | "seconds" => 1,
        "m" | "min" | "minute" | "minutes" => 60,
        "h" | "hour" | "hours" => 3_600,
        "d" | "day" | "days" => 86_400,
        "w" | "week" | "weeks" => 604_800,
        _ => return None,
    };
    count.checked_mul(seconds)?.checked_mul(1_000_000)
}

fn key_column(column: &IndexColumn) -> Result<String> {
    match &column.column.expr {
        Expr::Identifier(Ident { value, .. }) => Ok(value.clone()),
        other => {
            Err(Error::invalid(format!("`{other}` cannot be part of a key")).hint("a key is made of columns"))
        }
    }
}

fn refuse_what_is_missing(create: &CreateTable) -> Result<()> {
    let missing = [
        (create.or_replace, "CREATE OR REPLACE TABLE"),
        (create.temporary, "CREATE TEMPORARY TABLE"),
        (create.external, "CREATE EXTERNAL TABLE"),
        (create.like.is_some(), "CREATE TABLE … LIKE"),
        (create.clone.is_some(), "CREATE TABLE … CLONE"),
        (create.inherits.is_some(), "INHERITS"),
        (create.partition_by.is_some(), "PARTITION BY after CREATE TABLE"),
        (create.partition_of.is_some(), "PARTITION OF"),
        (create.on_commit.is_some(), "ON COMMIT"),
    ];
    match missing.into_iter().find(|(asked, _)| *asked) {
        Some((_, what)) => Err(not_yet(what)),
        None => Ok(()),
    }
}

/// Returns the index of a CREATE INDEX, and its table.
pub(crate) fn index(create: &CreateIndex) -> Result<(ParsedTableName, NewIndex)> {
    let missing = [
        (!create.include.is_empty(), "INCLUDE"),
        (create.nulls_distinct == Some(false), "NULLS NOT DISTINCT"),
        (create.predicate.is_some(), "an index with WHERE"),
        (!create.index_options.is_empty() || !create.alter_options.is_empty(), "this option of an index"),
    ];
    if let Some((_, what)) = missing.into_iter().find(|(asked, _)| *asked) {
        return Err(not_yet(what));
    }
    let example = "write CREATE INDEX ON goods (price), or CREATE INDEX ON notes USING text (title, body) WITH (language = 'english')";
    let kind = match &create.using {
        Some(IndexType::Custom(kind)) => kind.value.to_ascii_lowercase(),
        // Other databases call an index of sorted values a B-tree.
        None | Some(IndexType::BTree) => "column".to_owned(),
        Some(other) => {
            return Err(Error::invalid(format!(
                "there are no {other} indexes; a column index finds single values and ranges"
            ))
            .hint(example));
        }
    };
    let is_ordered = kind == "column";
    let mut columns = Vec::with_capacity(create.columns.len());
    for IndexColumn { column, operator_class } in &create.columns {
        // A column index can be read in both directions.
        let plain = is_ordered || column.options.asc.is_none() && column.options.nulls_first.is_none();
        match &column.expr {
            Expr::Identifier(ident) if plain && operator_class.is_none() => columns.push(ident.value.clone()),
            _ => {
                return Err(Error::invalid(format!(
                    "`{column}` cannot be indexed: an index is made of columns"
                ))
                .hint(example));
            }
        }
    }
    let mut options = Vec::with_capacity(create.with.len());
    for option in &create.with {
        let wrong =
            || Error::invalid(format!("`{option}` is not an option")).hint("write WITH (name = 'value')");
        let Expr::BinaryOp { left, op: BinaryOperator::Eq, right } = option else { return Err(wrong()) };
        let Expr::Identifier(key) = left.as_ref() else { return Err(wrong()) };
        let value = match right.as_ref() {
            Expr::Value(value) => match &value.value {
                SqlValue::Number(number, _) => Some(number.clone()),
                _ => text(right),
            },
            other => text(other),
        };
        options.push((key.value.to_ascii_lowercase(), value.ok_or_else(wrong)?));
    }
    let index_name = match create.name.as_ref().map(|name| name.0.as_slice()) {
        None => String::new(),
        Some([ObjectNamePart::Identifier(name)]) => name.value.clone(),
        Some(_) => return Err(Error::invalid("the name of an index has one part")),
    };
    Ok((
        ParsedTableName::of(&create.table_name)?,
        NewIndex { name: index_name, kind, columns, options, unique: create.unique },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::ast::Statement;
    use sql::parse;

    fn def(text: &str) -> Result<TableDef> {
        let Statement::CreateTable(create) = parse::statement(text, 10_000)? else { panic!("a table") };
        definition(&create)
    }

    #[test]
    fn columns_defaults_and_keys_are_read() {
        let def = def("create table sensors.T (
            a bigint not null, B text default 'it''s', c decimal(10,2) default -1.5, d timestamptz, primary key (a, b)
        ) with (lake = false)")
        .unwrap();
        assert_eq!(def.name, "sensors.T");
        assert_eq!(
            def.schema.columns.iter().map(|c| c.nullable).collect::<Vec<_>>(),
            [false, false, true, true]
        );
        assert_eq!(def.schema.columns[1].default, Some(Value::String("it's".into())));
        assert_eq!(def.schema.columns[2].default, Some(Value::Decimal(-150)));
        assert_eq!(def.primary_key.len(), 2);
        assert_eq!(def.options.lake, Some(false));
    }

    #[test]
    fn options_are_checked() {
        let with = |options: &str| def(&format!("create table t (x int, at timestamp) with ({options})"));
        let hot = |text| with(text).unwrap().options;
        assert_eq!(hot("hot = '24 hours'").hot, Some(types::HotLimit::Micros(86_400_000_000)));
        assert_eq!(hot("hot = '10 GB'").hot, Some(types::HotLimit::Bytes(10_000_000_000)));
        assert_eq!(hot("hot = '10 GB'").lake, Some(true), "it has a lake from now on");
        assert!(with("retention = '2 days'").unwrap_err().hint_text().unwrap().contains("ttl"));
        assert_eq!(with("ttl = '90 minutes'").unwrap().options.ttl, Some(5_400_000_000));
        assert_eq!(with("ttl = none").unwrap().options.ttl, None);
        assert_eq!(with("time = 'AT'").unwrap().time, Some(types::ColumnId(17)));
        let laid_out = with("partition_by = 'days(at), bucket(16, x)', sort_by = 'x desc, at'").unwrap();
        assert_eq!(laid_out.options.partition_by, ["days(at)", "bucket(16, x)"]);
        assert_eq!(laid_out.options.sort_by, ["x desc", "at"]);
        assert!(with("partition_by = none, sort_by = none").unwrap().options.partition_by.is_empty());
        for bad in [
            "lake = 3",
            "hot = 'warm'",
            "hot = '10'",
            "lake = false, hot = '1 day'",
            "time = 'x'",
            "speed = 'high'",
            "ttl = '0 s'",
            "ttl = 7",
            "partition_by = 'days(x)'",
            "sort_by = 'y'",
            "sort_by = 7",
        ] {
            assert!(with(bad).is_err(), "{bad}");
        }
        assert!(def("create table t (x int primary key) with (hot = '1h')").is_err());
        assert!(def("create table t (x int unique) with (hot = '1h')").is_err());
    }

    #[test]
    fn what_is_not_there_is_said_plainly() {
        for text in [
            "create table t (x int, unique nulls not distinct (x))",
            "create table t (x int references y(z))",
            "create table t (x int check (x > 0))",
            "create temporary table t (x int)",
            "create table t (x int default random())",
        ] {
            let error = def(text).unwrap_err();
            assert!(error.message().contains("not supported yet"), "{text}: {error}");
        }
    }
}
