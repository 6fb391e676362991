use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};

use crate::{DataType, Database, Kind, NewTable, Result, Value};

fn notes(ids: &[i64], name: &str, texts: &[Option<&str>]) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from(ids.to_vec()));
    let texts: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
    RecordBatch::try_from_iter([("id", ids), (name, texts)]).unwrap()
}

/// Answers contain json columns verbatim, so an invalid text would break every answer with its row.
#[test]
fn invalid_json_does_not_enter_a_json_column() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("library-json");
    let db = Database::open(dir.path()).unwrap();
    let table = NewTable::new("notes").column("id", DataType::Int64).column("said", DataType::Json);
    db.create_table(table.column("text", DataType::String).primary_key(["id"])).unwrap();

    let bad = || notes(&[1, 2], "said", &[Some("{\"a\": 1}"), Some("{\"a\": 1")]);
    let refused = |what: Result<()>| {
        let error = what.unwrap_err();
        assert_eq!(error.kind(), Kind::Schema, "{error}");
        assert!(error.to_string().contains("row 2, column `said`: JSON"), "{error}");
    };
    refused(db.insert("notes", bad()).map(drop));
    refused(db.upsert("Notes", bad()).map(drop));
    refused(db.insert("notes", notes(&[1, 2], "SAID", &[Some("1"), Some("")])).map(drop));
    let row = |id: i64, text: &str| [Value::Int64(id), Value::Json(text.into())];
    refused(db.insert_rows("notes", &["id", "said"], [row(1, "[]"), row(2, "[")]).map(drop));
    let mut tx = db.begin().unwrap();
    refused(tx.insert("notes", bad()).map(drop));
    refused(tx.upsert("notes", bad()).map(drop));
    assert_eq!(
        tx.insert("notes", notes(&[7], "said", &[Some("7")])).unwrap().count,
        1,
        "the transaction goes on"
    );
    tx.commit().unwrap();
    #[cfg(feature = "sql")]
    {
        let mut session = db.session().unwrap();
        refused(session.insert("notes", bad()).map(drop));
        session.sql("BEGIN", &[]).unwrap();
        refused(session.upsert("notes", bad()).map(drop));
    }
    let rows =
        |db: &Database| db.snapshot().scan("notes").unwrap().map(|b| b.unwrap().num_rows()).sum::<usize>();
    assert_eq!(rows(&db), 1, "nothing of what was refused is there");

    db.insert("notes", notes(&[1, 2, 3], "said", &[Some(" {\"a\": [1]} "), None, Some("\"x\"")])).unwrap();
    db.insert("notes", notes(&[4], "text", &[Some("no JSON, and need not be")])).unwrap();
    assert_eq!(rows(&db), 5);
    let unknown = db.insert("nots", bad()).unwrap_err();
    assert_eq!(unknown.kind(), Kind::NotFound, "{unknown}");
    db.close().unwrap();
}
