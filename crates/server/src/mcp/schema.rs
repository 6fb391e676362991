//! The list of the tools and their JSON schemas.

use std::sync::{Arc, OnceLock};

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value as Json, json};

/// Number of rows in an answer of `sql`.
pub const SQL_ROWS_DEFAULT: u64 = 100;
pub const SQL_ROWS_MAX: u64 = 1_000;
/// Number of rows in an answer of `search`.
pub const SEARCH_LIMIT_DEFAULT: u64 = 10;
pub const SEARCH_LIMIT_MAX: u64 = 50;
/// Milliseconds that a call may take if it does not set `deadline_ms`.
pub const DEADLINE_MS: u64 = 10_000;
pub const DEADLINE_MS_MAX: u64 = 60_000;

/// Returns all tools. They are made once.
pub fn tools() -> &'static [Tool] {
    static TOOLS: OnceLock<Vec<Tool>> = OnceLock::new();
    TOOLS.get_or_init(|| vec![tables(), search(), get(), sql(), ask()])
}

fn tool(name: &'static str, title: &str, description: &'static str, input: Json, output: Json) -> Tool {
    let annotations =
        ToolAnnotations::new().read_only(true).destructive(false).idempotent(true).open_world(false);
    Tool::new(name, description, object(input))
        .with_title(title)
        .with_raw_output_schema(object(output))
        .with_annotations(annotations)
}

fn object(schema: Json) -> Arc<JsonObject> {
    match schema {
        Json::Object(object) => Arc::new(object),
        _ => Arc::default(),
    }
}

fn deadline() -> Json {
    json!({ "type": "integer", "minimum": 1, "maximum": DEADLINE_MS_MAX, "description": "Milliseconds until the answer is due" })
}

fn columns() -> Json {
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": { "name": { "type": "string" }, "type": { "type": "string" }, "nullable": { "type": "boolean" } },
            "required": ["name", "type"],
        },
    })
}

fn tables() -> Tool {
    tool(
        "tables",
        "List tables",
        "Lists the tables that this key may see, with their columns, number of rows, key and whether their texts can be searched; with `name` one table alone.",
        json!({
            "type": "object",
            "properties": { "name": { "type": "string", "description": "[namespace.]table: describe this one" } },
            "required": [],
            "additionalProperties": false,
        }),
        json!({
            "type": "object",
            "properties": {
                "tables": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": { "type": "string" },
                            "rows": { "type": ["integer", "string"] },
                            "columns": columns(),
                            "primary_key": { "type": "array", "items": { "type": "string" } },
                            "searchable": { "type": "boolean", "description": "It has a text index" },
                        },
                        "required": ["name", "rows", "columns", "primary_key", "searchable"],
                    },
                },
                "more": { "type": "integer", "description": "Tables that are left out" },
                "lsn": { "type": "integer" },
            },
            "required": ["tables", "lsn"],
        }),
    )
}

fn search() -> Tool {
    tool(
        "search",
        "Search texts",
        "Finds rows and notes by words, best first (BM25). Words, \"a phrase\", +must, -not, prefix*, column:word. Without `tables` all tables with a text index are searched.",
        json!({
            "type": "object",
            "properties": {
                "query": { "type": "string" },
                "tables": { "type": "array", "items": { "type": "string" } },
                "filter": { "type": "string", "description": "An SQL predicate over the table's columns; only with one table" },
                "limit": { "type": "integer", "minimum": 1, "maximum": SEARCH_LIMIT_MAX, "default": SEARCH_LIMIT_DEFAULT },
                "fields": { "type": "array", "items": { "type": "string" }, "description": "Columns to show; without it the key and the title, and `get` reads the rest" },
                "deadline_ms": deadline(),
            },
            "required": ["query"],
            "additionalProperties": false,
        }),
        json!({
            "type": "object",
            "properties": {
                "hits": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "table": { "type": "string" },
                            "key": { "description": "What `get` takes; null without a primary key" },
                            "row_id": { "type": ["integer", "string"], "description": "Left out where only some of the table's rows may be seen" },
                            "score": { "type": "number" },
                            "snippets": { "type": "object", "description": "By column; HTML, the words in <mark>" },
                            "row": { "type": "object" },
                        },
                        "required": ["table", "score", "snippets", "row"],
                    },
                },
                "total": { "type": ["integer", "string"] },
                "exact": { "type": "boolean", "description": "Else there are at least so many" },
                "lsn": { "type": "integer" },
            },
            "required": ["hits", "total", "lsn"],
        }),
    )
}

