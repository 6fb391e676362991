//! Builds one request for each route, about a given name.

use http::Method;
use serde_json::json;

/// The name of a table or a view, as a request spells it.
#[derive(Clone, Debug)]
pub struct Name {
    pub namespace: String,
    pub table: String,
    /// The spelling in paths below `/v1/tables/`. `None` means the percent-encoded full name.
    raw: Option<String>,
}

impl Name {
    pub fn parse(text: &str) -> Name {
        let (namespace, table) = text.split_once('.').unwrap_or(("main", text));
        Name { namespace: namespace.to_owned(), table: table.to_owned(), raw: None }
    }

    pub fn full(&self) -> String {
        format!("{}.{}", self.namespace, self.table)
    }

    fn in_path(&self) -> String {
        self.raw.clone().unwrap_or_else(|| encoded(&self.full()))
    }
}

/// Returns spellings of the name of one of Polynya's own tables, and names that resemble it.
pub fn spellings(table: &str) -> Vec<Name> {
    let raw = |text: String| Name { raw: Some(text), ..Name::parse(&format!("polynya.{table}")) };
    let mut names: Vec<Name> = [
        format!("polynya.{table}"),
        format!("POLYNYA.{table}"),
        format!("pOlYnYa.{}", table.to_uppercase()),
        format!(" polynya.{table}"),
        format!("polynya.{table} "),
        format!("polynya .{table}"),
        format!("polynya.{table}\0"),
        format!("\"polynya\".\"{table}\""),
        format!("\"polynya.{table}\""),
        format!("polynya..{table}"),
        format!("main.polynya.{table}"),
        format!("\u{200d}polynya.{table}"),
        format!("polynya\u{2024}{table}"),
    ]
    .iter()
    .map(|text| Name::parse(text))
    .collect();
    names.push(raw(format!("%50olynya.{table}")));
    names.push(raw(format!("polynya%2E{table}")));
    names.push(raw(format!("%2e/polynya.{table}")));
    names
}

/// A request to be sent.
#[derive(Debug)]
pub struct RouteRequest {
    pub method: Method,
    pub path: String,
    pub headers: Vec<(&'static str, &'static str)>,
    pub body: String,
}

/// Returns true if requests of this route contain a name.
pub fn contains_name(path: &str) -> bool {
    let silent = [
        "/v1/tables",
        "/v1/storm",
        "/metrics",
        "/health",
        "/ready",
        "/openapi.json",
        "/",
        "/_/",
        "/_/live",
        "/_/{file}",
        "/{page}",
        "/iceberg/v1/config",
        "/iceberg/v1/oauth/tokens",
    ];
    !silent.contains(&path)
}

pub fn iceberg_table(name: &str) -> String {
    json!({ "name": name, "schema": schema() }).to_string()
}

fn schema() -> serde_json::Value {
    json!({ "type": "struct", "fields": [{ "id": 1, "name": "id", "required": true, "type": "long" }] })
}

