//! Questions of the form `if X, Y`.

use crate::test_database::*;

async fn machine(db: &TestDatabase, busy: f64) {
    db.metrics(&[(NOON - SECOND, "cpu_busy", None, busy)]);
    db.run("CREATE TABLE events (kind string)").await;
    db.run("INSERT INTO events VALUES ('a'), ('b')").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_question_is_asked_only_if_the_condition_holds() {
    let _limit = testkit::limit(120);
    let db = TestDatabase::new("ask-if");
    machine(&db, 95.0).await;
    for q in [
        "if the cpu is above 80 %, how many events are there?",
        "If the CPU is above 80%, then how many events are there?",
        "if the cpu is above 80 % then how many events are there",
        "how many events are there if the cpu is above 80 %?",
        "if the cpu is not below 80 %, how many events are there?",
    ] {
        let answer = db.ask(q).await;
        says(&answer, &["It holds that", "95.0 %", "events has 2 rows"]);
        assert_eq!(states(&answer), ["metrics answered", "events answered"], "{q}");
    }
    let answer = db.ask("if the cpu is below 80 %, how many events are there?").await;
    says(&answer, &["It does not hold that the cpu is below 80 %", "95.0 %"]);
    never_says(&answer, &["2 rows"]);
    assert_eq!(states(&answer), ["metrics answered", "events skipped"]);
    assert_eq!(answer.sources[1].detail.as_deref(), Some("the condition does not hold"));
}

#[tokio::test(flavor = "multi_thread")]
async fn ordered_actions_are_left_to_the_asker() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-if-other");
    machine(&db, 95.0).await;
    let answer = db.ask("if the cpu is above 80 %, remind me to buy a fan").await;
    says(&answer, &["It holds that", "remind me to buy a fan", "left to you"]);
    let answer = db.ask("if the cpu is above 99 %, remind me to buy a fan").await;
    never_says(&answer, &["buy a fan"]);
    says(&answer, &["It does not hold"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_that_nothing_can_decide_is_not_decided() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-if-unknown");
    machine(&db, 95.0).await;
    for q in [
        "if mercury is in retrograde, how many events are there?",
        "if plex is down, how many events are there?",
        "if the garage cpu is above 80 %, how many events are there?",
        "if the back door is unlocked, how many events are there?",
    ] {
        let answer = db.ask(q).await;
        says(&answer, &["The data here does not", "this was not asked"]);
        never_says(&answer, &["It holds", "It does not hold", "2 rows"]);
        assert!(states(&answer).contains(&"events skipped".to_owned()), "{q}: {:?}", states(&answer));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_after_and_also_is_asked_in_any_case() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-if-also");
    machine(&db, 5.0).await;
    let answer = db.ask("if the cpu is above 80 %, let me know, and also how many events are there?").await;
    says(&answer, &["It does not hold", "events has 2 rows"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_questions_in_one_are_two() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-and");
    machine(&db, 5.0).await;
    let answer = db.ask("how many events are there and is the cpu above 80 %?").await;
    says(&answer, &["events has 2 rows", "No", "5.0 %"]);
    assert_eq!(states(&answer), ["events answered", "metrics answered"]);
    // This is one question and is not split.
    let answer = db.ask("salt and pepper").await;
    assert_eq!(answer.sections.len(), 0);
}
