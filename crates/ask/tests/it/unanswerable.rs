//! Unanswerable questions, answers at a deadline, and invalid questions.

use std::time::Duration;

use ask::Question;
use types::{Kind, Principal};

use crate::test_database::*;

#[tokio::test(flavor = "multi_thread")]
async fn an_unanswerable_question_is_answered_with_possible_ones() {
    let _limit = testkit::limit(120);
    let db = TestDatabase::new("ask-honest");
    db.run("CREATE TABLE orders (id int64, price float64)").await;
    db.run("INSERT INTO orders VALUES (1, 2.5)").await;
    for q in [
        "will it rain tomorrow?",
        "is plex down?",
        "who founded google",
        "what is the boiling point of tungsten?",
        "are the doors locked",
        "where is downtown Chicago",
        "blorb",
    ] {
        let answer = db.ask(q).await;
        says(&answer, &["Nothing here answers that.", "You can ask about", "`orders`"]);
        assert!(
            !states(&answer).iter().any(|state| state.ends_with("answered")),
            "{q}: {:?}",
            states(&answer)
        );
        assert!(!answer.sources.is_empty(), "{q}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_comes_when_it_is_due_and_says_who_was_late() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-due");
    db.run("CREATE TABLE orders (id int64)").await;
    let question = Question { deadline: Some(Duration::ZERO), ..Question::new("how many orders?") };
    let answer = db.ask.ask(&Principal::local(), &question).await.unwrap();
    assert_eq!(states(&answer), ["orders timeout"]);
    says(&answer, &["orders could not be asked"]);
    assert!(answer.sources[0].detail.is_some());
    // The partial answer was not cached; with enough time the table answers.
    let answer = db.ask("how many orders?").await;
    says(&answer, &["orders has 0 rows"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_questions_and_unknown_sources_are_refused() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-refused");
    db.run("CREATE TABLE orders (id int64)").await;
    let refuse = async |question: Question| db.ask.ask(&Principal::local(), &question).await.unwrap_err();
    assert_eq!(refuse(Question::new("  ")).await.kind(), Kind::Invalid);
    assert_eq!(refuse(Question::new("x".repeat(1_001))).await.kind(), Kind::TooLarge);
    // The question is refused and not cut, since its last words might reverse it.
    assert_eq!(refuse(Question::new("a ".repeat(201))).await.kind(), Kind::TooLarge);
    let error = refuse(Question { sources: vec!["weather".into()], ..Question::new("rain?") }).await;
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.hint_text().unwrap().contains("metrics, requests"), "{error}");
    assert!(error.hint_text().unwrap().contains("orders"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_listed_sources_are_asked() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-sources");
    db.run("CREATE TABLE orders (id int64)").await;
    db.metrics(&[(NOON - SECOND, "cpu_busy", None, 5.0)]);
    let ask = async |q: &str, sources: &[&str]| {
        let sources = sources.iter().map(|s| (*s).to_owned()).collect();
        db.ask.ask(&Principal::local(), &Question { sources, ..Question::new(q) }).await.unwrap()
    };
    let answer = ask("is the cpu above 80 %?", &["requests"]).await;
    assert_eq!(states(&answer), ["requests skipped"]);
    says(&answer, &["Nothing here answers that"]);
    let answer = ask("is the cpu above 80 %?", &["metrics"]).await;
    assert_eq!(states(&answer), ["metrics answered"]);
    // The question need not name a listed table again.
    let answer = ask("how many rows in the last hour?", &["orders"]).await;
    says(&answer, &["orders has 0 rows stored in the last hour"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_question_breaks_anything() {
    let _limit = testkit::limit(300);
    let db = TestDatabase::new("ask-random");
    db.run("CREATE TABLE orders (id int64, country string, price float64)").await;
    db.run("INSERT INTO orders VALUES (1, 'AT', 2.5)").await;
    db.metrics(&[
        (NOON - SECOND, "cpu_busy", None, 5.0),
        (NOON - SECOND, "filesystem_free", Some("data"), 1.0),
    ]);
    db.requests(&[(NOON, "GET", "/", 200, 5, None)]);
    db.notes(&[("a.md", "A", "alpha", true)]);
    let words: Vec<&str> = "if any request was slower than 20 ms , show it ; what changed in the last hour ? is disk nearly full \
        and also orders price above country AT by how many average highest latest notes alpha since 14:00 between yesterday \
        not no \" ' ` ( ) % > >= = $1 -- 0 -5 1e9 2026-11-21 memory cpu load errors 404 GET / tables help ü 漢 \u{202e} the of"
        .split(' ')
        .collect();
    for seed in testkit::seeds(120) {
        let mut rng = testkit::Rng::new(seed);
        let count = 1 + rng.index(14);
        let q: Vec<&str> = (0..count).map(|_| *rng.pick(&words)).collect();
        let q = q.join(" ");
        let answer = db.ask(&q).await;
        for source in &answer.sources {
            assert_ne!(source.state, ask::State::Failed, "seed {seed}: “{q}”: {source:?}");
        }
        assert!(!answer.answer.is_empty(), "seed {seed}: “{q}”");
    }
}
