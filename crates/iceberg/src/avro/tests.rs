use super::*;

const SCHEMA: &str = r#"{"type":"record","name":"r","fields":[
    {"name":"a","type":"long","field-id":1},
    {"name":"b","type":["null","string"],"field-id":2},
    {"name":"c","type":{"type":"array","items":{"type":"record","name":"kv","fields":[
        {"name":"key","type":"int","field-id":4},{"name":"value","type":"bytes","field-id":5}]}},"field-id":3},
    {"name":"d","type":["null",{"type":"array","items":"kv"}],"field-id":6}]}"#;

fn file(values: &[i64]) -> Vec<u8> {
    let mut body = Body::new();
    for value in values {
        body.long(*value);
        body.some(*value > 0);
        if *value > 0 {
            body.blob(format!("text {value}").as_bytes());
        }
        body.array(&[1i64, 2], |body, key| {
            body.long(*key);
            body.blob(&key.to_le_bytes());
        });
        body.some(false);
        body.end_record();
    }
    body.into_file(SCHEMA, &[("content", "data")])
}

#[test]
fn what_was_written_is_read_back() {
    let values = [0, 1, -1, 63, 64, -65, i64::MAX, i64::MIN];
    let (head, records) = read(&file(&values)).unwrap();
    assert_eq!(head["content"], b"data");
    assert_eq!(records.len(), values.len());
    for (record, value) in records.iter().zip(values) {
        assert_eq!(record.long(1), Some(value));
        assert_eq!(record.text(2), (value > 0).then(|| format!("text {value}")).as_deref());
        assert_eq!(record.items(3).len(), 2);
        assert!(record.items(6).is_empty());
    }
    assert!(read(&file(&[])).unwrap().1.is_empty());
}

#[test]
fn cut_or_changed_bytes_are_refused_and_never_panic() {
    let whole = file(&[5, 6, 7]);
    for cut in 0..whole.len() {
        // A file that is cut right after its header is valid and has no records.
        if let Ok((_, records)) = read(&whole[..cut]) {
            assert!(records.is_empty(), "{cut}");
        }
        let mut flipped = whole.clone();
        for bit in 0..8 {
            flipped[cut] ^= 1 << bit;
            drop(read(&flipped));
            flipped[cut] ^= 1 << bit;
        }
    }
}

/// Each level names the one before twice: 40 levels would unfold to 2^40 types.
#[test]
fn a_schema_that_unfolds_without_end_is_refused() {
    let field = |n: usize| match n {
        0 => r#"{"name":"f0","field-id":0,"type":{"type":"record","name":"r0","fields":[]}}"#.to_owned(),
        n => format!(
            r#"{{"name":"f{n}","field-id":{n},"type":{{"type":"record","name":"r{n}","fields":[
                {{"name":"a","type":"r{p}"}},{{"name":"b","type":"r{p}"}}]}}}}"#,
            p = n - 1
        ),
    };
    for levels in [3, 20, 40] {
        let fields: Vec<String> = (0..levels).map(field).collect();
        let schema = format!(r#"{{"type":"record","name":"all","fields":[{}]}}"#, fields.join(","));
        assert_eq!(read(&Body::new().into_file(&schema, &[])).is_ok(), levels == 3, "{levels}");
    }
}
