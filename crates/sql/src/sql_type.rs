//! Conversions between SQL's type names, Polynya's types and the Arrow types of expressions.

use arrow::datatypes::{DataType as Arrow, Field as ArrowField, TimeUnit};
use sqlparser::ast::{
    ArrayElemTypeDef, DataType as SqlType, ExactNumberInfo, GeometricTypeKind, ObjectNamePart,
};
use types::{ColumnId, DataType, Error, Field, Result, name};

const EXTENSION_KEY: &str = "ARROW:extension:name";

/// Returns the type of a column that is declared with `sql`. Nested fields get placeholder ids; `TableDef::add_column` replaces
/// them.
pub fn from_sql(sql: &SqlType) -> Result<DataType> {
    Ok(match sql {
        SqlType::Bool | SqlType::Boolean => DataType::Bool,
        SqlType::TinyInt(_) | SqlType::SmallInt(_) | SqlType::Int2(_) => DataType::Int32,
        SqlType::Int(_) | SqlType::Integer(_) | SqlType::Int4(_) | SqlType::Int32 => DataType::Int32,
        SqlType::BigInt(_) | SqlType::Int8(_) | SqlType::Int64 => DataType::Int64,
        SqlType::Real | SqlType::Float4 | SqlType::Float32 => DataType::Float32,
        // PostgreSQL's rule: float(1..24) has single precision, everything else double.
        SqlType::Float(ExactNumberInfo::Precision(1..=24)) => DataType::Float32,
        SqlType::Float(_)
        | SqlType::Double(_)
        | SqlType::DoublePrecision
        | SqlType::Float8
        | SqlType::Float64 => DataType::Float64,
        SqlType::Decimal(info) | SqlType::Numeric(info) | SqlType::Dec(info) => decimal(info)?,
        SqlType::Text
        | SqlType::String(_)
        | SqlType::Varchar(None)
        | SqlType::CharacterVarying(None)
        | SqlType::CharVarying(None) => DataType::String,
        SqlType::Varchar(_)
        | SqlType::CharacterVarying(_)
        | SqlType::CharVarying(_)
        | SqlType::Char(_)
        | SqlType::Character(_) => {
            return Err(
                Error::invalid(format!("`{sql}`: strings have no length limit here")).hint("use text")
            );
        }
        SqlType::Bytea | SqlType::Blob(_) | SqlType::Binary(None) | SqlType::Varbinary(None) => {
            DataType::Binary
        }
        SqlType::Date => DataType::Date,
        SqlType::Timestamp(precision, _) => timestamp(*precision, sql)?,
        SqlType::Datetime(precision) => timestamp(*precision, sql)?,
        SqlType::Uuid => DataType::Uuid,
        SqlType::JSON | SqlType::JSONB => DataType::Json,
        SqlType::GeometricType(GeometricTypeKind::Point) => DataType::Point,
        SqlType::Array(
            ArrayElemTypeDef::SquareBracket(item, None) | ArrayElemTypeDef::AngleBracket(item),
        ) => {
            let data_type = from_sql(item)?;
            // The dialect accepts any number of `[]`; storage bounds the levels.
            let list = DataType::List(Box::new(Field {
                id: ColumnId(0),
                name: "item".into(),
                data_type,
                nullable: true,
            }));
            list.check()?;
            list
        }
        SqlType::Custom(name, arguments) => custom(name.0.as_slice(), arguments)?,
        SqlType::Unspecified => {
            return Err(Error::invalid("a column without a type").hint("write `name type`"));
        }
        other => {
            // A type that the dialect reads under another name may still be one of Polynya's.
            return DataType::parse(&other.to_string(), &mut ColumnId(0));
        }
    })
}

fn custom(name: &[ObjectNamePart], arguments: &[String]) -> Result<DataType> {
    let [ObjectNamePart::Identifier(name)] = name else {
        return Err(Error::invalid("a type's name has one part"));
    };
    let text = match (name.value.to_ascii_lowercase().as_str(), arguments) {
        (_, []) => name.value.clone(),
        (word, arguments) => format!("{word}({})", arguments.join(",")),
    };
    let text = match text.split_at_checked(6) {
        Some((start, rest)) if start.eq_ignore_ascii_case("array<") => format!("list<{rest}"),
        _ => text,
    };
    DataType::parse(&text, &mut ColumnId(0))
}