fn iceberg_view(name: &str) -> String {
    let version = json!({
        "version-id": 1, "timestamp-ms": 1_800_000_000_000_i64, "schema-id": 0, "summary": {},
        "default-namespace": ["main"],
        "representations": [{ "type": "sql", "sql": "SELECT 1 AS id", "dialect": "spark" }],
    });
    json!({ "name": name, "schema": schema(), "view-version": version, "properties": {} }).to_string()
}

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Builds a request of this route about this name.
pub fn request_for(method: &Method, path: &str, name: &Name) -> RouteRequest {
    let (full, ident) = (name.full(), json!({ "namespace": [name.namespace], "name": name.table }));
    let free = json!({ "namespace": ["main"], "name": "moved" });
    let sql = format!("SELECT * FROM {}.{}", quoted(&name.namespace), quoted(&name.table));
    let mut headers = vec![JSON];
    let mut query = String::new();
    let body = match (method.as_str(), path) {
        ("PUT", "/v1/tables/{table}") => r#"{"columns":[{"name":"b","type":"int64"}]}"#.to_owned(),
        ("POST", "/v1/tables/{table}/rows") => r#"{"a":3}"#.to_owned(),
        ("POST", "/v1/rows") => json!({ "tables": { full.as_str(): [{ "a": 3 }] } }).to_string(),
        ("PUT", "/v1/tables/{table}/cursors/{name}") => r#"{"row":0}"#.to_owned(),
        (
            "POST",
            "/v1/tables/{table}/commit" | "/v1/tables/{table}/erase" | "/v1/tables/{table}/maintain",
        ) => {
            query = "?deadline_ms=2000".to_owned();
            String::new()
        }
        ("GET", "/v1/tables/{table}/search") => {
            query = "?q=word".to_owned();
            String::new()
        }
        ("POST", "/v1/tables/{table}/search") => r#"{"q":"word"}"#.to_owned(),
        ("GET", "/v1/search") => {
            query = format!("?q=word&tables={}", encoded(&full));
            String::new()
        }
        ("POST", "/v1/search") => json!({ "q": "word", "tables": [full] }).to_string(),
        ("POST", "/v1/ask" | "/v1/ask/stream") => {
            json!({ "q": format!("how many rows has {full}?") }).to_string()
        }
        ("POST", "/mcp") => {
            headers.push(("Accept", "application/json, text/event-stream"));
            let call = json!({ "name": "tables", "arguments": { "name": full } });
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call }).to_string()
        }
        ("POST", "/v1/sql") => json!({ "sql": sql }).to_string(),
        ("POST", "/v1/copy") => {
            let table = format!("{}.{}", quoted(&name.namespace), quoted(&name.table));
            query = format!("?sql={}", encoded(&format!("COPY {table} FROM STDIN WITH (FORMAT csv)")));
            headers.clear();
            "1\n".to_owned()
        }
        ("POST", "/v1/transactions") => {
            json!({ "ops": [{ "op": "insert", "table": full, "rows": [{ "a": 3 }] }] }).to_string()
        }
        ("POST", "/v1/logs") => {
            query = format!("?table={}", encoded(&full));
            let record = json!({ "timeUnixNano": "1", "body": { "stringValue": "x" } });
            json!({ "resourceLogs": [{ "scopeLogs": [{ "logRecords": [record] }] }] }).to_string()
        }
        ("POST", "/iceberg/v1/namespaces") => json!({ "namespace": [name.namespace] }).to_string(),
        ("POST", "/iceberg/v1/namespaces/{namespace}/properties") => {
            json!({ "removals": [], "updates": { "owner": "me" } }).to_string()
        }
        ("POST", "/iceberg/v1/namespaces/{namespace}/tables") => iceberg_table(&name.table),
        ("POST", "/iceberg/v1/namespaces/{namespace}/register") => {
            json!({ "name": name.table, "metadata-location": "/nowhere/00000-x.metadata.json" }).to_string()
        }
        ("POST", "/iceberg/v1/namespaces/{namespace}/views") => iceberg_view(&name.table),
        (
            "POST",
            "/iceberg/v1/namespaces/{namespace}/tables/{table}"
            | "/iceberg/v1/namespaces/{namespace}/views/{view}",
        ) => json!({ "requirements": [], "updates": [] }).to_string(),
        ("POST", "/iceberg/v1/namespaces/{namespace}/tables/{table}/metrics") => "{}".to_owned(),
        ("POST", "/iceberg/v1/tables/rename" | "/iceberg/v1/views/rename") => {
            json!({ "source": ident, "destination": free }).to_string()
        }
        ("POST", "/iceberg/v1/transactions/commit") => {
            json!({ "table-changes": [{ "identifier": ident, "requirements": [], "updates": [] }] })
                .to_string()
        }
        ("POST", "/iceberg/v1/oauth/tokens") => "grant_type=client_credentials".to_owned(),
        // This body is refused even when the key may start a storm.
        ("POST", "/v1/storm") => r#"{"seconds":0}"#.to_owned(),
        ("GET" | "DELETE", _) => String::new(),
        (method, path) => panic!("say here what is sent by {method} {path}"),
    };
    let of_iceberg = path.starts_with("/iceberg/");
    let table = if of_iceberg { encoded(&name.table) } else { name.in_path() };
    let path = path
        .replace("{namespace}", &encoded(&name.namespace))
        .replace("{table}", &table)
        .replace("{view}", &table)
        .replace("{key}", "1")
        .replace("{name}", "c");
    if body.is_empty() {
        headers.clear();
    }
    RouteRequest { method: method.clone(), path: path + &query, headers, body }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

fn encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    text.bytes().map(|b| if plain(b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect()
}
