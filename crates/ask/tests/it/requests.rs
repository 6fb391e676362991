//! Questions about requests, over requests that are known.

use crate::test_database::*;

fn some(db: &TestDatabase) {
    db.requests(&[
        (NOON - 2 * HOUR, "GET", "/v1/tables", 200, 90_000, None),
        (NOON - 30 * MINUTE, "GET", "/v1/tables/{table}/rows", 200, 1_200, Some("events")),
        (NOON - 20 * MINUTE, "POST", "/v1/sql", 200, 45_500, None),
        (NOON - 10 * MINUTE, "GET", "/v1/tables/{table}", 404, 20_000, Some("nothing")),
        (NOON - 5 * MINUTE, "POST", "/v1/sql", 500, 20_001, None),
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn slower_than_twenty_milliseconds_means_longer_than_exactly_that() {
    let _limit = testkit::limit(120);
    let db = TestDatabase::new("ask-slow");
    some(&db);
    let answer = db.ask("if any request was slower than 20 ms, show it").await;
    says(
        &answer,
        &[
            "It holds that any request was slower than 20 ms",
            "3 of 5 recorded requests",
            "slowest took 90 ms",
        ],
    );
    let milliseconds: Vec<f64> = column(&answer, "ms").iter().map(|ms| ms.as_f64().unwrap()).collect();
    assert_eq!(milliseconds, [90.0, 45.5, 20.001]);
    assert_eq!(states(&answer), ["requests answered"]);
    let answer = db.ask("if any request was slower than 20 ms in the last hour, show it").await;
    assert_eq!(column(&answer, "ms").len(), 2);
    // No request was that slow.
    let answer = db.ask("if any request was slower than 90 ms, show it").await;
    says(
        &answer,
        &[
            "It does not hold that any request was slower than 90 ms",
            "None of 5 recorded requests",
            "slowest took 90 ms",
        ],
    );
    assert!(answer.sections.iter().all(|section| section.rows.is_empty()), "{:?}", answer.sections);
    let answer = db.ask("if no request was slower than 90 ms, tell me").await;
    says(&answer, &["It holds that no request was slower"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_by_what_is_asked_of_them() {
    let _limit = testkit::limit(120);
    let db = TestDatabase::new("ask-requests");
    some(&db);
    for (q, expected) in [
        ("how many requests were there in the last hour?", &["4 requests answered in the last hour"][..]),
        ("how many requests failed?", &["2 of 5 recorded requests"]),
        ("how many server errors today", &["1 of 5 recorded requests", "today (UTC)"]),
        ("were there any errors in the last 7 minutes?", &["Yes", "1 of 1 recorded request"]),
        ("any errors in the last minute?", &["No request is recorded in the last minute"]),
        ("which requests had status 404", &["1 of 5", "had status 404"]),
        ("the slowest request", &["The slowest took 90 ms"]),
        ("what is the average latency in the last hour?", &["21.68 ms on average"]),
        ("is the average latency above 20 ms in the last hour?", &["Yes", "21.68 ms"]),
        ("how many POST requests", &["2 requests answered"]),
        ("requests to events slower than 1 ms", &["1 of 1 recorded request"]),
        ("were there more than 3 requests in the last hour?", &["Yes", "4 requests"]),
        ("were there more than 4 requests in the last hour?", &["No"]),
        ("any slow requests?", &["No", "100 ms or more"]),
    ] {
        let world_has_events = q.contains("events");
        if world_has_events {
            db.run("CREATE TABLE events (kind string)").await;
        }
        let answer = db.ask(q).await;
        says(&answer, expected);
        assert_eq!(states(&answer), ["requests answered"], "{q}: {}", answer.answer);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_that_nobody_knows_leaves_the_condition_open() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-plex");
    some(&db);
    let answer = db.ask("if any plex request was slower than 20 ms, show it").await;
    says(&answer, &["The data here does not", "Not understood here: “plex”"]);
    never_says(&answer, &["It holds", "It does not hold"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_requests_nothing_is_claimed_of_them() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-no-requests");
    let answer = db.ask("if any request was slower than 20 ms, show it").await;
    says(&answer, &["The data here does not"]);
    assert_eq!(states(&answer), ["requests nothing"]);
    // An asker that may see all tables is told that there are no requests; its key is not blamed.
    let answer = db.ask("the slowest request").await;
    assert!(answer.answer.starts_with("No request is recorded yet."), "{}", answer.answer);
    never_says(&answer, &["key", "Nothing here"]);
    let reader = reader(&["main.open"]);
    let answer = db.ask.ask(&reader, &ask::Question::new("the slowest request")).await.unwrap();
    says(&answer, &["This key may not see requests, or none is recorded yet."]);
}
