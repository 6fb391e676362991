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

/// Generators of clients refuse a description that does not describe every parameter of a path.
#[test]
fn the_description_says_what_every_part_of_a_path_is() {
    let openapi: serde_json::Value = serde_json::from_str(operations::OPENAPI).unwrap();
    let resolved = |parameter: &serde_json::Value| match parameter["$ref"].as_str() {
        Some(name) => {
            openapi.pointer(name.trim_start_matches('#')).unwrap_or_else(|| panic!("{name}")).clone()
        }
        None => parameter.clone(),
    };
    for route in ROUTES {
        let path = &openapi["paths"][route.path];
        let operation = &path[route.method.as_str().to_lowercase()];
        let lists = [&path["parameters"], &operation["parameters"]];
        let all = lists.into_iter().filter_map(|list| list.as_array()).flatten().map(resolved);
        let described: BTreeSet<String> = all
            .filter(|parameter| parameter["in"] == "path")
            .map(|parameter| {
                assert_eq!(parameter["required"], true, "{}: {parameter}", route.path);
                assert!(parameter["schema"].is_object(), "{}: {parameter}", route.path);
                parameter["name"].as_str().unwrap().to_owned()
            })
            .collect();
        let parts = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let named: BTreeSet<String> = parts.map(str::to_owned).collect();
        assert_eq!(described, named, "{} {}", route.method, route.path);
    }
}

#[test]
fn the_description_says_what_each_route_answers_and_whom_it_refuses() {
    let openapi: serde_json::Value = serde_json::from_str(operations::OPENAPI).unwrap();
    for route in ROUTES {
        let operation = &openapi["paths"][route.path][route.method.as_str().to_lowercase()];
        let responses = operation["responses"].as_object().unwrap();
        let what = format!("{} {}", route.method, route.path);
        for (status, response) in responses {
            let shared = response["$ref"].as_str().map(|name| {
                openapi.pointer(name.trim_start_matches('#')).unwrap_or_else(|| panic!("{what}: {name}"))
            });
            let response = shared.unwrap_or(response);
            assert!(response["description"].is_string(), "{what} {status}");
            // 202 of /mcp (for notifications) and 204 of the Iceberg routes have no body.
            let is_silent =
                matches!((route.path, status.as_str()), ("/{page}", _) | ("/mcp", "202") | (_, "204"));
            if status.starts_with('2') && !is_silent {
                assert!(response["content"].is_object(), "{what} {status} has a form");
            }
        }
        assert_eq!(operation["security"] == serde_json::json!([]), route.scope.is_none(), "{what}");
        if route.scope.is_some() {
            for status in ["400", "401", "403"] {
                assert!(responses.contains_key(status), "{what} may be answered {status}");
            }
        }
    }
    // Every reference in the description must resolve.
    let text = operations::OPENAPI;
    for (at, begin) in text.match_indices("\"#/") {
        let name = text[at + begin.len()..].split('"').next().unwrap();
        assert!(openapi.pointer(&format!("/{name}")).is_some(), "{name}");
    }
}
