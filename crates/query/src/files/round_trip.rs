//! Checks that COPY reads the CSV that it wrote as the same rows: random rows of every type that CSV can hold, in tables of one
//! column and of several, with different texts of NULL.

use arrow::array::{AsArray, RecordBatch};
use testkit::{Rng, for_each_seed};
use types::{ColumnId, DataType, TableDef, TableId, Value};

use super::{Input, Writer, parse_copy, read};

const TYPES: [&str; 10] =
    ["bool", "int32", "int64", "float32", "float64", "decimal(10,3)", "string", "date", "timestamp", "uuid"];

fn text(rng: &mut Rng) -> String {
    const PARTS: [&str; 14] =
        ["", " ", "\"", ",", ";", "\n", "\r\n", "\r", "\\N", "-", "a", "NaN", "\u{feff}", "é"];
    (0..rng.below(4)).map(|_| PARTS[rng.below(PARTS.len() as u64) as usize]).collect()
}

fn value(of: &DataType, rng: &mut Rng) -> Value {
    if rng.below(4) == 0 {
        return Value::Null;
    }
    let bits = rng.next_u64();
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.1, f64::from_bits(bits)];
    let float = special[rng.below(6) as usize];
    match of {
        DataType::Bool => Value::Bool(bits & 1 == 1),
        DataType::Int32 => Value::Int32(bits as i32),
        DataType::Int64 => Value::Int64(bits as i64),
        DataType::Float32 => Value::Float32(float as f32),
        DataType::Float64 => Value::Float64(float),
        DataType::Decimal { .. } => Value::Decimal(i128::from(bits as i32)),
        DataType::Date => Value::Date(rng.below(3_000_000) as i32 - 700_000),
        DataType::Timestamp => Value::Timestamp(bits as i64 % 60_000_000_000_000_000),
        DataType::Uuid => Value::Uuid((u128::from(bits) << 64 | u128::from(rng.next_u64())).to_le_bytes()),
        _ => Value::String(text(rng)),
    }
}

fn shown(def: &TableDef, batches: &[RecordBatch]) -> Vec<Vec<String>> {
    let column = |at: usize| {
        let of = &def.schema.columns[at].data_type;
        let rows = batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
        rows.map(|(batch, row)| format!("{:?}", Value::from_array(batch.column(at), of, row))).collect()
    };
    (0..def.schema.columns.len()).map(column).collect()
}

/// A null as the only column's value came back as no row, an infinity did not come back, and a text equal to the text of NULL
/// could not be copied.
#[test]
fn rows_that_are_copied_out_are_copied_in_again() {
    let _limit = testkit::limit(120);
    for_each_seed(500, |seed| {
        let mut rng = Rng::new(seed);
        let mut def = TableDef::new(TableId(1), "main.t");
        let width = if rng.below(2) == 0 { 1 } else { 1 + rng.below(4) };
        for at in 0..width {
            let of = TYPES[rng.below(TYPES.len() as u64) as usize];
            let of = DataType::parse(of, &mut ColumnId(0)).unwrap();
            def.add_column(&format!("c{at}"), &of, true, None).unwrap();
        }
        let rows = rng.below(6);
        let arrays = def.schema.columns.iter().map(|column| {
            let values: Vec<Value> = (0..rows).map(|_| value(&column.data_type, &mut rng)).collect();
            Value::to_array(&values, &column.data_type).unwrap()
        });
        let arrays = arrays.collect();
        let batch = RecordBatch::try_new(def.schema.to_arrow_user(), arrays).unwrap();
        let null = ["", "\\N", "-", "a"][rng.below(4) as usize];
        let delimiter = [",", ";"][rng.below(2) as usize];
        let header = ["", ", HEADER"][rng.below(2) as usize];
        let options = format!("WITH (FORMAT csv, DELIMITER '{delimiter}', NULL '{null}'{header})");

        let to = parse_copy(&format!("COPY t TO STDOUT {options}"), 1_000).unwrap().unwrap();
        let mut csv = Vec::new();
        let mut writer = Writer::new(&to, &batch.schema()).unwrap();
        writer.batch(&batch, &mut csv).unwrap();
        writer.end(&mut csv).unwrap();
        let written = String::from_utf8_lossy(&csv).into_owned();
        let from = parse_copy(&format!("COPY t FROM STDIN {options}"), 1_000).unwrap().unwrap();
        let rows = read(&from, &def, &[], Input::Stream(Box::new(std::io::Cursor::new(csv)))).unwrap();
        let batches: Vec<RecordBatch> =
            rows.map(|row| row.unwrap_or_else(|error| panic!("{options} {written:?}: {error}")).0).collect();
        assert_eq!(shown(&def, &batches), shown(&def, &[batch]), "{options} {written:?}");
    });
}

/// JSON rows with numbers for times were read by the column's declaration, and a file with the same rows was refused.
#[test]
fn numbers_for_times_are_read_in_the_unit_that_the_column_declares() {
    let mut def = TableDef::new(TableId(1), "main.t");
    let at = def.add_column("at", &DataType::Timestamp, true, None).unwrap();
    def.options.inputs.push((at, types::EpochUnit::Seconds));
    let from = parse_copy("COPY t FROM STDIN WITH (FORMAT csv)", 1_000).unwrap().unwrap();
    let csv = b"1774926657\n1774926657.5\n2026-03-31T03:10:57Z\n".to_vec();
    let rows = read(&from, &def, &[], Input::Stream(Box::new(std::io::Cursor::new(csv)))).unwrap();
    let batches: Vec<RecordBatch> = rows.map(|row| row.unwrap().0).collect();
    let times = batches[0].column(0).as_primitive::<arrow::datatypes::TimestampMicrosecondType>();
    let second = 1_774_926_657_000_000;
    assert_eq!(times.values().to_vec(), [second, second + 500_000, second]);
}
