//! `/openapi.json` must describe the query parameters that the routes accept.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use crate::common::TestServer;

/// Returns the query parameters that the description lists for an operation.
fn documented_parameters(api: &Json, path: &Json, operation: &Json) -> BTreeSet<String> {
    let lists = [&path["parameters"], &operation["parameters"]];
    let parameters = lists.into_iter().filter_map(Json::as_array).flatten().map(|parameter| {
        match parameter["$ref"].as_str() {
            Some(shared) => api.pointer(shared.trim_start_matches('#')).unwrap(),
            None => parameter,
        }
    });
    let query = parameters.filter(|parameter| parameter["in"] == "query");
    query.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect()
}

/// Returns the query parameters that a route lists when it refuses an unknown one, `None` if it accepts any.
fn accepted_parameters(running: &TestServer, method: &str, path: &str) -> Option<BTreeSet<String>> {
    let answer = running.client().ask(
        method,
        &format!("{path}?no_such_parameter=1"),
        &[("Content-Type", "application/json")],
        b"{}",
    );
    let text = answer.text();
    if answer.status < 300 || !text.contains("no_such_parameter") {
        return None;
    }
    let (_, message) = answer.error();
    match message.split_once(", expected ") {
        Some((_, names)) => Some(names.split('`').skip(1).step_by(2).map(String::from).collect()),
        None => Some(BTreeSet::new()),
    }
}

#[test]
fn the_description_names_the_query_parameters_that_routes_take_and_no_others() {
    let _limit = testkit::limit(60);
    let running = TestServer::with_options("parameters", |options| options.record_requests = false);
    assert_eq!(running.ask("POST", "/v1/tables/t/rows", r#"{"n":1}"#).status, 200);
    let api = running.ask("GET", "/openapi.json", "").json();
    let (mut differing, mut compared) = (Vec::new(), 0);
    for (path, operations) in api["paths"].as_object().unwrap() {
        // Iceberg clients may send parameters that are unknown here, and pages accept any.
        if path.starts_with("/iceberg") || path.starts_with("/_/") || matches!(path.as_str(), "/" | "/{page}")
        {
            continue;
        }
        for (method, operation) in operations.as_object().unwrap() {
            if method == "parameters" {
                continue;
            }
            let place = path.replace("{table}", "t").replace("{key}", "1").replace("{name}", "c");
            let documented = documented_parameters(&api, operations, operation);
            let mut accepted = accepted_parameters(&running, &method.to_uppercase(), &place);
            // These routes refuse with messages of their own: `tables` in the search of one table, and any query string beside a
            // body.
            match (method.as_str(), path.as_str()) {
                ("get", "/v1/tables/{table}/search") => {
                    accepted.as_mut().unwrap().remove("tables");
                }
                ("post", "/v1/search" | "/v1/tables/{table}/search") => {
                    let answer = running.ask("POST", &format!("{place}?q=x"), r#"{"q":"x"}"#);
                    assert_eq!(answer.status, 400, "{}", answer.text());
                    accepted = Some(BTreeSet::new());
                }
                _ => {}
            }
            compared += 1;
            if accepted.as_ref() != Some(&documented) {
                differing.push(format!("{method} {path}: documented {documented:?}, accepted {accepted:?}"));
            }
        }
    }
    assert!(compared > 30, "{compared}");
    assert!(differing.is_empty(), "{differing:#?}");
}