fn get() -> Tool {
    tool(
        "get",
        "Get a row or a note",
        "Reads one row by its primary key, or one note by its path. Tables without a key take the row id as key.",
        json!({
            "type": "object",
            "properties": {
                "table": { "type": "string" },
                "key": {
                    "description": "The key's value; for a key of several columns an array",
                    "type": ["string", "number", "boolean", "array"],
                },
                "note": { "type": "string", "description": "Instead of table and key: the path of a note, such as docs/setup.md" },
            },
            "required": [],
            "additionalProperties": false,
        }),
        json!({
            "type": "object",
            "properties": {
                "table": { "type": "string" },
                "row": { "type": "object", "description": "Column by column, _row_id and _time among them" },
                "lsn": { "type": "integer" },
            },
            "required": ["table", "row", "lsn"],
        }),
    )
}

fn sql() -> Tool {
    tool(
        "sql",
        "Query with SQL",
        "Runs one statement that only reads (SELECT, WITH, EXPLAIN, SHOW TABLES, DESCRIBE) in PostgreSQL's dialect. Values go into `params` as $1, $2, …. At most 1,000 rows come back; aggregate in SQL instead of reading more.",
        json!({
            "type": "object",
            "properties": {
                "sql": { "type": "string" },
                "params": { "type": "array", "description": "$1, $2, …" },
                "rows_max": { "type": "integer", "minimum": 1, "maximum": SQL_ROWS_MAX, "default": SQL_ROWS_DEFAULT },
                "deadline_ms": deadline(),
            },
            "required": ["sql"],
            "additionalProperties": false,
        }),
        json!({
            "type": "object",
            "properties": {
                "columns": columns(),
                "rows": { "type": "array", "items": { "type": "array" } },
                "count": { "type": "integer" },
                "truncated": { "type": "boolean", "description": "There are more rows" },
                "lsn": { "type": "integer" },
            },
            "required": ["columns", "rows", "count", "truncated", "lsn"],
        }),
    )
}

fn ask() -> Tool {
    tool(
        "ask",
        "Ask in plain words",
        "Answers a question over this server's metrics (disk, memory, CPU, load, network), requests, tables, notes and what changed; also `if X, Y`. No language model is involved: what is not understood is named.",
        json!({
            "type": "object",
            "properties": {
                "question": { "type": "string" },
                "sources": { "type": "array", "items": { "type": "string" }, "description": "metrics, requests, changes, notes, tables, or names of tables; without it all" },
                "deadline_ms": deadline(),
            },
            "required": ["question"],
            "additionalProperties": false,
        }),
        json!({
            "type": "object",
            "properties": {
                "q": { "type": "string" },
                "answer": { "type": "string" },
                "sections": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "title": { "type": "string" },
                            "text": { "type": "string" },
                            "columns": columns(),
                            "rows": { "type": "array", "items": { "type": "array" } },
                            "sql": { "type": "string", "description": "The statement behind it" },
                            "params": { "type": "array" },
                            "source": { "type": "string" },
                        },
                        "required": ["title", "text", "source"],
                    },
                },
                "sources": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": { "type": "string" },
                            "kind": { "type": "string" },
                            "state": { "enum": ["answered", "nothing", "failed", "timeout", "skipped"] },
                            "lsn": { "type": "integer" },
                            "as_of": { "type": ["string", "null"] },
                            "took_ms": { "type": "number" },
                            "detail": { "type": ["string", "null"] },
                        },
                        "required": ["name", "kind", "state"],
                    },
                },
                "took_ms": { "type": "number" },
                "lsn": { "type": "integer" },
                "as_of": { "type": "string" },
                "cached": { "type": "boolean" },
            },
            "required": ["answer", "sections", "sources", "lsn"],
        }),
    )
}