fn decimal(info: &ExactNumberInfo) -> Result<DataType> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => (38, 9),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    DataType::parse(&format!("decimal({precision},{scale})"), &mut ColumnId(0))
}

fn timestamp(precision: Option<u64>, sql: &SqlType) -> Result<DataType> {
    match precision {
        None | Some(6) => Ok(DataType::Timestamp),
        Some(_) => {
            Err(Error::invalid(format!("`{sql}`: timestamps are in microseconds")).hint("use timestamptz"))
        }
    }
}

/// Returns the Arrow type that CAST gives, where DataFusion's own choice differs from Polynya's: timestamps are in microseconds
/// and UTC, with or without a zone, and Polynya has types of its own. `None` leaves the choice to DataFusion.
pub fn cast_target(sql: &SqlType) -> Option<Arrow> {
    match sql {
        // PostgreSQL takes a precision above six for six.
        SqlType::Timestamp(None | Some(6..), _) | SqlType::Datetime(None) => {
            Some(DataType::Timestamp.to_arrow())
        }
        SqlType::Float(_) => from_sql(sql).ok().map(|data_type| data_type.to_arrow()),
        SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Interval { .. } => None,
        SqlType::Custom(name, zone) => {
            time_in_zone(&name.0, zone).or_else(|| from_sql(sql).ok().map(|data_type| data_type.to_arrow()))
        }
        SqlType::JSON | SqlType::JSONB | SqlType::Uuid | SqlType::GeometricType(_) => {
            from_sql(sql).ok().map(|data_type| data_type.to_arrow())
        }
        SqlType::CharacterVarying(_) | SqlType::Character(_) => Some(Arrow::Utf8),
        SqlType::Decimal(ExactNumberInfo::None) | SqlType::Numeric(ExactNumberInfo::None) => {
            from_sql(sql).ok().map(|data_type| data_type.to_arrow())
        }
        _ => None,
    }
}

/// Name of a type that no statement can write: a time in a zone. Its only argument is the zone.
pub const TIME_IN_ZONE: &str = "polynya time in zone";

/// Returns the Arrow type of [`TIME_IN_ZONE`]; `None` for other names.
pub fn time_in_zone(name: &[ObjectNamePart], zone: &[String]) -> Option<Arrow> {
    let ([ObjectNamePart::Identifier(name)], [zone]) = (name, zone) else { return None };
    (name.value == TIME_IN_ZONE).then(|| Arrow::Timestamp(TimeUnit::Microsecond, Some(zone.as_str().into())))
}

/// Refuses a text type with a length in positions where no cast would cut the text. `dialect::rewrites::spellings` rewrites the
/// casts that do cut.
pub fn refuse_length(sql: &SqlType) -> Result<()> {
    match sql {
        SqlType::Varchar(Some(_))
        | SqlType::CharacterVarying(Some(_))
        | SqlType::CharVarying(Some(_))
        | SqlType::Char(Some(_))
        | SqlType::Character(Some(_)) => {
            Err(Error::invalid(format!("`{sql}` is supported only in `CAST(x AS {sql})`"))
                .hint("write `left(x, n)`"))
        }
        _ => Ok(()),
    }
}

/// Returns the column type that can hold the values of an expression of this Arrow type: for CREATE TABLE AS.
pub fn from_arrow(field: &ArrowField) -> Result<DataType> {
    let data_type = stored_as(field)?;
    data_type.check().map_err(|e| e.with("column", name::printable(field.name())))?;
    Ok(data_type)
}

