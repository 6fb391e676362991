//! Questions about changes, over a history that is known.

use serde_json::json;

use crate::test_database::*;

async fn history(db: &TestDatabase) {
    db.at(NOON - 3 * HOUR);
    db.run("CREATE TABLE events (kind string, n int64)").await;
    db.run("INSERT INTO events VALUES ('old', 1), ('old', 2), ('old', 3)").await;
    db.run("CREATE TABLE things (id string PRIMARY KEY, n int64)").await;
    db.run("INSERT INTO things VALUES ('a', 1), ('b', 2)").await;
    db.run("CREATE TABLE quiet (id int64)").await;
    db.run("INSERT INTO quiet VALUES (1)").await;
    db.notes(&[("plan.md", "Plan", "what is planned", false)]);
    // Requests are recorded between the deletes, as on a server in use. They date the deletes.
    let request = |at: i64| {
        db.at(at);
        db.requests(&[(at, "GET", "/health", 200, 5, None)]);
    };
    request(NOON - 2 * HOUR - SECOND);
    db.at(NOON - 2 * HOUR);
    db.run("DELETE FROM events WHERE n = 1").await;
    request(NOON - 2 * HOUR + SECOND);
    db.at(NOON - 30 * MINUTE);
    db.run("INSERT INTO events VALUES ('new', 4), ('new', 5)").await;
    request(NOON - 21 * MINUTE);
    db.at(NOON - 20 * MINUTE);
    db.run("DELETE FROM events WHERE n = 2").await;
    db.run("UPDATE things SET n = 20 WHERE id = 'b'").await;
    db.notes(&[("done.md", "Done", "what was done", false)]);
    db.metrics(&[(NOON - MINUTE, "cpu_busy", None, 1.0), (NOON - MINUTE, "load_1m", None, 1.0)]);
    db.at(NOON);
}

fn counts(answer: &ask::Answer) -> Vec<(String, i64, i64)> {
    let rows = &answer.sections[0].rows;
    rows.iter()
        .map(|row| (row[0].as_str().unwrap().to_owned(), row[1].as_i64().unwrap(), row[2].as_i64().unwrap()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_and_notes_of_the_last_hour_are_counted_and_shown() {
    let _limit = testkit::limit(120);
    let db = TestDatabase::new("ask-changes");
    history(&db).await;
    let answer = db.ask("What changed in the last hour?").await;
    says(
        &answer,
        &[
            "Changed in the last hour",
            "vault (1 file new or replaced)",
            "events (2 rows inserted, 1 row deleted)",
        ],
    );
    says(
        &answer,
        &["things (1 row new or replaced, 1 version deleted or replaced)", "Polynya itself recorded 3 rows"],
    );
    never_says(&answer, &["quiet"]);
    let mut found = counts(&answer);
    found.sort();
    let expected = [
        ("events", 2, 1),
        ("polynya.metrics", 2, 0),
        ("polynya.requests", 1, 0),
        ("things", 1, 1),
        ("vault", 1, 0),
    ];
    assert_eq!(found, expected.map(|(name, a, b)| (name.to_owned(), a, b)));
    let newest =
        |title: &str| answer.sections.iter().find(|s| s.title == title).unwrap_or_else(|| panic!("{title}"));
    assert_eq!(newest("Newest in events").rows.len(), 2);
    assert_eq!(newest("Newest in events").rows[0][1..], [json!("new"), json!(5)]);
    assert_eq!(newest("Newest in vault").rows[0][1], json!("done.md"));
    assert_eq!(states(&answer), ["changes answered"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_times_and_single_tables_are_told_alone() {
    let _limit = testkit::limit(120);
    let db = TestDatabase::new("ask-changes-when");
    history(&db).await;
    let answer = db.ask("what changed in the last 10 minutes?").await;
    says(&answer, &["Nothing changed in the last 10 minutes"]);
    let answer = db.ask("what changed between 12:00 and 13:00?").await;
    says(&answer, &["events (1 row deleted)"]);
    never_says(&answer, &["things", "vault"]);
    let answer = db.ask("did events change in the last 25 minutes?").await;
    says(&answer, &["events (1 row deleted)"]);
    never_says(&answer, &["things", "vault"]);
    let answer = db.ask("which notes changed today?").await;
    says(&answer, &["vault (2 files new or replaced)"]);
    never_says(&answer, &["events", "things"]);
    let answer = db.ask("if anything changed in things in the last hour, show it").await;
    says(&answer, &["It holds that", "things (1 row new or replaced"]);
    let answer = db.ask("if quiet changed in the last hour, show it").await;
    says(&answer, &["It does not hold that quiet changed in the last hour"]);
    let answer = db.ask("what changed?").await;
    says(&answer, &["in the last day", "No time was named", "events (3 rows inserted, 2 rows deleted)"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_server_says_that_nothing_changed() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-changes-none");
    let answer = db.ask("what changed in the last hour?").await;
    says(&answer, &["Nothing changed in the last hour."]);
    assert_eq!(states(&answer), ["changes answered"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_whose_time_nobody_knows_is_said_as_a_range() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-changes-range");
    db.at(NOON - 3 * HOUR);
    db.run("CREATE TABLE events (n int64)").await;
    db.run("INSERT INTO events VALUES (1), (2), (3)").await;
    // Nothing is written between these two deletes, so nothing shows which of them is in the last hour.
    db.at(NOON - 2 * HOUR);
    db.run("DELETE FROM events WHERE n = 1").await;
    db.at(NOON - 30 * MINUTE);
    db.run("DELETE FROM events WHERE n = 2").await;
    db.at(NOON);
    let answer = db.ask("what changed in the last hour?").await;
    says(&answer, &["events (1 to 2 rows deleted)"]);
    let answer = db.ask("if events changed in the last 10 minutes, show it").await;
    says(&answer, &["It does not hold that events changed in the last 10 minutes"]);
}
