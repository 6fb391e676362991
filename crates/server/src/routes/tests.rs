use std::collections::BTreeSet;

use super::*;

#[test]
fn the_description_names_every_route_and_no_other() {
    let openapi: serde_json::Value = serde_json::from_str(operations::OPENAPI).unwrap();
    let mut described = BTreeSet::new();
    for (path, methods) in openapi["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if method == "parameters" {
                continue;
            }
            assert!(operation["summary"].is_string(), "{method} {path} has a summary");
            assert!(operation["responses"].is_object(), "{method} {path} has responses");
            described.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    let routes: BTreeSet<String> = ROUTES.iter().map(|r| format!("{} {}", r.method, r.path)).collect();
    assert_eq!(described, routes);
}