fn stored_as(field: &ArrowField) -> Result<DataType> {
    if let Some(data_type) = exact(field) {
        return Ok(data_type);
    }
    let nested = |field: &ArrowField| -> Result<Field> {
        let data_type = stored_as(field)?;
        Ok(Field { id: ColumnId(0), name: field.name().clone(), data_type, nullable: field.is_nullable() })
    };
    Ok(match field.data_type() {
        Arrow::Null => DataType::String,
        Arrow::Int8 | Arrow::Int16 | Arrow::UInt8 | Arrow::UInt16 => DataType::Int32,
        Arrow::UInt32 | Arrow::UInt64 => DataType::Int64,
        Arrow::Float16 => DataType::Float32,
        Arrow::LargeUtf8 | Arrow::Utf8View => DataType::String,
        Arrow::LargeBinary | Arrow::BinaryView | Arrow::FixedSizeBinary(_) => DataType::Binary,
        Arrow::Date64 => DataType::Date,
        Arrow::Timestamp(..) => DataType::Timestamp,
        Arrow::Dictionary(_, value) => {
            stored_as(&ArrowField::new(field.name(), value.as_ref().clone(), true))?
        }
        Arrow::List(item) | Arrow::LargeList(item) | Arrow::FixedSizeList(item, _) => {
            DataType::List(Box::new(nested(item)?))
        }
        Arrow::Struct(fields) => DataType::Struct(fields.iter().map(|f| nested(f)).collect::<Result<_>>()?),
        other => {
            return Err(Error::invalid(format!("no column can hold `{}` of type {other}", field.name()))
                .hint("CAST it to a type that columns have"));
        }
    })
}

