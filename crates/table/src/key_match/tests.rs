use arrow::array::Array;
use testkit::{Rng, for_each_seed};
use types::{TableDef, TableId, Value, key};

use super::*;

#[test]
fn a_row_matches_its_own_key_bytes_and_no_others() {
    let types = [
        DataType::String,
        DataType::Bool,
        DataType::Int32,
        DataType::Int64,
        DataType::Decimal { precision: 20, scale: 2 },
        DataType::Binary,
        DataType::Date,
        DataType::Timestamp,
        DataType::Uuid,
    ];
    for_each_seed(40, |seed| {
        let mut rng = Rng::new(seed);
        let mut def = TableDef::new(TableId(1), "main.t");
        let mut names = Vec::new();
        for at in 0..1 + rng.below(3) {
            names.push(format!("c{at}"));
            def.add_column(&names[at as usize], rng.pick(&types), false, None).unwrap();
        }
        rng.shuffle(&mut names);
        def.set_primary_key(&names).unwrap();
        let layout = Layout::of(&def);
        let rows = 40;
        let mut value = |data_type: &DataType| {
            let small = rng.below(3) as i64 - 1;
            // Zero bytes are escaped in a key, so texts are made of little else.
            let text = |rng: &mut Rng| -> Vec<u8> { (0..rng.index(4)).map(|_| rng.below(2) as u8).collect() };
            match data_type {
                DataType::Bool => Value::Bool(small > 0),
                DataType::Int32 => Value::Int32(small as i32),
                DataType::Int64 => Value::Int64(small),
                DataType::Decimal { .. } => Value::Decimal(small.into()),
                DataType::Date => Value::Date(small as i32),
                DataType::Timestamp => Value::Timestamp(small),
                DataType::Uuid => Value::Uuid([small as u8; 16]),
                DataType::Binary => Value::Binary(text(&mut rng)),
                _ => Value::String(String::from_utf8(text(&mut rng)).unwrap()),
            }
        };
        let system = [DataType::Int64, DataType::Timestamp];
        let columns = system.iter().chain(def.schema.columns.iter().map(|c| &c.data_type)).map(|data_type| {
            let values: Vec<Value> = (0..rows).map(|_| value(data_type)).collect();
            Value::to_array(&values, data_type).unwrap()
        });
        let batch = RecordBatch::try_new(layout.schema.clone(), columns.collect()).unwrap();
        let key_columns: Vec<&dyn Array> = layout.key.iter().map(|at| batch.column(*at).as_ref()).collect();
        let keys: Vec<Vec<u8>> = (0..rows)
            .map(|row| {
                let mut bytes = Vec::new();
                key::encode_row(&layout.key_types, &key_columns, row, &mut bytes);
                bytes
            })
            .collect();
        for (row, own) in keys.iter().enumerate() {
            for other in &keys {
                assert_eq!(matches(&layout, &batch, row, other), own == other);
            }
            assert!(!matches(&layout, &batch, row, &own[..own.len() - 1]));
            assert!(!matches(&layout, &batch, row, &[own.as_slice(), &[0]].concat()));
        }
    });
}
