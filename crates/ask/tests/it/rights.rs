//! Tables that a key may not see do not exist for it, in any question (A1).

use ask::Question;
use types::Kind;

use crate::test_database::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_key_for_one_table_is_answered_from_that_table_alone() {
    let _limit = testkit::limit(120);
    let db = TestDatabase::new("ask-rights");
    db.run("CREATE TABLE open (kind string, n int64)").await;
    db.run("INSERT INTO open VALUES ('a', 1)").await;
    db.run("CREATE TABLE hidden (kind string, secret int64)").await;
    db.run("INSERT INTO hidden VALUES ('topsecret', 4711), ('a', 4712)").await;
    db.metrics(&[(NOON - SECOND, "cpu_busy", None, 47.11)]);
    db.requests(&[(NOON, "GET", "/v1/hidden", 200, 4_711_000, None)]);
    let reader = reader(&["main.open"]);
    for q in [
        "how many open?",
        "how many hidden?",
        "highest secret in hidden",
        "average secret",
        "what changed in the last hour?",
        "is the cpu above 10 %?",
        "if any request was slower than 20 ms, show it",
        "what tables are there?",
        "topsecret",
        "hidden with kind topsecret",
        "notes about topsecret",
        "if hidden has more than 1 rows, how many open?",
    ] {
        let answer = db.ask.ask(&reader, &Question::new(q)).await.unwrap();
        let said = serde_json::to_string(&(&answer.answer, &answer.sections, &answer.sources)).unwrap();
        for secret in ["4711", "4712", "47.1", "“DE”", "/v1/hidden"] {
            assert!(!said.contains(secret), "{q}: {secret} in {said}");
        }
        if !q.contains("hidden") {
            assert!(!said.contains("hidden"), "{q}: {said}");
        }
        if !q.contains("topsecret") {
            assert!(!said.contains("topsecret"), "{q}: {said}");
        }
    }
    let question = Question { sources: vec!["hidden".into()], ..Question::new("how many?") };
    let error = db.ask.ask(&reader, &question).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(!error.to_string().contains("polynya.metrics"), "{error}");
}

/// A reader gets the same answer as in a database that has only the tables it may read, even after an admin asked the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_is_answered_as_if_the_rest_were_not_there() {
    let _limit = testkit::limit(180);
    let (whole, small) = (TestDatabase::new("ask-rights-whole"), TestDatabase::new("ask-rights-small"));
    for db in [&whole, &small] {
        db.run("CREATE TABLE open (kind string, n int64)").await;
        db.run("INSERT INTO open VALUES ('a', 1), ('b', 2)").await;
    }
    whole.run("CREATE TABLE hidden (kind string, n int64, secret string)").await;
    whole.run("INSERT INTO hidden VALUES ('a', 1, 'topsecret'), ('c', 3, 'b')").await;
    whole.metrics(&[(NOON - SECOND, "cpu_busy", None, 5.0)]);
    whole.requests(&[(NOON, "GET", "/v1/hidden", 200, 4_711_000, None)]);
    whole.notes(&[("diary.md", "Diary", "topsecret thoughts", false)]);
    // In one database the reader sees no vault, in the other the vault is empty.
    let reader = reader(&["main.open"]);
    for q in [
        "how many open?",
        "how many hidden?",
        "highest n",
        "average secret",
        "open with kind c",
        "kind a",
        "topsecret",
        "notes about topsecret",
        "what changed in the last hour?",
        "what changed?",
        "did hidden change today?",
        "is the cpu above 1 %?",
        "if any request was slower than 20 ms, show it",
        "if hidden has more than 1 rows, how many open?",
        "what tables are there?",
        "blorb",
    ] {
        let admin = whole.ask(q).await;
        let question = Question::new(q);
        let one = whole.ask.ask(&reader, &question).await.unwrap();
        let two = small.ask.ask(&reader, &question).await.unwrap();
        // The times of commits differ between the two databases; everything else is the same.
        assert_eq!(one.answer, two.answer, "{q}; an admin hears: {}", admin.answer);
        assert_eq!(states(&one), states(&two), "{q}");
        let titles =
            |answer: &ask::Answer| answer.sections.iter().map(|s| s.title.clone()).collect::<Vec<_>>();
        assert_eq!(titles(&one), titles(&two), "{q}");
        assert!(!one.cached, "{q}: an admin's answer is nobody else's");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_shared_only_among_equal_rights() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-rights-shared");
    db.run("CREATE TABLE open (n int64)").await;
    db.run("CREATE TABLE hidden (n int64)").await;
    let ask = async |principal: &types::Principal| {
        db.ask.ask(principal, &Question::new("what tables are there?")).await.unwrap()
    };
    let (one, two) = (reader(&["main.open"]), reader(&["main.open", "main.hidden"]));
    assert!(!ask(&one).await.cached);
    assert!(!ask(&two).await.cached);
    let same = types::Principal { name: "another".into(), ..reader(&["main.open"]) };
    let answer = ask(&same).await;
    assert!(answer.cached);
    never_says(&answer, &["hidden"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_reveals_no_commit_in_hidden_tables() {
    let _limit = testkit::limit(120);
    let db = TestDatabase::new("ask-rights-commits");
    db.at(NOON - 3 * HOUR);
    db.run("CREATE TABLE open (kind string)").await;
    db.run("INSERT INTO open VALUES ('a')").await;
    db.run("CREATE TABLE hidden (kind string)").await;
    let seen = db.engine.root().table("main.open").unwrap().lsn().0;
    let reader = reader(&["main.open"]);
    let questions =
        ["how many open?", "what tables are there?", "what changed in the last minute?", "where is nas?"];
    for round in 0..3 {
        db.at(NOON);
        db.run(&format!("INSERT INTO hidden VALUES ('{round}')")).await;
        for q in questions {
            let answer = db.ask.ask(&reader, &Question::new(q)).await.unwrap();
            assert_eq!(answer.lsn, seen, "{q}");
            assert_eq!(answer.cached, round > 0, "{q}: that it is made anew tells of a commit");
            for source in &answer.sources {
                assert_eq!(source.lsn, seen, "{q}: {source:?}");
                let is_told = source.as_of.as_ref().is_some_and(|time| time.starts_with("2026-11-21T14"));
                assert!(!is_told, "{q}: {source:?} is as new as what may not be seen");
            }
        }
    }
    // A principal that may see everything is told the newest commit.
    assert_eq!(db.ask("what tables are there?").await.lsn, db.engine.root().lsn().0);
}