/// Returns the type whose Arrow form equals the field's type, if there is one.
fn exact(field: &ArrowField) -> Option<DataType> {
    let extension = field.metadata().get(EXTENSION_KEY).map(String::as_str);
    Some(match field.data_type() {
        Arrow::Boolean => DataType::Bool,
        Arrow::Int32 => DataType::Int32,
        Arrow::Int64 => DataType::Int64,
        Arrow::Float32 => DataType::Float32,
        Arrow::Float64 => DataType::Float64,
        Arrow::Decimal128(precision, scale @ 0..) if *scale as u8 <= *precision => {
            DataType::Decimal { precision: *precision, scale: *scale as u8 }
        }
        Arrow::Utf8 if extension == Some("arrow.json") => DataType::Json,
        Arrow::Utf8 => DataType::String,
        Arrow::Binary => DataType::Binary,
        Arrow::Date32 => DataType::Date,
        Arrow::Timestamp(TimeUnit::Microsecond, Some(zone)) if zone.as_ref() == "UTC" => DataType::Timestamp,
        Arrow::FixedSizeBinary(16) if extension == Some("arrow.uuid") => DataType::Uuid,
        Arrow::FixedSizeList(item, len) if *item.data_type() == Arrow::Float32 && *len > 0 => {
            DataType::Vector(*len as u32)
        }
        other if *other == DataType::Point.to_arrow() => DataType::Point,
        other if *other == DataType::Point3d.to_arrow() => DataType::Point3d,
        Arrow::List(item) => DataType::List(Box::new(exact_nested(item)?)),
        Arrow::Struct(fields) => {
            DataType::Struct(fields.iter().map(|f| exact_nested(f)).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

fn exact_nested(field: &ArrowField) -> Option<Field> {
    let data_type = exact(field)?;
    Some(Field { id: ColumnId(0), name: field.name().clone(), data_type, nullable: field.is_nullable() })
}

/// Returns the type name of a field of an answer: Polynya's name where the type is one of its own, else Arrow's in lower case.
pub fn field_type_name(field: &ArrowField) -> String {
    if let Some(data_type) = exact(field) {
        return data_type.to_string();
    }
    match field.data_type() {
        Arrow::LargeUtf8 | Arrow::Utf8View => "string".into(),
        Arrow::LargeBinary | Arrow::BinaryView | Arrow::FixedSizeBinary(_) => "binary".into(),
        Arrow::Timestamp(..) => "timestamp".into(),
        Arrow::Date64 => "date".into(),
        Arrow::Time32(_) | Arrow::Time64(_) => "time".into(),
        Arrow::Interval(_) => "interval".into(),
        Arrow::Duration(_) => "duration".into(),
        Arrow::Dictionary(_, value) => {
            field_type_name(&ArrowField::new(field.name(), value.as_ref().clone(), true))
        }
        other => other.to_string().to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use sqlparser::ast::Statement;

    fn column_type(text: &str) -> Result<String> {
        let statement = parse::statement(&format!("create table t (x {text})"), 10_000)?;
        let Statement::CreateTable(table) = statement else { panic!("a table") };
        from_sql(&table.columns[0].data_type).map(|t| t.to_string())
    }

    #[test]
    fn every_type_has_its_sql_names() {
        for (sql, ours) in [
            ("bool", "bool"),
            ("boolean", "bool"),
            ("smallint", "int32"),
            ("INT", "int32"),
            ("int32", "int32"),
            ("bigint", "int64"),
            ("int8", "int64"),
            ("int64", "int64"),
            ("real", "float32"),
            ("float32", "float32"),
            ("double precision", "float64"),
            ("float", "float64"),
            ("float64", "float64"),
            ("double", "float64"),
            ("decimal(10,2)", "decimal(10,2)"),
            ("numeric(5)", "decimal(5,0)"),
            ("numeric", "decimal(38,9)"),
            ("text", "string"),
            ("string", "string"),
            ("varchar", "string"),
            ("bytea", "binary"),
            ("binary", "binary"),
            ("date", "date"),
            ("timestamp", "timestamp"),
            ("timestamptz", "timestamp"),
            ("timestamp with time zone", "timestamp"),
            ("uuid", "uuid"),
            ("json", "json"),
            ("jsonb", "json"),
            ("int[]", "list<int32>"),
            ("text[][]", "list<list<string>>"),
            ("list<int64>", "list<int64>"),
            ("array<int64>", "list<int64>"),
            ("struct<a: int64, b: list<uuid not null>>", "struct<a: int64, b: list<uuid not null>>"),
            ("vector(384)", "vector(384)"),
            ("VECTOR(3)", "vector(3)"),
            ("point", "point"),
            ("point3d", "point3d"),
        ] {
            assert_eq!(column_type(sql).unwrap_or_else(|e| panic!("{sql}: {e}")), ours, "{sql}");
        }
    }

    #[test]
    fn a_type_that_would_be_misunderstood_is_refused() {
        for sql in
            ["varchar(10)", "char(3)", "decimal(40,2)", "vector(0)", "timestamp(3)", "money", "list<x>"]
        {
            assert!(column_type(sql).is_err(), "{sql}");
        }
    }

    /// A definition with too many levels was logged, and no later start could decode it.
    #[test]
    fn a_type_that_storage_cannot_read_back_is_refused() {
        let lists = |levels: usize| column_type(&format!("int{}", "[]".repeat(levels)));
        assert!(lists(16).is_ok());
        for levels in [17, 64, 500] {
            assert!(lists(levels).unwrap_err().message().contains("levels deep"), "{levels}");
        }
        let mut item = ArrowField::new("item", Arrow::Int32, true);
        for _ in 0..17 {
            item = ArrowField::new("item", Arrow::List(item.into()), true);
        }
        assert!(from_arrow(&item).unwrap_err().message().contains("levels deep"));
    }

    #[test]
    fn what_a_column_holds_is_what_create_table_as_makes() {
        for text in ["uuid", "json", "point", "vector(3)", "decimal(10,2)", "list<string>", "timestamp"] {
            let data_type = DataType::parse(text, &mut ColumnId(0)).unwrap();
            let field = Field { id: ColumnId(0), name: "x".into(), data_type, nullable: true }.to_arrow();
            assert_eq!(from_arrow(&field).unwrap().to_string(), text);
            assert_eq!(field_type_name(&field), text);
        }
        assert_eq!(from_arrow(&ArrowField::new("n", Arrow::UInt64, true)).unwrap(), DataType::Int64);
        assert!(from_arrow(&ArrowField::new("n", Arrow::Duration(TimeUnit::Second), true)).is_err());
    }
}
