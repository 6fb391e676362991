//! Notes and texts, found by their words.

use crate::test_database::*;

fn notes(db: &TestDatabase) {
    db.notes(&[
        ("home/boiler.md", "Boiler", "The boiler wants 1.5 bar. Press the green button to reset it.", true),
        ("home/router.md", "Router", "The router is in the hall. Reset it with a paper clip.", false),
        ("tax.md", "Taxes", "Send them before May.", false),
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_with_all_words_answers() {
    let _limit = testkit::limit(120);
    let db = TestDatabase::new("ask-notes");
    notes(&db);
    let answer = db.ask("how do I reset the boiler?").await;
    says(&answer, &["1 note with “reset” and “boiler”", "“Boiler” (home/boiler.md)", "green button"]);
    assert_eq!(column(&answer, "name"), ["home/boiler.md"]);
    assert!(states(&answer).contains(&"notes answered".into()));
    let answer = db.ask("which notes are about the router").await;
    assert_eq!(column(&answer, "name"), ["home/router.md"]);
    assert_eq!(states(&answer), ["notes answered"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_with_some_of_the_words_are_no_answer() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-notes-some");
    notes(&db);
    let answer = db.ask("how do I reset the dishwasher?").await;
    says(&answer, &["Nothing here answers that", "No text has all of “reset”, “dishwasher”"]);
    assert!(states(&answer).contains(&"notes nothing".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_published_notes_exist_for_keys_below_admin() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-notes-rights");
    notes(&db);
    let reader = reader(&["main.vault"]);
    let ask = async |q: &str| db.ask.ask(&reader, &ask::Question::new(q)).await.unwrap();
    let answer = ask("how do I reset the boiler?").await;
    assert_eq!(column(&answer, "name"), ["home/boiler.md"]);
    for q in [
        "where is the router?",
        "notes about taxes",
        "what changed in the last hour?",
        "list my notes",
        "how many vault",
    ] {
        let text = serde_json::to_string(&ask(q).await).unwrap();
        for secret in ["paper clip", "Taxes", "router.md", "tax.md", "3 rows", "3 files", "before May"] {
            assert!(!text.contains(secret), "{q}: {secret} in {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_table_with_a_text_index_is_searched() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-index");
    db.run("CREATE TABLE mails (subject string, body string)").await;
    db.run("CREATE INDEX ON mails USING text (subject, body)").await;
    db.run("INSERT INTO mails VALUES ('Lunch', 'Shall we have falafel on Friday?')").await;
    let answer = db.ask("what about falafel?").await;
    says(&answer, &["1 text with “falafel”", "falafel on Friday"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_of_a_table_is_found_without_naming_the_table() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-values");
    db.run("CREATE TABLE hosts (host string, rack string)").await;
    db.run("INSERT INTO hosts VALUES ('nas', 'r1'), ('pi', 'r2')").await;
    let answer = db.ask("where is nas?").await;
    says(&answer, &["hosts has 1 row with “nas”"]);
    assert_eq!(column(&answer, "rack"), ["r1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_are_counted_as_far_as_the_asker_may_find_them() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-notes-count");
    notes(&db);
    says(&db.ask("how many notes are there?").await, &["vault has 3 notes."]);
    let reader = reader(&["main.vault"]);
    let question = ask::Question::new("how many notes are there?");
    let answer = db.ask.ask(&reader, &question).await.unwrap();
    says(&answer, &["vault has 1 note."]);
    // Words that a full-text search cannot express are named as not understood.
    says(&db.ask("how many notes yesterday").await, &["Not understood here: “yesterday (UTC)”"]);
    says(&db.ask("not router and not boiler").await, &["Not understood here: “not”"]);
    says(&db.ask("how many notes changed today").await, &["vault (3 files new or replaced)"]);
}
