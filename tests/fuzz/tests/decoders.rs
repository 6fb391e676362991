//! Fuzzes the decoders of requests, files and messages.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::buffer::Buffer;
use arrow::ipc::writer::StreamWriter;
use polynya_fuzz::fuzz;
use types::{ColumnId, DataType, TableDef, TableId};
use wire::{DecodeTarget, Limits};

fn seeds(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn table() -> TableDef {
    let mut def = TableDef::new(TableId(1), "main.t");
    for (name, data_type) in [
        ("id", DataType::Int64),
        ("text", DataType::String),
        ("x", DataType::Float64),
        ("at", DataType::Timestamp),
        ("ok", DataType::Bool),
        ("more", DataType::Json),
    ] {
        def.add_column(name, &data_type, true, None).unwrap();
    }
    def
}

/// Passes each input to a decoder of rows, for an existing table and for a new one.
fn fuzz_rows<T, E>(
    name: &str,
    seeds: &[Vec<u8>],
    decode: impl Fn(&[u8], DecodeTarget<'_>, &Limits) -> Result<T, E>,
) {
    let def = table();
    let limits = Limits { decoded_bytes_max: 64 << 20, ..Limits::default() };
    fuzz(name, seeds, |input| {
        for def in [None, Some(&def)] {
            drop(decode(input, DecodeTarget { table: "t", def, may_add_columns: true }, &limits));
        }
    });
}

fn batch() -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), Some("ö"), None]));
    RecordBatch::try_from_iter_with_nullable([("id", ids, true), ("text", texts, true)]).unwrap()
}

#[test]
fn json_rows() {
    let texts = [
        r#"[{"id":1,"text":"a","x":1.5,"at":"2026-03-31T03:17:37Z","ok":true,"more":{"a":[1,{"b":null}]}}]"#,
        "{\"id\":1}\n{\"id\":-9223372036854775808,\"tags\":[\"x\",\"\\u00f6\\ud83d\\ude00\"]}\n",
        r#"{"x":1e308,"text":"\"\\\/\b\f\n\r\t"}"#,
    ];
    fuzz_rows("JSON rows", &seeds(&texts), wire::json::decode);
}

#[test]
fn csv_rows() {
    let texts = ["id,text,x,at,ok\n1,a,1.5,2026-03-31,true\n,\"b\"\"c\n\",NaN,,\n", "id;text\r\n1;x\r\n"];
    fuzz_rows("CSV rows", &seeds(&texts), wire::csv::decode);
}

#[test]
fn arrow_streams() {
    let batch = batch();
    let mut stream = Vec::new();
    let mut writer = StreamWriter::try_new(&mut stream, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    fuzz_rows("Arrow streams", &[stream], wire::ipc::decode);
}

#[test]
fn protobuf_rows() {
    // The message nests a length-delimited message with a varint, followed by a varint and a double.
    let message =
        [&[0x0a, 0x0b, 0x08, 0x01, 0x12, 0x05][..], b"hello", &[0x18, 0x01], &[0x21], &[0; 8]].concat();
    fuzz_rows("protobuf rows", &[message], wire::protobuf::decode);
}

#[test]
fn types_as_text() {
    let texts =
        ["int64", "list<list<struct<a: int64, b: list<string>>>>", "decimal(38, 10)", "vector(float32, 3)"];
    fuzz("types as text", &seeds(&texts), |input| {
        drop(DataType::parse(&String::from_utf8_lossy(input), &mut ColumnId(16)));
    });
}

#[test]
fn batches_of_the_log() {
    let encoded = commitlog::batch::encode(&batch()).unwrap();
    fuzz("batches of the log", &[encoded], |input| {
        drop(commitlog::batch::decode(&Buffer::from(input.to_vec())));
    });
}

#[test]
fn metadata_of_iceberg_tables() {
    let text = r#"{"format-version":2,"table-uuid":"9c12d441-03fe-4693-9a96-a0705ddf69c1","location":"s3://b/t",
        "last-sequence-number":1,"last-updated-ms":1,"last-column-id":1,"current-schema-id":0,
        "schemas":[{"type":"struct","schema-id":0,"fields":[{"id":1,"name":"a","required":false,"type":"long"}]}],
        "default-spec-id":0,"partition-specs":[{"spec-id":0,"fields":[]}],"last-partition-id":999,
        "default-sort-order-id":0,"sort-orders":[{"order-id":0,"fields":[]}],"properties":{},
        "current-snapshot-id":1,"snapshots":[{"snapshot-id":1,"sequence-number":1,"timestamp-ms":1,
        "manifest-list":"s3://b/l.avro","summary":{"operation":"append"},"schema-id":0}]}"#;
    fuzz("metadata of Iceberg tables", &seeds(&[text]), |input| {
        if let Ok(metadata) = iceberg::metadata::Metadata::parse(input) {
            drop(iceberg::spec::specs_of(&metadata));
        }
    });
}

#[test]
fn manifest_lists_of_iceberg_tables() {
    // The head of an Avro container: magic, a map of one pair, its end, a marker of 16 bytes, a block.
    let avro =
        [&b"Obj\x01\x02"[..], &[22], b"avro.schema", &[4], b"{}", &[0], &[7; 16], &[2, 4, 0, 0], &[7; 16]]
            .concat();
    fuzz("manifest lists of Iceberg tables", &[avro], |input| drop(iceberg::manifest::read_list(input)));
}

#[test]
fn notes() {
    let texts = [
        "---\ntitle: A\ntags: [a, b]\npublish: true\n---\n# A\n\n[[B|c]] **d** `e` $x^2$ ![[f.png]]\n\n> [!note] g\n> h\n",
        "| a | b |\n|---|---|\n| 1 | [x](y) |\n\n- [ ] a\n  - b\n\n```rust\nfn a() {}\n```\n<div onclick=x>y</div>\n",
    ];
    fuzz("notes", &seeds(&texts), |input| drop(site::Note::parse("a/b.md", input).text()));
}
