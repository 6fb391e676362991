//! Equal questions share one evaluation. A cached answer is used only while the tables it was made from are unchanged (S3).

use ask::{Event, Options, Question};
use futures::future::join_all;
use types::Principal;

use crate::test_database::*;

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_equal_cold_questions_at_once_make_one_evaluation() {
    let _limit = testkit::limit(120);
    let db = TestDatabase::new("ask-500");
    db.run("CREATE TABLE events (kind string)").await;
    db.run("INSERT INTO events SELECT 'a' FROM generate_series(1, 20000)").await;
    let before = db.ask.status();
    let spellings = ["how many events?", "How many EVENTS", "  how   many events ?! ", "how many events"];
    // Each question runs on its own task, so that they are truly concurrent.
    let asking = (0..500).map(|i| {
        let ask = db.ask.clone();
        tokio::spawn(
            async move { ask.ask(&Principal::local(), &Question::new(spellings[i % 4])).await.unwrap() },
        )
    });
    let answers: Vec<_> = join_all(asking).await.into_iter().map(Result::unwrap).collect();
    let after = db.ask.status();
    assert_eq!(after.asked - before.asked, 500);
    assert_eq!(after.evaluations - before.evaluations, 1);
    assert_eq!(answers.iter().filter(|answer| !answer.cached).count(), 1);
    for answer in &answers {
        says(answer, &["events has 20,000 rows"]);
        assert_eq!(answer.lsn, answers[0].lsn);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_answer_ends_with_a_change_of_what_it_read() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-kept");
    db.run("CREATE TABLE events (kind string)").await;
    db.run("CREATE TABLE others (kind string)").await;
    db.run("INSERT INTO events VALUES ('a')").await;
    assert!(!db.ask("how many events?").await.cached);
    let first = db.ask("how many events?").await;
    assert!(first.cached);
    // Another table changed: the answer is the same, at the lsn at which it was made.
    db.run("INSERT INTO others VALUES ('b')").await;
    let again = db.ask("how many events?").await;
    assert!(again.cached);
    assert_eq!(again.lsn, first.lsn);
    db.run("INSERT INTO events VALUES ('b')").await;
    let new = db.ask("how many events?").await;
    assert!(!new.cached && new.lsn > first.lsn);
    says(&new, &["events has 2 rows"]);
    // A new table may be the one that the question means.
    db.run("CREATE TABLE more (kind string)").await;
    assert!(!db.ask("how many events?").await.cached);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_depends_on_the_time_is_cached_for_a_second() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-second");
    db.run("CREATE TABLE events (kind string)").await;
    db.run("INSERT INTO events VALUES ('a')").await;
    let q = "how many events in the last hour?";
    assert!(!db.ask(q).await.cached);
    assert!(db.ask(q).await.cached);
    db.at(NOON + SECOND);
    assert!(!db.ask(q).await.cached);
    db.at(NOON + 2 * HOUR);
    says(&db.ask(q).await, &["events has 0 rows"]);
    // The second begins with the first asker and not with the clock, so that concurrent askers share one answer at any time.
    db.at(NOON + 3 * HOUR + 900_000);
    assert!(!db.ask(q).await.cached);
    db.at(NOON + 3 * HOUR + 1_100_000);
    assert!(db.ask(q).await.cached);
    db.at(NOON + 3 * HOUR + 1_900_000);
    assert!(!db.ask(q).await.cached);
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_that_only_look_equal_have_answers_of_their_own() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-alike");
    db.run("CREATE TABLE orders (country string, price float64)").await;
    db.run("INSERT INTO orders VALUES ('AT', 1), ('DE', 2), ('DE', 3)").await;
    // The comma decides which part is the condition, so these are two questions.
    let first = db.ask("if orders have country AT, how many orders").await;
    let other = db.ask("if orders have country, AT how many orders").await;
    assert!(!other.cached && other.answer != first.answer, "{}", other.answer);
    let values = db.ask("orders \"AT\"").await;
    assert!(!db.ask("orders \"DE\"").await.cached);
    says(&values, &["orders has 1 row"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_a_stream_who_stands_still_keeps_nobody_waiting() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-stream-slow");
    for table in 0..10 {
        db.run(&format!("CREATE TABLE t{table} (n int64)")).await;
        db.run(&format!("INSERT INTO t{table} VALUES (1)")).await;
    }
    let q = "what changed today; what changed in the last hour; what changed yesterday";
    let events = db.ask.stream(&Principal::local(), &Question::new(q));
    // No one reads the stream.
    says(&db.ask(q).await, &["Changed today"]);
    drop(events);
    assert_eq!(db.ask.status().running, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_parts_of_an_answer_stand_at_one_lsn() {
    let _limit = testkit::limit(120);
    let db = TestDatabase::new("ask-one-lsn");
    db.run("CREATE TABLE one (n int64)").await;
    db.run("CREATE TABLE two (n int64)").await;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = {
        let (engine, stop) = (db.engine.clone(), stop.clone());
        std::thread::spawn(move || {
            use std::sync::Arc;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                // Each commit writes to both tables, so at any lsn they have equally many rows.
                let batch = || {
                    arrow::array::RecordBatch::try_from_iter([(
                        "n",
                        Arc::new(arrow::array::Int64Array::from(vec![1])) as _,
                    )])
                    .unwrap()
                };
                let insert = |table: &str| engine::Op::Insert {
                    table: table.into(),
                    batch: batch(),
                    mode: engine::Mode::Append,
                };
                engine
                    .commit(
                        &Principal::local(),
                        engine::Transaction::new(vec![insert("main.one"), insert("main.two")]),
                    )
                    .unwrap();
            }
        })
    };
    for _ in 0..20 {
        let answer = db.ask("how many one; how many two?").await;
        let count = |title: &str| {
            answer
                .sections
                .iter()
                .find(|s| s.title == title)
                .unwrap_or_else(|| panic!("{}", answer.answer))
                .rows[0][0]
                .clone()
        };
        assert_eq!(count("one"), count("two"), "{}", answer.answer);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.join().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_gives_sections_then_the_whole() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::new("ask-stream");
    db.run("CREATE TABLE events (kind string)").await;
    db.metrics(&[(NOON - SECOND, "cpu_busy", None, 5.0)]);
    for _ in 0..2 {
        // The second answer comes from the cache and arrives in the same form.
        let mut events =
            db.ask.stream(&Principal::local(), &Question::new("how many events; is the cpu above 80 %?"));
        let (mut sections, mut whole) = (Vec::new(), None);
        while let Some(event) = events.recv().await {
            assert!(whole.is_none(), "nothing comes after the whole");
            match event.unwrap() {
                Event::Section(section) => sections.push(section),
                Event::Answer(answer) => whole = Some(answer),
            }
        }
        let mut whole = whole.unwrap();
        // Sections arrive when they are ready, which is not the order of the questions.
        sections.sort_by(|a, b| a.title.cmp(&b.title));
        whole.sections.sort_by(|a, b| a.title.cmp(&b.title));
        assert_eq!(sections, whole.sections);
        assert_eq!(sections.len(), 2);
    }
    let mut events = db.ask.stream(&Principal::local(), &Question::new(""));
    assert!(events.recv().await.unwrap().is_err());
    assert!(events.recv().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_different_questions_at_once_are_refused() {
    let _limit = testkit::limit(60);
    let db = TestDatabase::with("ask-many", Options { running_max: 1, ..Options::default() });
    db.run("CREATE TABLE events (kind string)").await;
    db.run("INSERT INTO events SELECT 'a' FROM generate_series(1, 20000)").await;
    let asking = (0..50).map(|i| {
        let ask = db.ask.clone();
        tokio::spawn(async move {
            ask.ask(&Principal::local(), &Question::new(format!("how many events with kind x{i}"))).await
        })
    });
    let results: Vec<_> = join_all(asking).await.into_iter().map(Result::unwrap).collect();
    assert!(results.iter().any(Result::is_ok));
    for error in results.into_iter().filter_map(Result::err) {
        assert_eq!(error.kind(), types::Kind::Busy, "{error}");
    }
    assert!(db.ask("how many events?").await.answer.contains("20,000"));
    assert_eq!(db.ask.status().running, 0);
}
