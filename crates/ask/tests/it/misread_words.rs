//! Regressions: plain words that were once silently misread. They are superlatives, dates, negations and names that look like
//! words.

use crate::test_database::*;

async fn orders(db: &TestDatabase) {
    db
        .run("CREATE TABLE orders (id int64 PRIMARY KEY, country string, price float64, placed timestamp, paid bool, who string)")
        .await;
    // All rows are stored today, in another order than they were placed.
    db.run(
        "INSERT INTO orders VALUES (1, 'DE', 10.5, '2026-11-20T10:00:00Z', true, 'Ann'), \
             (2, 'AT', 30, '2026-11-21T10:00:00Z', false, 'Bob'), \
             (3, 'IT', 99.25, '2026-11-20T23:00:00Z', true, 'nas'), \
             (4, 'FR', 5, '2026-11-19T10:00:00Z', true, 'New York')",
    )
    .await;
}

/// Checks the text of each answer and the ids of the rows that it shows.
async fn check(db: &TestDatabase, cases: &[(&str, &str, &[i64])]) {
    for (q, expected, ids) in cases {
        let answer = db.ask(q).await;
        says(&answer, &[expected]);
        let shown: Vec<_> = column(&answer, "id").iter().map(|id| id.as_i64().unwrap()).collect();
        assert_eq!(shown, *ids, "{q}: {}", answer.answer);
        if !expected.contains("Not understood") {
            never_says(&answer, &["Not understood"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_is_that_by_the_column_that_is_named() {
    let _limit = testkit::limit(120);
    let db = TestDatabase::new("ask-newest");
    orders(&db).await;
    // A row without a time is neither the newest nor the oldest.
    db.run("INSERT INTO orders VALUES (5, 'US', 1, null, false, null)").await;
    check(
        &db,
        &[
            (
                "when was the last order placed",
                "The newest by `placed` is shown. The newest is of 2026-11-21 10:00:00 UTC.",
                &[2],
            ),
            ("newest order placed", "orders has 5 rows. The newest by `placed` is shown.", &[2]),
            ("oldest order placed", "The oldest by `placed` is shown.", &[4]),
            ("the most recent order placed", "The newest by `placed` is shown.", &[2]),
            ("last three orders placed", "The 3 newest by `placed` are shown.", &[2, 3, 1]),
            ("top 2 orders by placed", "The 2 newest by `placed` are shown.", &[2, 3]),
            ("newest paid order placed", "where paid is true. The newest by `placed` is shown.", &[3]),
            ("the last order", "The newest by `_time` is shown.", &[5]),
        ],
    )
    .await;
    says(&db.ask("latest order per country").await, &["Not understood here: “latest”."]);
    says(&db.ask("how many orders were placed").await, &["orders has 4 rows where placed is not missing."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_date_is_its_day() {
    let _limit = testkit::limit(120);
    let db = TestDatabase::new("ask-dates");
    orders(&db).await;
    let on = "orders has 2 rows with placed on 2026-11-20 (UTC).";
    check(
        &db,
        &[
            ("orders placed 2026-11-20", on, &[3, 1]),
            ("orders placed on 2026-11-20", on, &[3, 1]),
            ("orders with placed = 2026-11-20", on, &[3, 1]),
            (
                "orders on 2026-11-21",
                "orders has 4 rows stored on 2026-11-21 (UTC, by `_time`).",
                &[4, 3, 2, 1],
            ),
            ("orders placed 2026-11-20 10:00", "1 row with placed at 2026-11-20 10:00:00 UTC.", &[1]),
            ("orders placed after 2026-11-20", "1 row with placed after 2026-11-20 (UTC).", &[2]),
            ("orders placed > 2026-11-20", "1 row with placed after 2026-11-20 (UTC).", &[2]),
            ("orders placed until 2026-11-20", "3 rows with placed until 2026-11-20 (UTC).", &[3, 1, 4]),
            (
                "orders placed between 2026-11-19 and 2026-11-20",
                "3 rows with placed from 2026-11-19 to 2026-11-20 (UTC).",
                &[3, 1, 4],
            ),
            ("orders placed on 2026-11-20 from DE", "(UTC) where country is DE.", &[1]),
            // Only one of the two dates is used; the answer names the other as not understood.
            ("orders placed 2026-11-19 or 2026-11-20", "Not understood here: “2026-11-20”.", &[4]),
            ("orders placed 2026-11", "Not understood here: “2026-11”.", &[4, 3, 2, 1]),
            ("orders not placed on 2026-11-20", "Not understood here: “not”.", &[3, 1]),
        ],
    )
    .await;
    says(&db.ask("orders on 2026-11-20").await, &["0 rows stored on 2026-11-20 (UTC, by `_time`)."]);
    // A date may be the value of a text column.
    db.run("CREATE TABLE visits (id int64, day string)").await;
    db.run("INSERT INTO visits VALUES (1, '2026-11-20'), (2, '2026-11-21')").await;
    check(&db, &[("visits with day 2026-11-20", "visits has 1 row where day is 2026-11-20.", &[1])]).await;
    // A date may be the title of a note.
    db.notes(&[("daily.md", "2026-11-20", "rain", true)]);
    let answer = db.ask("notes about 2026-11-20").await;
    never_says(&answer, &["Not understood", "Nothing here"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_negation_is_of_what_stands_behind_it_or_is_named() {
    let _limit = testkit::limit(120);
    let db = TestDatabase::new("ask-negations");
    orders(&db).await;
    let not_de = "orders has 3 rows where country is not DE.";
    let neither = "orders has 2 rows where country is not DE or AT.";
    for q in [
        "orders without country DE",
        "orders not from DE",
        "orders that don't come from DE",
        "orders not in country DE",
        "orders with no country DE",
        "orders except DE",
        "orders other than DE",
        "orders with country other than DE",
        "orders with country != DE",
        "orders not 'DE'",
    ] {
        check(&db, &[(q, not_de, &[4, 3, 2])]).await;
    }
    for q in [
        "orders that are not DE or AT",
        "orders not from DE or AT",
        "orders neither DE nor AT",
        "orders where country isn't DE or AT",
    ] {
        check(&db, &[(q, neither, &[4, 3])]).await;
    }
    check(
        &db,
        &[
            ("orders never paid", "1 row where paid is not true.", &[2]),
            ("orders no longer paid", "1 row where paid is not true.", &[2]),
            ("orders with price != 30", "3 rows where price is != 30.", &[4, 3, 1]),
            ("orders with price not equal to 30", "3 rows where price is not equal to 30.", &[4, 3, 1]),
            ("orders without price above 20", "2 rows where price is not above 20.", &[4, 1]),
            ("lowest price of orders not from FR", "where country is not FR is 10.5, of 3 rows", &[1]),
            // The answer repeats the word as written.
            ("orders that don't live in DE", "Not understood here: “live”, “don't”.", &[1]),
            (
                "orders whose price is not expensive",
                "Not understood here: “expensive”, “not”.",
                &[4, 3, 2, 1],
            ),
            ("orders with price at least 10 and no DE", "Not understood here: “no”.", &[1]),
        ],
    )
    .await;
    let answer = db.ask("are all orders paid?").await;
    says(&answer, &["Not understood here: “all”."]);
    never_says(&answer, &["Yes", "No:"]);
    says(&db.ask("are there no orders from DE?").await, &["No: orders has 1 row where country is DE."]);
    let answer = db.ask("is the highest price of orders not above 60?").await;
    says(&answer, &["No: The highest price in orders is 99.25, of 4 rows. That is above 60."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_may_have_no_value() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-missing");
    orders(&db).await;
    db.run("INSERT INTO orders VALUES (5, 'US', null, null, false, 'Eve')").await;
    let no_price = "orders has 1 row where price is missing.";
    check(
        &db,
        &[
            ("orders with no price", no_price, &[5]),
            ("orders without price", no_price, &[5]),
            ("orders without a price", no_price, &[5]),
            ("orders that have no price", no_price, &[5]),
            ("orders where price is null", no_price, &[5]),
            ("orders where price is not null", "4 rows where price is not missing.", &[4, 3, 2, 1]),
            ("orders with a price", "4 rows where price is not missing.", &[4, 3, 2, 1]),
            ("orders not placed", "1 row where placed is missing.", &[5]),
            ("orders with no price or country", "price is missing or country is missing.", &[5]),
        ],
    )
    .await;
    says(&db.ask("are there orders with no price?").await, &["Yes: orders has 1 row"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_are_of_the_column_that_is_meant_and_say_so() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-figures");
    orders(&db).await;
    check(
        &db,
        &[
            ("the top 3 orders by price", "99.25, of 4 rows. The 3 with the highest are shown.", &[3, 2, 1]),
            ("lowest 2 orders by price", "The 2 with the lowest are shown.", &[4, 1]),
            ("id of the order with the highest price", "The highest price in orders is 99.25", &[3]),
            ("the highest country", "Not understood here: “country”.", &[3]),
        ],
    )
    .await;
    for (q, expected) in [
        (
            "average price of orders per country",
            "The average price in orders by country: “IT”: 99.25, “AT”: 30, “DE”: 10.5, “FR”: 5.",
        ),
        ("sum of price of orders by country", "The sum of price in orders by country: “IT”: 99.25"),
        ("price of orders by country", "Not understood here: “price”."),
        ("average price of orders with price above 20", "where price is above 20 is 64.62, of 2 rows."),
        ("average price of orders with id above 2", "where id is above 2 is 52.12, of 2 rows."),
        ("is the average price of orders between 30 and 40?", "That is at least 30. That is at most 40."),
        ("is the average price of orders between 50 and 60?", "No: The average price in orders is 36.19"),
        ("how many new orders", "Not understood here: “new”."),
        ("how many orders were deleted today", "Not understood here: “deleted”."),
    ] {
        says(&db.ask(q).await, &[expected]);
    }
    db.run("INSERT INTO orders VALUES (6, 'AT', 1, null, false, 'Eve')").await;
    says(&db.ask("which country has the most orders").await, &["orders by country: “AT”: 2, “DE”: 1"]);
    says(&db.ask("top 1 orders by country").await, &["orders by country: “AT”: 2."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_may_be_written_like_words_with_a_meaning() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-names");
    orders(&db).await;
    db.run("INSERT INTO orders VALUES (5, 'IE', 7, null, false, 'O''Brien')").await;
    let new_york = "orders has 1 row where who is New York.";
    check(
        &db,
        &[
            ("where is New York", "orders has 1 row with “New York”.", &[4]),
            ("orders with who New York", new_york, &[4]),
            ("orders by New York", new_york, &[4]),
            ("orders 'New York'", new_york, &[4]),
            ("orders who is 'New York'", new_york, &[4]),
            ("orders with who Ann or New York", "2 rows where who is Ann or New York.", &[4, 1]),
            ("orders not by New York", "4 rows where who is not New York.", &[5, 3, 2, 1]),
            ("orders whose who is O'Brien", "1 row where who is O'Brien.", &[5]),
            ("orders 'O'Brien'", "1 row where who is O'Brien.", &[5]),
        ],
    )
    .await;
    says(&db.ask("how many orders where who is New York").await, &[new_york]);
    says(&db.ask("orders with who new").await, &["orders has 0 rows where who is new."]);
    says(&db.ask("orders with who San Francisco").await, &["0 rows where who is San Francisco."]);
    // Without a capitalized word after it, `new` asks for changes.
    for q in ["what's new?", "what is New today", "new orders today", "What Changed Today?"] {
        says(&db.ask(q).await, &["Changed ", "orders (5 rows"]);
    }
}
