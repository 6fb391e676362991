//! Regressions: questions that were once answered as others. Exclusions were ignored, numbers were rounded, and "no" was said of
//! times without records.

use ask::Question;

use crate::test_database::*;

async fn orders(db: &TestDatabase) {
    db.run("CREATE TABLE orders (id int64 PRIMARY KEY, country string, price float64, paid bool)").await;
    db.run("INSERT INTO orders VALUES (1, 'DE', 10.5, true), (2, 'AT', 30, false), (3, 'DE', 50.5, true)")
        .await;
}

fn some_requests(db: &TestDatabase) {
    db.requests(&[
        (NOON - 2 * HOUR, "GET", "/v1/tables", 200, 1_000, None),
        (NOON - 30 * MINUTE, "GET", "/v1/sql", 404, 1_200, None),
        (NOON - 20 * MINUTE, "POST", "/v1/sql", 200, 45_500, None),
        (NOON - 10 * MINUTE, "PUT", "/v1/sql", 500, 20_000, None),
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_not_of_a_method_route_or_status_are_the_others() {
    let _limit = testkit::limit(120);
    let db = TestDatabase::new("ask-exact-requests");
    some_requests(&db);
    for (q, expected) in [
        ("how many POST requests", "1 request answered since 2026-11-21 14:10:00 UTC (method is POST)"),
        ("how many requests were not POST", "3 requests answered since"),
        ("how many requests were not POST", "(method is not POST)"),
        ("requests other than POST", "3 requests answered"),
        ("requests with a method other than POST", "3 requests answered"),
        ("requests except POST", "3 requests answered"),
        ("all but POST requests", "3 requests answered"),
        ("requests where method != POST", "3 requests answered"),
        ("how many GET or POST requests", "3 requests answered"),
        ("how many requests were not GET or POST", "1 request answered"),
        ("requests not to /v1/sql", "1 request answered"),
        ("GET requests not to /v1/sql", "1 request answered"),
        ("requests without status 404", "3 of 4 recorded requests since"),
        ("requests with status != 404", "3 of 4 recorded requests"),
        ("requests whose route is not /v1/sql", "1 request answered"),
        ("requests whose status is not 404", "did not have status 404"),
        ("requests with status 404 or 500", "2 of 4 recorded requests"),
        ("requests with status above 200", "2 of 4 recorded requests"),
        ("were there requests with a status other than 200?", "Yes: 2 of 4"),
        ("are there no POST requests?", "No: 1 request answered"),
        // Words that leave the request ambiguous are named.
        ("GET requests, not POST", "Not understood here: “POST”"),
        ("how many non-POST requests", "Not understood here: “non-POST”"),
        ("did any request not fail?", "Not understood here: “not”"),
    ] {
        let answer = db.ask(q).await;
        says(&answer, &[expected]);
        assert_eq!(
            answer.answer.contains("Not understood"),
            expected.contains("Not understood"),
            "{q}: {}",
            answer.answer
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_verdict_comes_of_a_time_that_nobody_recorded() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-exact-unrecorded");
    some_requests(&db);
    let since = "The oldest recorded request is from 2026-11-21 12:30:00 UTC.";
    for q in [
        "did any request fail yesterday",
        "did no request fail yesterday",
        "were there any requests yesterday",
        "were any requests slow in the last 5 minutes",
        "how many requests failed yesterday",
    ] {
        let answer = db.ask(q).await;
        says(&answer, &["No request is recorded ", "so nothing is known about that time."]);
        never_says(&answer, &["Yes", "No:", "None of"]);
        assert_eq!(answer.answer.contains(since), q.contains("yesterday"), "{q}: {}", answer.answer);
    }
    for q in ["if no request failed yesterday, show it", "if any request failed yesterday, show it"] {
        let answer = db.ask(q).await;
        says(&answer, &["The data here does not", since]);
        never_says(&answer, &["It holds", "It does not hold"]);
    }
    // If the records begin after the window does, one match is enough for a yes, but no match is not enough for a no.
    says(&db.ask("did any request fail today").await, &["Yes: 2 of 4 recorded requests today", since]);
    let answer = db.ask("was any request slow today").await;
    says(&answer, &["None of 4 recorded requests today", since]);
    never_says(&answer, &["No:"]);
    says(&db.ask("were there more than 3 requests today").await, &["Yes: 4 requests", since]);
    never_says(&db.ask("were there fewer than 5 requests today").await, &["Yes", "No:"]);
    // The records cover the whole window, so the answer is definite.
    says(&db.ask("was any request slow in the last hour").await, &["No: None of 3 recorded requests"]);
    says(&db.ask("were there any requests in the last 5 minutes").await, &["No: 0 requests answered"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_numbers_and_decimals_keep_their_digits() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-exact-digits");
    db.run("CREATE TABLE big (id int64 PRIMARY KEY, amount decimal(38,10))").await;
    db.run(
        "INSERT INTO big VALUES (9007199254740992, 12345678901234567890.1234567891), \
             (9007199254740993, 12345678901234567890.1234567892)",
    )
    .await;
    for (q, expected) in [
        ("big with id 9007199254740993", "big has 1 row where id is 9007199254740993."),
        ("how many big with id above 9007199254740992", "big has 1 row where"),
        ("how many big with id above 9007199254740992.5", "big has 1 row where"),
        ("how many big with id between 9007199254740993 and 9007199254740994", "big has 1 row where"),
        ("highest id of big", "is 9,007,199,254,740,993, of 2 rows."),
        ("lowest id of big", "is 9,007,199,254,740,992, of 2 rows."),
        ("sum of id of big", "is 18,014,398,509,481,985, of 2 rows."),
        ("is the highest id of big above 9007199254740992?", "Yes: The highest id in big"),
        ("is the highest id of big above 9007199254740993?", "No: The highest id in big"),
        ("how many big with amount above 12345678901234567890.1234567891", "big has 1 row where"),
        ("big with amount 12345678901234567890.1234567892", "big has 1 row where"),
        ("highest amount of big", "is 12,345,678,901,234,567,890.1234567892, of 2 rows."),
        ("lowest amount of big", "is 12,345,678,901,234,567,890.1234567891, of 2 rows."),
        ("sum of amount of big", "is 24,691,357,802,469,135,780.2469135783, of 2 rows."),
        ("is the lowest amount of big below 12345678901234567890.1234567892?", "Yes: The lowest amount"),
    ] {
        let answer = db.ask(q).await;
        says(&answer, &[expected]);
        never_says(&answer, &["Not understood"]);
    }
    let answer = db.ask("highest amount of big").await;
    assert_eq!(column(&answer, "amount"), ["12345678901234567890.1234567892"]);
    assert_eq!(column(&answer, "id"), ["9007199254740993"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comma_is_that_of_thousands_or_of_a_decimal() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-exact-comma");
    orders(&db).await;
    says(&db.ask("orders with price above 30,5").await, &["1 row where price is above 30.5."]);
    says(&db.ask("orders with price below 1,000").await, &["3 rows where price is below 1,000."]);
    says(&db.ask("orders with price above 1,00,5").await, &["Not understood here: “above”, “1,00,5”."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_is_of_the_named_things() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-exact-counted");
    orders(&db).await;
    says(&db.ask("what tables are there?").await, &["There is 1 table."]);
    db.notes(&[("a.md", "A", "alpha", true)]);
    for (q, expected) in [
        ("how many orders with no note", "Not understood here: “note”, “no”."),
        ("how many notes", "vault has 1 note."),
        ("how many countries", "orders has 2 different values of country."),
        ("how many different countries", "orders has 2 different values of country."),
        ("how many countries of orders that are not paid", "orders has 1 different value of country where"),
        ("how many countries in orders with price above 20?", "2 different values of country where price"),
        ("how many paid orders", "orders has 2 rows where paid is true."),
        ("how many orders with price", "orders has 3 rows where price is not missing."),
        ("how many country orders", "Not understood here: “country”."),
        ("how many orders with the country of price", "Not understood"),
    ] {
        let answer = db.ask(q).await;
        says(&answer, &[expected]);
        assert_eq!(
            answer.answer.contains("Not understood"),
            expected.contains("Not understood"),
            "{q}: {}",
            answer.answer
        );
    }
    db.run("CREATE TABLE pages (name string)").await;
    says(&db.ask("how many pages").await, &["pages has 0 rows."]);
    // The answer states the age of the newest row, even if the count is 0.
    for q in ["how many notes", "how many orders from country FR", "how many orders with price above 500"] {
        assert!(db.ask(q).await.sources[0].as_of.is_some(), "{q}");
    }
    db.metrics(&[(NOON - SECOND, "memory_used", None, 5e9), (NOON - SECOND, "memory_total", None, 1e10)]);
    says(&db.ask("memory used by polynya").await, &["50.0 % used", "Not understood here: “polynya”."]);
    never_says(&db.ask("memory used by this machine").await, &["Not understood"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_did_not_change_are_the_others() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-exact-unchanged");
    db.at(NOON - 48 * HOUR);
    db.run("CREATE TABLE quiet (id int64)").await;
    db.run("INSERT INTO quiet VALUES (1)").await;
    db.at(NOON);
    orders(&db).await;
    let answer = db.ask("which tables did not change today").await;
    says(&answer, &["Not changed today (UTC): quiet."]);
    never_says(&answer, &["orders"]);
    assert_eq!(column(&answer, "table"), ["quiet"]);
    let answer = db.ask("which tables changed today").await;
    says(&answer, &["Changed today (UTC): orders (3 rows new or replaced)."]);
    never_says(&answer, &["quiet"]);
    says(&db.ask("if orders did not change today, show it").await, &["It does not hold"]);
    db.notes(&[("a.md", "A", "alpha", true)]);
    says(&db.ask("which notes did not change today").await, &["Not understood here: “not”."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_sees_no_vault_is_not_told_of_other_tables() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-exact-key");
    orders(&db).await;
    db.notes(&[("a.md", "A", "alpha", true), ("b.md", "B", "beta", false)]);
    let reader = reader(&["main.orders"]);
    for q in ["which notes changed today", "did any note change today", "new pages today"] {
        let answer = db.ask.ask(&reader, &Question::new(q)).await.unwrap();
        says(&answer, &["This key may not see which notes changed."]);
        never_says(&answer, &["orders (", "vault", "Yes", "No:"]);
        assert_eq!(states(&answer), ["changes nothing"], "{q}");
    }
    let answer = db.ask.ask(&reader, &Question::new("if any note changed today, show it")).await.unwrap();
    says(&answer, &["The data here does not"]);
    let answer = db.ask.ask(&reader, &Question::new("did orders or notes change today")).await.unwrap();
    never_says(&answer, &["vault", "1 file"]);
    says(&db.ask("which notes changed today").await, &["vault (2 files new or replaced)"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn if_so_makes_the_question_a_condition() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-exact-if-so");
    orders(&db).await;
    db.metrics(&[(NOON - SECOND, "cpu_busy", None, 95.0)]);
    let answer = db.ask("is the cpu busy, if so what changed today?").await;
    says(&answer, &["It holds: is the cpu busy?", "Changed today (UTC): orders"]);
    let answer = db.ask("is the cpu above 99 %? If so, how many orders").await;
    says(&answer, &["It does not hold: is the cpu above 99 %?"]);
    never_says(&answer, &["orders has"]);
}
