//! Tests `/mcp` with a real client of the protocol and with invalid messages.

mod common;

use std::path::PathBuf;
use std::sync::Arc;

use common::TestServer;
use engine::{ApiKey, Op, Transaction};
use polynya_server as server;
use rmcp::ServiceExt;
use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, UnixSocketHttpClient};
use serde_json::{Value as Json, json};
use tokio::net::{TcpStream, UnixListener};
use types::{Principal, Scope, TableSet};

/// A client of the protocol. rmcp's HTTP client speaks over a Unix socket, so its bytes are forwarded to the server's port.
struct Client {
    running: RunningService<RoleClient, ()>,
    socket: PathBuf,
    pipe: tokio::task::JoinHandle<()>,
}

impl Client {
    async fn connect(server: &TestServer, key: Option<&str>) -> Result<Client, String> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let nth = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let socket = std::env::temp_dir().join(format!("pn-mcp-{}-{nth}", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let address = server.address;
        let pipe = tokio::spawn(async move {
            while let Ok((mut inside, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut outside = TcpStream::connect(address).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
                });
            }
        });
        let uri = format!("http://localhost:{}/mcp", address.port());
        let client = UnixSocketHttpClient::new(socket.to_str().unwrap(), &uri);
        let mut config = StreamableHttpClientTransportConfig::with_uri(uri);
        if let Some(key) = key {
            config = config.auth_header(key);
        }
        let transport = StreamableHttpClientTransport::with_client(client, config);
        let running = ().serve(transport).await.map_err(|e| e.to_string());
        if running.is_err() {
            pipe.abort();
            let _ = std::fs::remove_file(&socket);
        }
        Ok(Client { running: running?, socket, pipe })
    }

    async fn call(&self, tool: &'static str, arguments: Json) -> CallToolResult {
        let Json::Object(arguments) = arguments else { panic!("arguments are an object") };
        let call = CallToolRequestParams::new(tool).with_arguments(arguments);
        self.running.call_tool(call).await.unwrap_or_else(|e| panic!("{tool}: {e}"))
    }

    /// Calls a tool that must succeed and returns its structured answer.
    async fn get(&self, tool: &'static str, arguments: Json) -> Json {
        let result = self.call(tool, arguments).await;
        assert_eq!(result.is_error, Some(false), "{tool}: {result:?}");
        assert!(!text(&result).is_empty(), "{tool} answers as text too");
        result.structured_content.unwrap_or_else(|| panic!("{tool}: no structured content"))
    }

    /// Calls a tool that must refuse and returns its message.
    async fn refused(&self, tool: &'static str, arguments: Json) -> String {
        let result = self.call(tool, arguments).await;
        assert_eq!(result.is_error, Some(true), "{tool}: {result:?}");
        text(&result)
    }

