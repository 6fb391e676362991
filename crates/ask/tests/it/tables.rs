//! Questions about tables that users created.

use serde_json::json;

use crate::test_database::*;

async fn shop(db: &TestDatabase) {
    db.at(NOON - 26 * HOUR);
    db.run("CREATE TABLE orders (id int64, country string, price float64, duration_ms int64, paid bool)")
        .await;
    db.run("INSERT INTO orders VALUES (1, 'AT', 10.0, 5, true), (2, 'DE', 20.0, 15, true), (3, 'DE', 60.0, 25, false)").await;
    db.at(NOON - 30 * MINUTE);
    db.run("INSERT INTO orders VALUES (4, 'DE', 30.0, 30, true)").await;
    db.run("CREATE TABLE web_logs (path string, agent string)").await;
    db.run("INSERT INTO web_logs VALUES ('/a', 'curl'), ('/b', 'firefox')").await;
    db.at(NOON);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_answer_by_name_column_value_and_time() {
    let _limit = testkit::limit(180);
    let db = TestDatabase::new("ask-tables");
    shop(&db).await;
    for (q, expected) in [
        ("how many orders are there?", &["orders has 4 rows"][..]),
        ("How many orders today?", &["orders has 1 row stored today (UTC, by `_time`)"]),
        ("how many orders yesterday?", &["orders has 3 rows stored yesterday (UTC, by `_time`)"]),
        ("how many orders in the last hour", &["orders has 1 row stored in the last hour (by `_time`)"]),
        (
            "how many orders since 14:20",
            &["orders has 0 rows stored since 2026-11-21 14:20:00 UTC (by `_time`)"],
        ),
        ("how many orders from country DE?", &["orders has 3 rows where country is DE"]),
        ("how many orders with country is FR", &["orders has 0 rows where country is FR"]),
        ("how many DE orders?", &["orders has 3 rows where country is DE"]),
        ("orders with price above 25", &["orders has 2 rows where price is above 25"]),
        ("orders slower than 20 ms", &["orders has 2 rows where duration_ms is slower than 20 ms"]),
        ("average price of orders", &["The average price in orders is 30, of 4 rows"]),
        (
            "what is the average price of the orders from country DE",
            &["The average price in orders where country is DE is 36.67, of 3 rows"],
        ),
        (
            "total price of orders yesterday",
            &["The sum of price in orders stored yesterday (UTC, by `_time`) is 90"],
        ),
        ("highest price in orders", &["The highest price in orders is 60"]),
        ("lowest price in orders", &["The lowest price in orders is 10"]),
        (
            "is the average price of orders above 25?",
            &["Yes", "The average price in orders is 30", "That is above 25"],
        ),
        ("is the highest price of orders above 60?", &["No", "That is not above 60"]),
        ("are there more than 3 orders?", &["Yes", "orders has 4 rows", "That is more than 3"]),
        ("are there more than 4 orders?", &["No", "That is not more than 4"]),
        ("orders by country", &["orders by country: “DE”: 3, “AT”: 1"]),
        ("average price of orders per country", &["orders by country: “DE”: 36.67, “AT”: 10"]),
        ("how many web logs?", &["web_logs has 2 rows"]),
        ("how many web_logs with agent curl", &["web_logs has 1 row where agent is curl"]),
    ] {
        let answer = db.ask(q).await;
        says(&answer, expected);
        let table = if q.contains("web") { "web_logs" } else { "orders" };
        assert_eq!(states(&answer), [format!("{table} answered")], "{q}");
    }
    let answer = db.ask("the last 2 orders").await;
    assert_eq!(column(&answer, "id"), [json!(4), json!(3)]);
    says(&db.ask("the last 9 orders").await, &["orders has 4 rows. All are shown, the newest first."]);
    says(&db.ask("the last order").await, &["orders has 4 rows. The newest is shown."]);
    says(
        &db.ask("orders not paid and not AT").await,
        &["1 row where paid is not true and country is not AT"],
    );
    let answer = db.ask("the oldest order").await;
    assert_eq!(column(&answer, "id")[0], json!(1));
    let answer = db.ask("which order has the highest price?").await;
    assert_eq!(column(&answer, "id"), [json!(3)]);
    let answer = db.ask("what is the average price?").await;
    says(&answer, &["The average price in orders is 30"]);
    let answer = db.ask("is any order unpaid?").await;
    says(&answer, &["Not understood here: “unpaid”"]);
    never_says(&answer, &["Yes", "No:"]);
    let answer = db.ask("orders above 5").await;
    says(&answer, &["is not clear", "price"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_statement_behind_an_answer_gives_the_same() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-sql");
    shop(&db).await;
    let answer = db.ask("orders with country DE and price above 25").await;
    let section = &answer.sections[0];
    assert_eq!(section.params, [json!("de"), json!(25.0)]);
    let params = vec![types::Value::String("de".into()), types::Value::Float64(25.0)];
    let again = db
        .sql
        .run(&types::Principal::local(), section.sql.as_ref().unwrap(), params, Default::default())
        .await
        .unwrap();
    let query::Answer::Rows(mut rows) = again else { panic!("rows") };
    let count: usize = rows.collect().await.unwrap().iter().map(|batch| batch.num_rows()).sum();
    assert_eq!((count, section.rows.len()), (2, 2));
}

/// An integer was once passed as a float. Then it was compared with every row, where blocks and keys could have been pruned by
/// it.
#[tokio::test(flavor = "multi_thread")]
async fn a_whole_number_is_sought_as_one_in_a_column_of_whole_numbers() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-whole");
    shop(&db).await;
    let answer = db.ask("how many orders with id 3?").await;
    says(&answer, &["orders has 1 row where id is 3"]);
    assert_eq!(answer.sections[0].params, [json!(3)]);
    let answer = db.ask("how many orders with price 60?").await;
    says(&answer, &["orders has 1 row where price is 60"]);
    assert_eq!(answer.sections[0].params, [json!(60.0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_values_cannot_become_statements() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-quotes");
    db.run(r#"CREATE TABLE "sly" ("pri""ce" float64, "or 1=1" string)"#).await;
    db.run(r#"INSERT INTO "sly" VALUES (5, 'x'' OR ''1''=''1'), (7, 'plain')"#).await;
    let answer = db.ask(r#"sly with "or 1=1" is "x' OR '1'='1""#).await;
    says(&answer, &["sly has 1 row"]);
    let answer = db.ask(r#"sly "'; DROP TABLE sly; --""#).await;
    says(&answer, &["Not understood here"]);
    assert_eq!(db.engine.root().table("main.sly").unwrap().rows(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn help_lists_the_sources_and_tables() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-catalog");
    shop(&db).await;
    for q in ["what tables are there?", "what can I ask?", "help", "list tables"] {
        let answer = db.ask(q).await;
        says(&answer, &["There are 2 tables", "`orders`", "`web_logs`"]);
        assert_eq!(states(&answer), ["tables answered"], "{q}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_are_small_words_too_are_found_or_named() {
    let _limit = testkit::limit(120);
    let db = TestDatabase::new("ask-small-words");
    db.run("CREATE TABLE orders (id int64, country string, state string)").await;
    db.run("INSERT INTO orders VALUES (1, 'AT', 'OR'), (2, 'DE', 'CA'), (3, 'IT', 'IN'), (4, 'NO', 'OR')")
        .await;
    for (q, expected) in [
        ("orders with country DE or AT", "orders has 2 rows where country is DE or AT."),
        ("how many orders with country AT", "orders has 1 row where country is AT."),
        ("how many orders with country IT", "orders has 1 row where country is IT."),
        ("how many orders with country NO", "orders has 1 row where country is NO."),
        ("how many orders with country at", "orders has 1 row where country is at."),
        ("how many orders with country no", "orders has 1 row where country is no."),
        ("how many orders whose country is de or it", "orders has 2 rows where country is de or it."),
        ("how many orders with country IT in the last hour", "(by `_time`) where country is IT."),
        ("how many orders with country = NO or IT", "orders has 2 rows where country is NO or IT."),
        ("how many AT orders", "orders has 1 row where country is AT."),
        ("orders AT or NO", "orders has 2 rows where country is AT or country is NO."),
        ("orders with state OR", "orders has 2 rows where state is OR."),
        ("orders with state CA or IN", "orders has 2 rows where state is CA or IN."),
        // Values that no row has: the answer counts 0 rows, or names the word as not understood.
        ("how many orders with country IS", "orders has 0 rows where country is IS."),
        ("how many BE orders", "Not understood here: “BE”."),
        ("how many orders with country so", "Not understood here: “so”."),
        // The question does not name the table.
        ("country is DE or AT", "orders has 2 rows where country is DE or AT."),
        ("DE or AT", "orders has 2 rows with “DE” or “AT”."),
        // Capitals for emphasis are not values.
        ("HOW MANY ORDERS WITH COUNTRY DE", "orders has 1 row where country is DE."),
        ("how many orders are NOT DE", "orders has 3 rows where country is not DE."),
    ] {
        let answer = db.ask(q).await;
        says(&answer, &[expected]);
        if !expected.starts_with("Not understood") {
            never_says(&answer, &["Not understood"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_is_that_of_the_column_that_is_named_or_of_storing_and_is_said_to_be() {
    let _limit = testkit::limit(120);
    let db = TestDatabase::new("ask-times");
    db.run("CREATE TABLE orders (id int64, placed timestamp, created_at timestamp, due date)").await;
    db
        .run("INSERT INTO orders VALUES (1, '2026-11-20T10:00:00Z', '2026-11-19T10:00:00Z', '2026-11-20'), (2, '2026-11-21T01:00:00Z', '2026-11-20T09:00:00Z', '2026-11-25')")
        .await;
    for (q, expected) in [
        ("how many orders placed yesterday?", "orders has 1 row with placed yesterday (UTC)."),
        ("how many orders were placed today", "orders has 1 row with placed today (UTC)."),
        ("orders created yesterday", "orders has 1 row with created_at yesterday (UTC)."),
        ("how many orders due yesterday", "orders has 1 row with due yesterday (UTC)."),
        ("how many orders yesterday", "orders has 0 rows stored yesterday (UTC, by `_time`)."),
        (
            "average id of orders placed yesterday",
            "The average id in orders with placed yesterday (UTC) is 1",
        ),
    ] {
        let answer = db.ask(q).await;
        says(&answer, &[expected]);
        never_says(&answer, &["Not understood"]);
    }
}
