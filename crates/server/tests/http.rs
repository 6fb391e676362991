//! Runs the conversations in `tests/http/`: readable files of requests and the answers that they must get.
//!
//! Each file is one conversation with a fresh server. `### ` begins a step and says what it shows. The request follows in HTTP's
//! own notation. `<<<` begins the expected answer: its status, required headers, an empty line, and the body. A JSON body is
//! compared as JSON: `"*"` matches any value, and a key `"..."` allows further fields. `~ text` requires a body that contains the
//! text.

mod common;

use common::TestServer;
use serde_json::Value as Json;

struct ConversationStep {
    name: String,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: String,
    status: u16,
    answer_headers: Vec<(String, String)>,
    answer_body: String,
}

fn header(line: &str) -> (String, String) {
    let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("not a header: {line}"));
    (name.trim().to_lowercase(), value.trim().to_owned())
}

/// Splits lines into headers, which end at an empty line, and the body.
fn head_and_body(lines: &[&str]) -> (Vec<(String, String)>, String) {
    let end = lines.iter().position(|line| line.is_empty()).unwrap_or(lines.len());
    let headers = lines[..end].iter().map(|line| header(line)).collect();
    let body = lines.get(end + 1..).unwrap_or_default().join("\n");
    (headers, body.trim_end().to_owned())
}

fn parse(text: &str) -> Vec<ConversationStep> {
    let mut steps = Vec::new();
    for part in text.split("\n### ").skip(1) {
        let lines: Vec<&str> = part.lines().collect();
        let name = lines[0].to_owned();
        let split = lines
            .iter()
            .position(|line| line.starts_with("<<<"))
            .unwrap_or_else(|| panic!("{name}: no answer"));
        let (method, path) = lines[1].split_once(' ').unwrap_or_else(|| panic!("{name}: no request"));
        let (headers, body) = head_and_body(&lines[2..split]);
        let status = lines[split][3..].trim().parse().unwrap_or_else(|_| panic!("{name}: no status"));
        let (answer_headers, answer_body) = head_and_body(&lines[split + 1..]);
        steps.push(ConversationStep {
            name,
            method: method.to_owned(),
            path: path.to_owned(),
            headers,
            body,
            status,
            answer_headers,
            answer_body,
        });
    }
    assert!(!steps.is_empty(), "a file without steps shows nothing");
    steps
}

fn fits(found: &Json, expected: &Json) -> bool {
    match (found, expected) {
        (_, Json::String(any)) if any == "*" => true,
        (Json::Object(found), Json::Object(expected)) => {
            let open = expected.contains_key("...");
            let named = expected.iter().filter(|(key, _)| *key != "...");
            named.clone().all(|(key, value)| found.get(key).is_some_and(|found| fits(found, value)))
                && (open || found.len() == named.count())
        }
        (Json::Array(found), Json::Array(expected)) => {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(found, expected)| fits(found, expected))
        }
        (found, expected) => found == expected,
    }
}

fn run_conversation(name: &str, text: &str) {
    // Recorded requests would create a table that the conversations do not expect.
    let running = TestServer::with_options(name, |options| options.record_requests = false);
    let mut client = running.client();
    for step in parse(text) {
        let headers: Vec<(&str, &str)> = step.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let answer = client.ask(&step.method, &step.path, &headers, step.body.as_bytes());
        let found = answer.text();
        assert_eq!(answer.status, step.status, "{name}, {}: {found}", step.name);
        for (header, value) in &step.answer_headers {
            let found = answer.header(header);
            assert!(
                found == Some(value) || (value == "*" && found.is_some()),
                "{name}, {}: {header}: {found:?}",
                step.name
            );
        }
        if let Some(part) = step.answer_body.strip_prefix("~ ") {
            assert!(found.contains(part), "{name}, {}: {found}", step.name);
        } else if let Ok(expected) = serde_json::from_str::<Json>(&step.answer_body) {
            assert!(fits(&answer.json(), &expected), "{name}, {}: {found}", step.name);
        } else {
            assert_eq!(found.replace("\r\n", "\n").trim_end(), step.answer_body, "{name}, {}", step.name);
        }
        if answer.header("connection") == Some("close") {
            client = running.client();
        }
    }
}

macro_rules! conversations {
    ($($test:ident: $file:literal),* $(,)?) => {$(
        #[test]
        fn $test() {
            let _limit = testkit::limit(60);
            run_conversation($file, include_str!(concat!("http/", $file, ".http")));
        }
    )*};
}

conversations! {
    rows_go_in_and_come_out: "rows",
    rows_go_in_as_csv: "csv",
    rows_that_do_not_fit_are_left_out_and_kept: "skip",
    columns_are_filled_from_within_objects: "paths",
    rows_of_several_tables_go_in_together_or_not_at_all: "several",
    a_keyed_table_is_upserted_compared_and_deleted: "keys",
    tables_are_defined_evolved_and_dropped: "tables",
    a_consumer_keeps_its_place: "cursors",
    rows_are_found_by_words: "search",
    sql_answers_in_every_form: "sql",
    several_operations_happen_together_or_not_at_all: "transactions",
    questions_are_answered: "ask",
    mistakes_are_explained: "mistakes",
    the_page_and_operations_answer: "operations",
}
