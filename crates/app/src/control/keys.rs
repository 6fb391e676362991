//! Requests that create, list and remove API keys.

use engine::{ApiKey, Engine, Op, Transaction};
use serde_json::{Value, json};
use types::{Error, Kind, Principal, Result, TableSet, name};

/// Creates the key of a request `{name, scope, tables: [..] or null}`. Answers with `{name, secret}`; only the secret's
/// hash is stored. Fails with `exists` if there is a key of that name.
pub fn create(engine: &Engine, body: &Value) -> Result<Value> {
    let key_name = body["name"].as_str().unwrap_or_default();
    check_name(key_name)?;
    if engine.keys().iter().any(|key| key.name == key_name) {
        return Err(Error::new(Kind::Exists, format!("there is a key `{key_name}` already"))
            .hint(format!("choose another name, or remove it first: `polynya key remove {key_name}`")));
    }
    let tables = match body["tables"].as_array() {
        None => TableSet::All,
        Some(names) => TableSet::Only(
            names.iter().map(|name| table(name.as_str().unwrap_or_default())).collect::<Result<_>>()?,
        ),
    };
    let secret = server::new_secret(&*engine.env().random);
    let key = ApiKey {
        name: key_name.to_owned(),
        hash: server::hash_of(&secret),
        scope: super::scope(&body["scope"])?,
        tables,
        created: engine.env().clock.now(),
    };
    engine.commit(&Principal::local(), Transaction::new(vec![Op::PutKey(key)]))?;
    Ok(json!({ "name": key_name, "secret": secret }))
}

pub fn list(engine: &Engine) -> Value {
    let shown = |key: &ApiKey| {
        let tables = match &key.tables {
            TableSet::All => Value::Null,
            TableSet::Only(names) => json!(names),
        };
        json!({ "name": key.name, "scope": key.scope.name(), "tables": tables, "created": super::timestamp_text(key.created) })
    };
    json!({ "keys": engine.keys().iter().map(shown).collect::<Vec<_>>() })
}

pub fn remove(engine: &Engine, key_name: &str) -> Result<Value> {
    let op = Op::RemoveKey { name: key_name.to_owned() };
    engine.commit(&Principal::local(), Transaction::new(vec![op]))?;
    Ok(json!({ "name": key_name }))
}

fn check_name(text: &str) -> Result<()> {
    let fits = !text.is_empty()
        && text.len() <= 64
        && text.chars().all(|c| c.is_alphanumeric() || "._-".contains(c));
    if fits {
        return Ok(());
    }
    Err(Error::invalid(format!("`{}` is not a valid name of a key", name::printable(text)))
        .hint("use 1 to 64 letters, digits, `.`, `_` and `-`"))
}

/// Parses a table of a key's table set: returns its full name, or `namespace.*` unchanged.
fn table(text: &str) -> Result<String> {
    match text.strip_suffix(".*") {
        Some(namespace) => name::full_table_name(&format!("{namespace}.x")).map(|_| text.to_owned()),
        None => name::full_table_name(text),
    }
}
