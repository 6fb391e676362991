//! Tests of `polynya ask`, with and without a server, and of the demo's answers about its machine.

use serde_json::{Value, json};

use crate::polynya::Workdir;

fn answer(workdir: &Workdir, question: &str) -> Value {
    let text = workdir.ok(&["ask", "--json", question]);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{question}: {e}: {text}"))
}

fn said(answer: &Value) -> &str {
    answer["answer"].as_str().unwrap_or_default()
}

#[test]
fn questions_are_answered_without_a_server_and_with_one() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    workdir.write("orders.csv", "id,country,price\n1,AT,10.5\n2,DE,20.5\n3,DE,60\n");
    workdir.ok(&["ingest", "orders.csv"]);
    let text = workdir.ok(&["ask", "average", "price", "of", "orders", "with", "country", "DE"]);
    assert!(
        text.starts_with("The average price in orders where country is DE is 40.25, of 2 rows."),
        "{text}"
    );
    assert!(text.contains("Asked: orders answered in ") && text.contains(" ms at lsn "), "{text}");
    let alone = answer(&workdir, "how many orders?");
    assert_eq!(said(&alone), "orders has 3 rows.");
    assert!(
        workdir
            .fails(&["ask", "--source", "weather", "will it rain?"])
            .contains("there is no source `weather`")
    );
    assert!(said(&answer(&workdir, "will it rain?")).starts_with("Nothing here answers that."));
    let server = workdir.serve(&["serve"]);
    let served = answer(&workdir, "how many orders?");
    assert_eq!((said(&served), &served["sections"]), (said(&alone), &alone["sections"]));
    server.stop();
}

#[test]
fn the_demo_answers_about_this_machine_its_requests_and_its_changes() {
    let _limit = testkit::limit(180);
    let workdir = Workdir::new();
    let server = workdir.serve(&["demo"]);
    workdir.ok(&["sql", "CREATE TABLE events (kind string)"]);
    workdir.ok(&["sql", "INSERT INTO events VALUES ('a'), ('b')"]);
    // This request is slow on any machine.
    workdir.ok(&["sql", "SELECT count(*) FROM generate_series(1, 30000000) AS s(x) WHERE x % 7 = 3"]);
    // Metrics and requests are recorded once a second.
    let started = std::time::Instant::now();
    let patience = std::time::Duration::from_secs(60);
    loop {
        let disk = answer(&workdir, "is the disk nearly full?");
        let requests = answer(&workdir, "how many requests were there?");
        let there = |answer: &Value| answer["sources"][0]["state"] == json!("answered");
        if there(&disk)
            && there(&requests)
            && workdir.number("SELECT count(*) FROM polynya.requests WHERE duration_us > 20000") > 0
        {
            break;
        }
        assert!(started.elapsed() < patience, "{disk} {requests}");
        std::thread::yield_now();
    }
    // The answer is compared with the figures that SQL returns.
    let disk = answer(&workdir, "is the disk nearly full?");
    let section = &disk["sections"][0];
    let rows = {
        let time = &section["rows"][0][3];
        let sql = "SELECT max(CASE WHEN name = 'filesystem_free' THEN value END), max(CASE WHEN name = 'filesystem_used' THEN value END) \
                   FROM polynya.metrics WHERE time = $1";
        let line = workdir.ok(&["sql", "--csv", sql, "-p", time.as_str().unwrap()]);
        let figures: Vec<f64> =
            line.lines().nth(1).unwrap().split(',').map(|text| text.parse().unwrap()).collect();
        figures
    };
    let used = 100.0 * rows[1] / (rows[0] + rows[1]);
    assert!((section["rows"][0][1].as_f64().unwrap() - used).abs() < 0.006, "{section} {used}");
    assert!(said(&disk).starts_with(if used >= 90.0 { "Yes" } else { "No" }), "{disk}");
    assert!(said(&disk).contains(&format!("the disk of the data directory is {used:.1} % full")), "{disk}");

    let changed = answer(&workdir, "what changed in the last hour?");
    assert!(said(&changed).contains("events (2 rows inserted)"), "{changed}");
    assert!(said(&changed).contains("Polynya itself recorded"), "{changed}");
    // The answer's number of rows of each table equals the count by SQL up to the newest row that the answer names.
    for row in changed["sections"][0]["rows"].as_array().unwrap() {
        let [table, inserted, newest] = [&row[0], &row[1], &row[row.as_array().unwrap().len() - 1]];
        let sql = format!("SELECT count(*) FROM {} WHERE _time <= $1", table.as_str().unwrap());
        let line = workdir.ok(&["sql", "--csv", &sql, "-p", newest.as_str().unwrap()]);
        let count: i64 = line.lines().nth(1).unwrap().parse().unwrap();
        assert_eq!(inserted.as_i64(), Some(count), "{row}");
    }

    let slow = answer(&workdir, "if any request was slower than 20 ms, show it");
    // SQL counts the requests that were recorded when the question was answered.
    let until = slow["sources"][0]["as_of"].as_str().unwrap();
    let count = |condition: &str| -> i64 {
        let sql = format!("SELECT count(*) FROM polynya.requests WHERE time <= $1 AND {condition}");
        workdir.ok(&["sql", "--csv", &sql, "-p", until]).lines().nth(1).unwrap().parse().unwrap()
    };
    let (those, all) = (count("duration_us > 20000"), count("true"));
    assert!(said(&slow).starts_with("It holds that any request was slower than 20 ms."), "{slow}");
    assert!(said(&slow).contains(&format!("{those} of {all} recorded requests")), "{those} of {all}: {slow}");
    let shown = slow["sections"][0]["rows"].as_array().unwrap();
    assert_eq!(shown.len() as i64, those.min(10), "{slow}");
    assert!(shown.iter().all(|row| row[4].as_f64().unwrap() > 20.0), "{slow}");
    let none = answer(&workdir, "if any request was slower than 10 minutes, show it");
    assert!(said(&none).starts_with("It does not hold"), "{none}");
    server.stop();
}
