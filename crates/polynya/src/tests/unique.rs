//! Unique indexes of the library, through a restart and a backup.

use std::time::Duration;

use crate::{DataType, Database, Kind, NewTable, Value};

const PATIENCE: Duration = Duration::from_secs(100);

fn user(id: i64, email: &str) -> [Value; 2] {
    [Value::Int64(id), email.into()]
}

#[test]
fn a_unique_index_stays_unique_through_a_restart_and_a_restore() {
    let _limit = testkit::limit(240);
    let dir = testkit::temp_dir("library-unique");
    let db = Database::open(dir.join("db")).unwrap();
    let table = NewTable::new("users").column("id", DataType::Int64).column("email", DataType::String);
    db.create_table(table.primary_key(["id"]).unique(["email"])).unwrap();
    let columns = ["id", "email"];
    db.insert_rows("users", &columns, (0..5_000).map(|id| user(id, &format!("{id}@x")))).unwrap();
    let refused = |db: &Database| {
        for taken in ["0@x", "17@x", "4999@x"] {
            let error = db.insert_rows("users", &columns, [user(10_000, taken)]).unwrap_err();
            assert_eq!(error.kind(), Kind::Exists);
            assert_eq!(error.message(), format!("a row with email = '{taken}' exists already"));
        }
    };
    refused(&db);
    db.wait_for_indexes("users", PATIENCE).unwrap();
    refused(&db);
    let [index] = &db.indexes("users").unwrap()[..] else { panic!("one index") };
    assert_eq!((index.name.as_str(), index.unique, index.state), ("users_email_key", true, "ready"));
    db.backup(dir.join("backup")).unwrap();
    db.close().unwrap();

    let db = Database::open(dir.join("db")).unwrap();
    refused(&db);
    db.insert_rows("users", &columns, [user(5_000, "new@x")]).unwrap();
    db.close().unwrap();

    crate::restore(dir.join("backup"), dir.join("restored"), &crate::Restore::default()).unwrap();
    let db = Database::open(dir.join("restored")).unwrap();
    refused(&db);
    db.insert_rows("users", &columns, [user(5_000, "new@x")]).unwrap();
    db.close().unwrap();
}

#[test]
fn equal_rows_are_said_by_whoever_makes_the_index_or_waits_for_it() {
    let _limit = testkit::limit(240);
    let dir = testkit::temp_dir("library-equal");
    let db = Database::open(dir.path()).unwrap();
    let table =
        |name: &str| NewTable::new(name).column("id", DataType::Int64).column("email", DataType::String);
    db.create_table(table("few")).unwrap();
    db.insert_rows("few", &["id", "email"], [user(1, "a@x"), user(2, "b@x"), user(3, "a@x")]).unwrap();
    let error = db.create_unique_index("few", &["email"]).unwrap_err();
    assert_eq!(error.kind(), Kind::Exists);
    assert!(error.message().contains("two rows have email = 'a@x'"), "{error}");
    assert!(db.indexes("few").unwrap().is_empty());
    db.create_unique_index("few", &["id", "email"]).unwrap();

    // The table has more rows than `create_unique_index` compares at once.
    db.create_table(table("many")).unwrap();
    for first in (0..300_000i64).step_by(50_000) {
        let email = |id: i64| format!("{}@x", if id == 250_000 { 7 } else { id });
        let rows = (first..first + 50_000).map(|id| user(id, &email(id)));
        db.insert_rows("many", &["id", "email"], rows).unwrap();
    }
    db.create_unique_index("many", &["id"]).unwrap();
    db.wait_for_indexes("many", PATIENCE).unwrap();
    db.create_unique_index("many", &["email"]).unwrap();
    let error = db.wait_for_indexes("many", PATIENCE).unwrap_err();
    assert_eq!(error.kind(), Kind::Exists, "{error}");
    assert!(error.message().contains("two rows have email = '7@x'"), "{error}");
    let states =
        |db: &Database| db.indexes("many").unwrap().iter().map(|index| index.state).collect::<Vec<_>>();
    assert_eq!(states(&db), ["ready", "failed"]);
    assert_eq!(db.insert_rows("many", &["id"], [[Value::Int64(5)]]).unwrap_err().kind(), Kind::Exists);
    db.insert_rows("many", &["id", "email"], [user(400_000, "7@x")]).unwrap();
    db.drop_index("many", "many_email_key").unwrap();
    assert_eq!(states(&db), ["ready"]);
    db.close().unwrap();
}