    async fn end(self) {
        let _ = self.running.cancel().await;
        self.pipe.abort();
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn text(result: &CallToolResult) -> String {
    let json = serde_json::to_value(&result.content).unwrap();
    json.as_array().unwrap().iter().filter_map(|part| part["text"].as_str()).collect()
}

fn start_server(name: &str) -> TestServer {
    let running = TestServer::with_options(name, |options| {
        options.record_requests = false;
        options.site = Some("main.vault".into());
    });
    for (path, body) in [
        (
            "/v1/tables/orders",
            r#"{"columns":[{"name":"id","type":"int64"},{"name":"country","type":"string"},{"name":"price","type":"float64"}],"primary_key":["id"]}"#,
        ),
        (
            "/v1/tables/mails",
            r#"{"columns":[{"name":"id","type":"string"},{"name":"body","type":"string"}],"primary_key":["id"],"indexes":[{"kind":"text","columns":["body"]}]}"#,
        ),
        ("/v1/tables/hidden", r#"{"columns":[{"name":"secret","type":"string"}]}"#),
    ] {
        assert_eq!(running.ask("PUT", path, body).status, 201);
    }
    for (path, body) in [
        (
            "/v1/tables/orders/rows",
            r#"[{"id":1,"country":"AT","price":10},{"id":2,"country":"DE","price":20},{"id":3,"country":"DE","price":60}]"#,
        ),
        (
            "/v1/tables/mails/rows",
            r#"[{"id":"m1","body":"lunch with falafel"},{"id":"m2","body":"dinner with hummus"}]"#,
        ),
        ("/v1/tables/hidden/rows", r#"{"secret":"topsecret"}"#),
    ] {
        assert_eq!(running.ask("POST", path, body).status, 200);
    }
    create_vault(&running);
    running
}

/// Creates a vault with two notes, one of them published.
fn create_vault(running: &TestServer) {
    use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
    let def = site::definition("main.vault").unwrap();
    let strings = |texts: [&str; 2]| Arc::new(StringArray::from_iter_values(texts)) as ArrayRef;
    let batch = RecordBatch::try_from_iter([
        ("path", strings(["open.md", "diary.md"])),
        ("title", strings(["Open", "Diary"])),
        ("text", strings(["the boiler wants pressure", "the boiler is a nuisance"])),
        ("published", Arc::new(BooleanArray::from(vec![true, false])) as ArrayRef),
        ("size", Arc::new(Int64Array::from(vec![1, 1])) as ArrayRef),
    ])
    .unwrap();
    let create = Op::CreateTable { def, if_absent: true };
    let insert = Op::Insert { table: "main.vault".into(), batch, mode: engine::Mode::Upsert };
    running.engine.commit(&Principal::local(), Transaction::new(vec![create, insert])).unwrap();
}

/// Runs a test against a server. The server is dropped outside of the client's runtime, because it stops threads of its own.
fn with_server(name: &str, test: impl AsyncFnOnce(&TestServer)) {
    let server = start_server(name);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test(&server));
}

fn put_key(running: &TestServer, name: &str, scope: Scope, tables: TableSet) -> String {
    let secret = server::new_secret(&*running.engine.env().random);
    let key = ApiKey { name: name.into(), hash: server::hash_of(&secret), scope, tables, created: 0 };
    running.engine.commit(&Principal::local(), Transaction::new(vec![Op::PutKey(key)])).unwrap();
    secret
}

#[test]
fn a_client_lists_the_tools_and_calls_each() {
    let _limit = testkit::limit(120);
    with_server("mcp-tools", async |server: &TestServer| {
        let client = Client::connect(server, None).await.unwrap();
        let tools = client.running.list_all_tools().await.unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
        assert_eq!(names, ["tables", "search", "get", "sql", "ask"]);
        assert!(tools.iter().all(|tool| tool.output_schema.is_some()));
        let info = client.running.peer_info().unwrap();
        assert!(info.instructions.as_ref().unwrap().contains("tables"), "{info:?}");

        let tables = client.get("tables", json!({})).await;
        let names: Vec<&str> =
            tables["tables"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["hidden", "mails", "orders", "vault"]);
        let one = client.get("tables", json!({"name": "mails"})).await;
        assert_eq!(
            one["tables"],
            json!([{
                "name": "mails", "rows": 2, "primary_key": ["id"], "searchable": true,
                "columns": [{"name": "id", "type": "string", "nullable": false}, {"name": "body", "type": "string", "nullable": true}],
            }])
        );

        let found = client.get("search", json!({"query": "falafel", "tables": ["mails"]})).await;
        assert_eq!(
            (&found["total"], &found["hits"][0]["key"], &found["hits"][0]["row"]["id"]),
            (&json!(1), &json!("m1"), &json!("m1"))
        );
        // A hit has the columns that identify its row and a snippet. Other columns are returned only on request.
        assert_eq!(found["hits"][0]["row"], json!({"id": "m1"}));
        assert!(found["hits"][0]["snippets"]["body"].as_str().unwrap().contains("<mark>falafel</mark>"));
        let whole = json!({"query": "falafel", "tables": ["mails"], "fields": ["body"]});
        let found = client.get("search", whole).await;
        assert_eq!(found["hits"][0]["row"], json!({"body": "lunch with falafel"}));
        let found = client.get("search", json!({"query": "boiler"})).await;
        assert_eq!(found["total"], 2);
        for hit in found["hits"].as_array().unwrap() {
            let names: Vec<&String> = hit["row"].as_object().unwrap().keys().collect();
            assert_eq!(names, ["path", "title"], "{hit}");
        }

        let got = client.get("get", json!({"table": "orders", "key": 2})).await;
        assert_eq!(
            (&got["table"], &got["row"]["country"], &got["row"]["price"]),
            (&json!("orders"), &json!("DE"), &json!(20.0))
        );
        let note = client.get("get", json!({"note": "diary.md"})).await;
        assert_eq!(note["row"]["text"], "the boiler is a nuisance");

        let rows = client.get("sql", json!({"sql": "SELECT country, sum(price) AS total FROM orders WHERE price > $1 GROUP BY country ORDER BY 1", "params": [5]})).await;
        assert_eq!(rows["rows"], json!([["AT", 10.0], ["DE", 80.0]]));
        assert_eq!((&rows["count"], &rows["truncated"]), (&json!(2), &json!(false)));
        let rows =
            client.get("sql", json!({"sql": "SELECT id FROM orders ORDER BY id", "rows_max": 2})).await;
        assert_eq!((&rows["rows"], &rows["truncated"]), (&json!([[1], [2]]), &json!(true)));
        for statement in [
            "SHOW TABLES",
            "DESCRIBE orders",
            "EXPLAIN SELECT 1",
            "WITH a AS (SELECT 1 AS x) SELECT x FROM a",
        ] {
            assert!(
                client.get("sql", json!({"sql": statement})).await["count"].as_u64().unwrap() > 0,
                "{statement}"
            );
        }

        let answer = client.get("ask", json!({"question": "average price of orders with country DE"})).await;
        assert!(answer["answer"].as_str().unwrap().contains("is 40, of 2 rows"), "{answer}");
        assert_eq!(answer["sources"][0]["state"], "answered");
        client.end().await;
    });
}

#[test]
fn nothing_can_be_written() {
    let _limit = testkit::limit(120);
    with_server("mcp-writes", async |server: &TestServer| {
        // Even an admin may not write.
        let client = Client::connect(server, None).await.unwrap();
        for statement in [
            "INSERT INTO orders VALUES (9, 'FR', 1)",
            "UPDATE orders SET price = 0",
            "DELETE FROM orders",
            "DROP TABLE orders",
            "CREATE TABLE evil (a int64)",
            "CREATE INDEX ON orders USING text (country)",
            "WITH gone AS (DELETE FROM orders RETURNING id) SELECT * FROM gone",
            "EXPLAIN ANALYZE DELETE FROM orders",
            "SELECT 1; DELETE FROM orders",
            "COPY orders TO 'evil.csv'",
            "SET sql.deadline = 1",
        ] {
            let why = client.refused("sql", json!({"sql": statement})).await;
            assert!(why.contains("forbidden") || why.contains("invalid"), "{statement}: {why}");
        }
        let why = client.refused("sql", json!({"sql": "DELETE FROM orders"})).await;
        assert!(why.starts_with("forbidden: DELETE writes, but only reads are allowed here"), "{why}");
        // EXPLAIN of a write is allowed.
        client.get("sql", json!({"sql": "EXPLAIN DELETE FROM orders"})).await;
        let rows = client.get("sql", json!({"sql": "SELECT count(*), sum(price) FROM orders"})).await;
        assert_eq!(rows["rows"], json!([[3, 90.0]]));
        assert_eq!(server.engine.root().table_count(), 4);
        client.end().await;
    });
}

#[test]
fn mistakes_are_told_with_their_cure() {
    let _limit = testkit::limit(120);
    with_server("mcp-mistakes", async |server: &TestServer| {
        let client = Client::connect(server, None).await.unwrap();
        for (tool, arguments, part) in [
            ("sql", json!({"sql": "SELECT * FROM ordres"}), "did you mean `orders`"),
            ("sql", json!({"sql": "SELECT 1", "rows_max": 0}), "1 to 1000"),
            ("sql", json!({"sql": "SELECT 1", "rows_max": 100_000}), "1 to 1000"),
            ("sql", json!({"sql": "SELECT 1", "deadline_ms": 600_000}), "1 to 60000"),
            ("sql", json!({"statement": "SELECT 1"}), "unknown field"),
            ("sql", json!({}), "missing field"),
            ("search", json!({"query": "x", "limit": 51}), "1 to 50"),
            ("search", json!({"query": ""}), "empty"),
            ("get", json!({"table": "orders"}), "`table` and `key`, or `note`"),
            ("get", json!({"table": "orders", "key": 99}), "there is no row `99`"),
            ("get", json!({"note": "nothing.md"}), "there is no note `nothing.md`"),
            ("get", json!({"note": "dairy.md"}), "did you mean `diary.md`?"),
            ("sql", json!({"sql": "SELECT 1", "rows_max": "x"}), "a whole number from 0 on expected"),
            ("get", json!({"table": "orders", "key": {"a": 1}}), "`get` reads exactly one row"),
            ("tables", json!({"name": "nothing"}), "there is no table `nothing`"),
            ("ask", json!({"question": " "}), "there is no question"),
            ("ask", json!({"question": "rain?", "sources": ["weather"]}), "no source `weather`"),
        ] {
            let why = client.refused(tool, arguments.clone()).await;
            assert!(why.contains(part), "{tool} {arguments}: {why}");
        }
        let error =
            client.running.call_tool(CallToolRequestParams::new("drop")).await.unwrap_err().to_string();
        assert!(error.contains("there is no tool `drop`"), "{error}");
        client.end().await;
    });
}

/// A type of 24 KB that nests 4,000 levels deep ended the process.
#[test]
fn a_type_that_nests_without_end_is_refused_and_the_server_goes_on() {
    let _limit = testkit::limit(120);
    with_server("mcp-deep", async |server: &TestServer| {
        let client = Client::connect(server, None).await.unwrap();
        let sql = format!("SELECT arrow_cast(1, '{}Int8{}')", "List(".repeat(4_000), ")".repeat(4_000));
        let said = client.refused("sql", json!({ "sql": sql })).await;
        assert!(said.contains("nests deeper than 64 levels"), "{said}");
        client.get("sql", json!({ "sql": "SELECT 1" })).await;
        client.end().await;
    });
}

#[test]
fn a_key_sees_what_it_may_and_nothing_else() {
    let _limit = testkit::limit(120);
    with_server("mcp-keys", async |server: &TestServer| {
        let one_table = put_key(server, "one", Scope::Read, TableSet::Only(vec!["main.orders".into()]));
        let notes = put_key(server, "notes", Scope::Write, TableSet::Only(vec!["main.vault".into()]));

        let client = Client::connect(server, Some(&one_table)).await.unwrap();
        let tables = client.get("tables", json!({})).await;
        assert_eq!(tables["tables"].as_array().unwrap().len(), 1);
        assert_eq!(
            client.get("sql", json!({"sql": "SELECT count(*) FROM orders"})).await["rows"],
            json!([[3]])
        );
        for (tool, arguments) in [
            ("sql", json!({"sql": "SELECT * FROM hidden"})),
            ("sql", json!({"sql": "SELECT * FROM vault"})),
            ("tables", json!({"name": "hidden"})),
            ("get", json!({"table": "hidden", "key": "1"})),
            ("get", json!({"note": "open.md"})),
            ("get", json!({"note": "opne.md"})),
            ("search", json!({"query": "topsecret", "tables": ["hidden"]})),
            ("ask", json!({"question": "how many?", "sources": ["hidden"]})),
        ] {
            let why = client.refused(tool, arguments.clone()).await;
            assert!(why.starts_with("not_found"), "{tool} {arguments}: {why}");
            assert!(!why.contains("topsecret"), "{why}");
        }
        for question in
            ["how many hidden?", "what changed in the last hour?", "topsecret", "notes about the boiler"]
        {
            let answer = client.get("ask", json!({"question": question})).await.to_string();
            assert!(!answer.contains("topsecret\"") || question == "topsecret", "{question}: {answer}");
            assert!(!answer.contains("nuisance") && !answer.contains("mails"), "{question}: {answer}");
        }
        client.end().await;

        // A key that is not an admin's sees only the published notes of a vault.
        let client = Client::connect(server, Some(&notes)).await.unwrap();
        let note = client.get("get", json!({"note": "open.md"})).await;
        assert_eq!(note["row"]["text"], "the boiler wants pressure");
        assert!(note["row"].get("published").is_none() && note["row"].get("source").is_none(), "{note}");
        let why = client.refused("get", json!({"note": "diary.md"})).await;
        assert!(why.starts_with("not_found"), "{why}");
        let why = client.refused("get", json!({"note": "dairy.md"})).await;
        assert!(!why.contains("diary"), "a private note is never suggested: {why}");
        let why = client.refused("get", json!({"note": "opne.md"})).await;
        assert!(why.contains("did you mean `open.md`?"), "{why}");
        assert_eq!(client.get("search", json!({"query": "boiler"})).await["total"], 1);
        let answer = client.get("ask", json!({"question": "notes about the boiler"})).await.to_string();
        assert!(answer.contains("open.md") && !answer.contains("diary"), "{answer}");
        client.end().await;

        // A client without a key, or with a wrong one, cannot connect.
        assert!(Client::connect(server, None).await.is_err());
        assert!(Client::connect(server, Some("pk_wrong")).await.is_err());

        // Removing a key stops a connected client at once.
        let client = Client::connect(server, Some(&one_table)).await.unwrap();
        client.get("tables", json!({})).await;
        server
            .engine
            .commit(&Principal::local(), Transaction::new(vec![Op::RemoveKey { name: "one".into() }]))
            .unwrap();
        let call = CallToolRequestParams::new("tables");
        assert!(client.running.call_tool(call).await.is_err());
        client.end().await;
    });
}

/// Row ids are numbered over the whole table, and `/metrics` counted all rows. Compared with the number of published notes, both
/// told how many private ones there are.
#[test]
fn no_figure_reveals_how_many_notes_are_private() {
    let _limit = testkit::limit(120);
    with_server("mcp-counts", async |server: &TestServer| {
        let vault = TableSet::Only(vec!["main.vault".into()]);
        let some = put_key(server, "some", Scope::Read, vault);
        let all = put_key(server, "all", Scope::Read, TableSet::All);
        let admin = put_key(server, "admin", Scope::Admin, TableSet::All);
        for (secret, sees_engine, sees_rows) in
            [(&some, false, false), (&all, true, false), (&admin, true, true)]
        {
            let client = Client::connect(server, Some(secret)).await.unwrap();
            let hit = client.get("search", json!({"query": "boiler"})).await["hits"][0].clone();
            assert_eq!(
                (hit["table"].as_str(), hit.get("row_id").is_some()),
                (Some("vault"), sees_rows),
                "{hit}"
            );
            client.end().await;
            let bearer = format!("Bearer {secret}");
            let (search, metrics) = tokio::task::block_in_place(|| {
                let ask = |path: &str| server.client().ask("GET", path, &[("Authorization", &bearer)], b"");
                (ask("/v1/search?q=boiler").json(), ask("/metrics").text())
            });
            for hit in search["hits"].as_array().unwrap() {
                assert_eq!(hit.get("row_id").is_some(), sees_rows, "{hit}");
                assert!(hit["key"].is_string(), "{hit}");
            }
            for (figure, sees) in [
                ("polynya_requests_total", true),
                ("polynya_log_durable_lsn", sees_engine),
                ("polynya_commits_total", sees_engine),
                ("polynya_rows_total", sees_rows),
                ("polynya_deletes_total", sees_rows),
            ] {
                assert_eq!(metrics.contains(figure), sees, "{figure} for {bearer}");
            }
        }
        // The hits of other tables keep their row ids.
        let client = Client::connect(server, Some(&all)).await.unwrap();
        assert_eq!(client.get("search", json!({"query": "falafel"})).await["hits"][0]["row_id"], 1);
        client.end().await;
    });
}

#[test]
fn invalid_messages_are_refused_as_json_and_the_server_goes_on() {
    let _limit = testkit::limit(60);
    let server = start_server("mcp-malformed");
    let json_type = ("Content-Type", "application/json");
    let send =
        |headers: &[(&str, &str)], body: &str| server.client().ask("POST", "/mcp", headers, body.as_bytes());
    for body in [
        "",
        "{",
        "nonsense",
        "\u{0}",
        "[]",
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
        "{}",
        r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
        r#"{"id":{}}"#,
        "3",
    ] {
        let answer = send(&[json_type], body);
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
        let error = answer.json();
        assert_eq!(error["jsonrpc"], "2.0", "{body}: {error}");
        assert!(
            error["error"]["code"].as_i64().unwrap() < 0 && error["error"]["message"].is_string(),
            "{body}: {error}"
        );
    }
    // Requests with an unknown method and with invalid arguments of a tool.
    let answer = send(&[json_type], r#"{"jsonrpc":"2.0","id":7,"method":"nothing/there"}"#);
    assert!(answer.json()["error"]["code"].is_i64(), "{}", answer.text());
    let answer = send(
        &[json_type],
        r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"sql","arguments":[1]}}"#,
    );
    assert!(answer.json()["error"]["code"].is_i64(), "{}", answer.text());
    // A single message without a handshake is answered.
    let answer = send(
        &[json_type],
        r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"tables","arguments":{}}}"#,
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!((&answer.json()["id"], &answer.json()["result"]["isError"]), (&json!(9), &json!(false)));
    // Requests with another media type, from another site's page, for another host name, and by another method.
    assert_eq!(
        send(&[("Content-Type", "text/plain")], r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).status,
        415
    );
    for (name, value) in
        [("Origin", "https://evil.example"), ("Host", "evil.example"), ("X-Forwarded-For", "192.0.2.1")]
    {
        let answer = send(&[json_type, (name, value)], r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
        assert_eq!(answer.status, 403, "{name}: {}", answer.text());
    }
    for method in ["GET", "DELETE", "PUT"] {
        assert_eq!(server.ask(method, "/mcp", "").status, 405, "{method}");
    }
    server.assert_works();
    // A request from another site's page is refused even with a key, one from this server's own page is not.
    let secret = put_key(&server, "reader", Scope::Read, TableSet::All);
    let bearer = format!("Bearer {secret}");
    for (origin, status) in [("https://evil.example", 403), ("null", 403), ("http://localhost", 200)] {
        let headers = [json_type, ("Authorization", bearer.as_str()), ("Origin", origin)];
        let answer = send(&headers, r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
        assert_eq!(answer.status, status, "{origin}: {}", answer.text());
    }
}
