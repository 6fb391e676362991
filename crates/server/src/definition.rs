//! The JSON form of a table's definition: parsed from requests, written in answers.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use types::{
    AlterAction, ColumnId, DataType, EpochUnit, Error, HotLimit, Kind, NewIndex, Path, Result, TableDef,
    TableId, Value, name,
};

/// The body of `PUT /v1/tables/{table}`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    #[serde(default)]
    pub columns: Vec<ColumnDefinition>,
    #[serde(default)]
    pub primary_key: Option<Vec<String>>,
    pub time: Option<String>,
    pub lake: Option<bool>,
    /// Either a number of seconds, which is stored and has no effect, or the rules of what stays on this machine and when rows
    /// expire.
    pub retention: Option<Retention>,
    /// The time to live of rows, in seconds.
    pub ttl: Option<i64>,
    /// The partitioning of the lake table; `None` leaves it unchanged.
    pub partition_by: Option<Vec<String>>,
    /// The sort order of the lake table; `None` leaves it unchanged.
    pub sort_by: Option<Vec<String>>,
    /// All indexes that the table shall have; `None` leaves them unchanged.
    pub indexes: Option<Vec<IndexDefinition>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Retention {
    Seconds(i64),
    Rules(RetentionRules),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionRules {
    #[serde(default, deserialize_with = "nullable_hot")]
    pub hot: Option<Option<HotDefinition>>,
    /// The time to live of rows in seconds, the same setting as [`Definition::ttl`].
    pub expire: Option<i64>,
}

/// The part of a table that stays on this machine. Exactly one of the two fields is set.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HotDefinition {
    pub hours: Option<f64>,
    pub bytes: Option<u64>,
}

impl HotDefinition {
    fn parse(&self) -> Result<HotLimit> {
        let micros = |hours: f64| {
            let micros = hours * 3_600e6;
            (1e6..9e18).contains(&micros).then_some(HotLimit::Micros(micros as i64))
        };
        let hot = match (self.hours, self.bytes) {
            (Some(hours), None) => micros(hours),
            (None, Some(bytes)) => Some(HotLimit::Bytes(bytes)),
            _ => None,
        };
        hot.ok_or_else(|| {
            Error::invalid("`hot` says for how long or how much of a table stays on this machine")
                .hint(r#"write {"hours": 24} or {"bytes": 10000000000}"#)
        })
    }
}

/// Deserializes `hot` so that an explicit null (`Some(None)`) differs from an absent field (`None`).
fn nullable_hot<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<Option<HotDefinition>>, D::Error> {
    Option::deserialize(from).map(Some)
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexDefinition {
    pub name: Option<String>,
    pub kind: String,
    pub columns: Vec<String>,
    #[serde(default)]
    pub options: serde_json::Map<String, Json>,
    #[serde(default)]
    pub unique: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnDefinition {
    pub name: String,
    #[serde(rename = "type")]
    pub data_type: String,
    pub nullable: Option<bool>,
    /// The JSON text of the default, unparsed, so that a decimal keeps all its digits.
    pub default: Option<Box<RawValue>>,
    /// The path of its values in JSON rows. Null means the column's own name; an absent field leaves it unchanged.
    #[serde(default, deserialize_with = "nullable_text")]
    pub path: Option<Option<String>>,
    /// The unit of a timestamp that is given as a number, such as `epoch_s`. Null means microseconds; an absent field leaves it
    /// unchanged.
    #[serde(default, deserialize_with = "nullable_text")]
    pub input: Option<Option<String>>,
    /// True if the column collects the fields of JSON rows that no other column takes. An absent field leaves it unchanged.
    pub rest: Option<bool>,
}

/// Deserializes a text so that an explicit null (`Some(None)`) differs from an absent field (`None`).
fn nullable_text<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<Option<String>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// A column of a definition with its texts parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedColumn {
    pub name: String,
    pub data_type: DataType,
    pub nullable: bool,
    pub default: Option<Value>,
    pub path: Option<Option<Path>>,
    /// The unit of a timestamp that is given as a number.
    pub input: Option<Option<EpochUnit>>,
    pub rest: Option<bool>,
}

/// Maximum number of columns in a definition, checked before they are parsed, so that a body with millions is refused early.
const COLUMNS_MAX: usize = types::schema::COLUMNS_MAX;

impl Definition {
    /// Parses the body of a request, whose number of JSON values the caller has checked. An empty body is an empty definition.
    pub fn parse(body: &[u8]) -> Result<Self> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Definition::default());
        }
        let example = r#"{"columns":[{"name":"id","type":"int64"}],"primary_key":["id"]}"#;
        crate::input::json(body, "table definition", example)
    }

    pub fn columns(&self) -> Result<Vec<ParsedColumn>> {
        if self.columns.len() > COLUMNS_MAX {
            return Err(Error::new(
                Kind::Schema,
                format!("{} columns; a table has at most {COLUMNS_MAX}", self.columns.len()),
            )
            .hint("put rarely used fields into one json column"));
        }
        self.columns.iter().map(ColumnDefinition::parse).collect()
    }

    /// Returns the definition of a table that does not exist yet.
    pub fn new_table(&self, full_name: &str) -> Result<TableDef> {
        let mut def = TableDef::new(TableId(0), full_name);
        let columns = self.columns()?;
        for column in &columns {
            def.add_column(&column.name, &column.data_type, column.nullable, column.default.clone())
                .map_err(unprocessable)?;
        }
        for change in input_changes(&def, &columns)? {
            def.alter(&change)?;
        }
        if let Some(key) = &self.primary_key {
            def.set_primary_key(key)?;
        }
        if let Some(time) = &self.time {
            let column = def.schema.column_named(time).ok_or_else(|| {
                Error::invalid(format!("the time column `{}` does not exist", name::printable(time)))
            })?;
            if column.data_type != DataType::Timestamp {
                return Err(Error::invalid(format!(
                    "time column `{}` is a {}",
                    column.name, column.data_type
                ))
                .hint("it must be a timestamp"));
            }
            def.time = Some(column.id);
        }
        for index in self.indexes.iter().flatten() {
            def.add_index(&index.parse()?)?;
        }
        def.options.lake = self.lake;
        if self.retention_seconds().is_some() {
            return Err(retention_alone());
        }
        def.options.ttl = self.ttl_micros()?;
        if let Some(hot) = self.hot()? {
            def.set_hot(hot);
            def.check_hot()?;
        }
        def.set_partition_by(self.partition_by.as_deref().unwrap_or_default())?;
        def.set_sort_by(self.sort_by.as_deref().unwrap_or_default())?;
        Ok(def)
    }

    /// Returns the microseconds after which rows are deleted. Fails if `ttl` and `retention.expire` differ.
    pub fn ttl_micros(&self) -> Result<Option<i64>> {
        let micros = |seconds: i64| {
            let micros = seconds.checked_mul(1_000_000).filter(|micros| *micros > 0);
            micros.ok_or_else(|| Error::invalid(format!("a time to live of {seconds} s is out of range")))
        };
        let expire = match &self.retention {
            Some(Retention::Rules(rules)) => rules.expire,
            _ => None,
        };
        if let (Some(ttl), Some(expire)) = (self.ttl, expire)
            && ttl != expire
        {
            return Err(Error::invalid(
                "`ttl` and `retention.expire` are the same setting, but their values differ",
            )
            .hint("write one of the two"));
        }
        self.ttl.or(expire).map(micros).transpose()
    }

    /// Returns the limit of what stays on this machine. The outer `None` means that the definition does not mention it.
    pub fn hot(&self) -> Result<Option<Option<HotLimit>>> {
        let Some(Retention::Rules(RetentionRules { hot: Some(hot), .. })) = &self.retention else {
            return Ok(None);
        };
        hot.as_ref().map(HotDefinition::parse).transpose().map(Some)
    }

    /// Returns a `retention` that is only a number of seconds, which earlier versions stored and did not act on.
    pub fn retention_seconds(&self) -> Option<i64> {
        match self.retention {
            Some(Retention::Seconds(seconds)) => Some(seconds),
            _ => None,
        }
    }
}

/// Returns the error for a `retention` in seconds: its author wants rows to be deleted, but they would stay.
pub fn retention_alone() -> Error {
    Error::invalid("a `retention` in seconds alone deletes nothing")
        .hint("`ttl`, in seconds, deletes rows that are older; `retention` says what is `hot` and what is to `expire`")
}

/// Returns the changes that give the columns of `def` the wanted paths, inputs and catch-all column. `def` has all these columns.
pub fn input_changes(def: &TableDef, wanted: &[ParsedColumn]) -> Result<Vec<AlterAction>> {
    let rests: Vec<&str> = wanted.iter().filter(|c| c.rest == Some(true)).map(|c| c.name.as_str()).collect();
    if let [first, second, ..] = rests[..] {
        return Err(Error::invalid(format!("both `{first}` and `{second}` have `rest`"))
            .hint("only one column can collect the fields that no other column takes"));
    }
    let mut changes = Vec::new();
    let id = |name: &str| def.schema.column_named(name).map(|column| column.id);
    // Removals come first, so that they do not clash with the additions.
    for column in wanted.iter().filter(|column| column.rest == Some(false)) {
        if def.options.rest.is_some() && def.options.rest == id(&column.name) {
            changes.push(AlterAction::SetRest { to: None });
        }
    }
    for clears in [true, false] {
        for ParsedColumn { name, path, .. } in wanted {
            let Some(path) = path.as_ref().filter(|path| path.is_none() == clears) else { continue };
            let known = def.options.paths.iter().find(|(column, _)| Some(*column) == id(name));
            if known.map(|(_, path)| path) != path.as_ref() {
                changes.push(AlterAction::SetPath { name: name.clone(), path: path.clone() });
            }
        }
    }
    for ParsedColumn { name, input, .. } in wanted {
        let Some(to) = *input else { continue };
        if id(name).is_some_and(|id| def.input_of(id) != to) {
            changes.push(AlterAction::SetInput { name: name.clone(), to });
        }
    }
    if let [rest] = rests[..]
        && (def.options.rest.is_none() || def.options.rest != id(rest))
    {
        changes.push(AlterAction::SetRest { to: Some(rest.to_owned()) });
    }
    Ok(changes)
}

/// Converts an error about too many or clashing columns: it is a fault of the data, not of its size in bytes.
fn unprocessable(error: Error) -> Error {
    match error.kind() {
        Kind::TooLarge | Kind::Exists => {
            let mut changed = Error::new(Kind::Schema, error.message());
            if let Some(hint) = error.hint_text() {
                changed = changed.hint(hint);
            }
            changed
        }
        _ => error,
    }
}

impl ColumnDefinition {
    fn parse(&self) -> Result<ParsedColumn> {
        name::check_column(&self.name)?;
        let data_type = DataType::parse(&self.data_type, &mut ColumnId(0))
            .map_err(|e| e.with("column", name::printable(&self.name)))?;
        let default = match &self.default {
            None => None,
            Some(given) => Some(
                wire::value::of_type(given.get(), &data_type)
                    .map_err(|e| e.with("default of", name::printable(&self.name)))?,
            ),
        };
        let path = match &self.path {
            None => None,
            Some(None) => Some(None),
            Some(Some(path)) => {
                let path = Path::parse(path).map_err(|e| e.with("column", name::printable(&self.name)))?;
                Some(Some(path))
            }
        };
        let input = match &self.input {
            None => None,
            Some(None) => Some(None),
            Some(Some(unit)) => {
                let unit =
                    EpochUnit::parse(unit).map_err(|e| e.with("column", name::printable(&self.name)))?;
                Some(Some(unit))
            }
        };
        let (name, nullable) = (self.name.clone(), self.nullable.unwrap_or(true));
        Ok(ParsedColumn { name, data_type, nullable, default, path, input, rest: self.rest })
    }
}

impl IndexDefinition {
    pub fn parse(&self) -> Result<NewIndex> {
        let option = |(key, value): (&String, &Json)| Ok((key.clone(), plain(key, value)?));
        let kind = self.kind.to_lowercase();
        if kind == types::INDEX_SITE {
            // Notes come from a folder that is followed. On any other table this index would only hide rows from keys that are
            // not admins.
            return Err(Error::invalid("there is no index of kind `site` here")
                .hint("indexes are of kind `column` or `text`; `polynya publish FOLDER` makes a site"));
        }
        Ok(NewIndex {
            name: self.name.clone().unwrap_or_default(),
            kind,
            columns: self.columns.clone(),
            options: self.options.iter().map(option).collect::<Result<_>>()?,
            unique: self.unique,
        })
    }
}

/// Returns an option of an index as text. An array is joined: `[2, 1]` becomes `2,1`.
fn plain(key: &str, value: &Json) -> Result<String> {
    match value {
        Json::String(text) => Ok(text.clone()),
        Json::Number(number) => Ok(number.to_string()),
        Json::Bool(flag) => Ok(flag.to_string()),
        Json::Array(parts) => {
            Ok(parts.iter().map(|part| plain(key, part)).collect::<Result<Vec<_>>>()?.join(","))
        }
        Json::Null | Json::Object(_) => Err(Error::invalid(format!(
            "option `{}` of an index is a text or a number",
            name::printable(key)
        ))),
    }
}

/// Returns the JSON of a table as `GET` shows it.
pub fn describe(def: &TableDef) -> Json {
    let columns: Vec<Json> = def
        .schema
        .columns
        .iter()
        .map(|column| {
            let mut shown = json!({
                "id": column.id.0,
                "name": column.name,
                "type": column.data_type.to_string(),
                "nullable": column.takes_null(),
            });
            if let Some(default) = &column.default {
                shown["default"] = show(default, &column.data_type);
            }
            if let Some((_, path)) = def.options.paths.iter().find(|(id, _)| *id == column.id) {
                shown["path"] = json!(path.to_string());
            }
            if let Some(unit) = def.input_of(column.id) {
                shown["input"] = json!(unit.to_string());
            }
            if def.options.rest == Some(column.id) {
                shown["rest"] = json!(true);
            }
            shown
        })
        .collect();
    let key: Vec<&str> = def.key_columns().map(|c| c.name.as_str()).collect();
    let mut shown = json!({
        "name": name::short_table_name(&def.name),
        "schema_version": def.schema.version.0,
        "columns": columns,
        "primary_key": key,
    });
    if let Some(time) = def.time.and_then(|id| def.schema.column(id)) {
        shown["time"] = json!(time.name);
    }
    if let Some(lake) = def.options.lake {
        shown["lake"] = json!(lake);
    }
    if let Some(retention) = def.options.retention {
        shown["retention"] = json!(retention / 1_000_000);
    }
    if let Some(hot) = def.options.hot {
        let hot = match hot {
            HotLimit::Micros(micros) => json!({ "hours": micros as f64 / 3_600e6 }),
            HotLimit::Bytes(bytes) => json!({ "bytes": bytes }),
        };
        shown["retention"] = json!({ "hot": hot });
        if let Some(ttl) = def.options.ttl {
            shown["retention"]["expire"] = json!(ttl / 1_000_000);
        }
    }
    if let Some(ttl) = def.options.ttl {
        shown["ttl"] = json!(ttl / 1_000_000);
    }
    if !def.options.partition_by.is_empty() {
        shown["partition_by"] = json!(def.options.partition_by);
        let warnings = def.partition_warnings();
        if !warnings.is_empty() {
            shown["warnings"] = json!(warnings);
        }
    }
    if !def.options.sort_by.is_empty() {
        shown["sort_by"] = json!(def.options.sort_by);
    }
    if !def.indexes.is_empty() {
        let indexes = def.indexes.iter().map(|index| {
            let columns = index.columns.iter().filter_map(|id| Some(def.schema.column(*id)?.name.as_str()));
            let options: serde_json::Map<String, Json> =
                index.options.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
            let mut shown = json!({
                "name": index.name,
                "kind": index.kind,
                "columns": columns.collect::<Vec<_>>(),
                "options": options,
            });
            if index.unique.is_some() {
                shown["unique"] = json!(true);
            }
            shown
        });
        shown["indexes"] = indexes.collect();
    }
    shown
}

/// Returns the JSON of one value as rows show it.
fn show(value: &Value, data_type: &DataType) -> Json {
    let Ok(array) = Value::to_array(std::slice::from_ref(value), data_type) else { return Json::Null };
    let mut def = TableDef::new(TableId(0), "main.t");
    if def.add_column("v", data_type, true, None).is_err() {
        return Json::Null;
    }
    let schema = def.schema.to_arrow_user();
    let Ok(batch) = arrow::record_batch::RecordBatch::try_new(schema.clone(), vec![array]) else {
        return Json::Null;
    };
    let mut text = Vec::new();
    wire::out::json::Writer::new(&schema).arrays(&batch, &mut true, &mut text);
    match serde_json::from_slice::<Json>(&text) {
        Ok(Json::Array(mut values)) if values.len() == 1 => values.remove(0),
        _ => Json::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_understood_and_shown_again() {
        let body = br#"{"columns":[{"name":"id","type":"int64"},{"name":"d","type":"decimal(10,2)","default":"1.50"},
            {"name":"at","type":"timestamp","nullable":false}],"primary_key":["ID"],"time":"at","ttl":90,
            "partition_by":["days(at)","bucket(16, id)"],"sort_by":["d desc nulls last"]}"#;
        let def = Definition::parse(body).unwrap().new_table("main.events").unwrap();
        let shown = describe(&def);
        assert_eq!(shown["primary_key"], json!(["id"]));
        assert_eq!(shown["columns"][0]["nullable"], json!(false));
        assert_eq!(
            shown["columns"][1],
            json!({"id":17,"name":"d","type":"decimal(10,2)","nullable":true,"default":"1.50"})
        );
        assert_eq!(shown["time"], json!("at"));
        assert_eq!(shown["ttl"], json!(90));
        let alone = br#"{"columns":[{"name":"id","type":"int64"}],"retention":60}"#;
        let error = Definition::parse(alone).unwrap().new_table("main.events").unwrap_err();
        assert!(error.hint_text().unwrap().contains("`ttl`"), "{error}");
        assert_eq!(shown["partition_by"], json!(["days(at)", "bucket(16, id)"]));
        assert_eq!(shown["sort_by"], json!(["d desc nulls last"]));
    }

    #[test]
    fn a_default_keeps_the_digits_that_it_was_written_with() {
        let body = br#"{"columns":[{"name":"f","type":"float64","default": 100.00000000000001 },
            {"name":"d","type":"decimal(30,10)","default":12345678901234567.89},{"name":"n","type":"int64","default":null}]}"#;
        let shown = describe(&Definition::parse(body).unwrap().new_table("main.t").unwrap());
        assert_eq!(shown["columns"][0]["default"], json!(100.00000000000001));
        assert_eq!(shown["columns"][1]["default"], json!("12345678901234567.8900000000"));
        assert_eq!(shown["columns"][2].get("default"), None);
    }

    #[test]
    fn paths_and_the_rest_are_understood_and_shown_again() {
        let body = br#"{"columns":[{"name":"id","type":"int64","path":"payload.user.\"i.d\""},{"name":"n","type":"int64"},
            {"name":"extra","type":"json","rest":true}]}"#;
        let def = Definition::parse(body).unwrap().new_table("main.t").unwrap();
        let shown = describe(&def);
        assert_eq!(shown["columns"][0]["path"], json!("payload.user.\"i.d\""));
        assert_eq!(shown["columns"][1].get("path"), None);
        assert_eq!((&shown["columns"][2]["rest"], shown["columns"][1].get("rest")), (&json!(true), None));
        let wanted = |body: &str| Definition::parse(body.as_bytes()).unwrap().columns().unwrap();
        let changes = |body: &str| input_changes(&def, &wanted(body)).unwrap();
        assert_eq!(
            changes(r#"{"columns":[{"name":"ID","type":"int64"},{"name":"extra","type":"json"}]}"#),
            []
        );
        let swapped = r#"{"columns":[{"name":"id","type":"int64","path":null},{"name":"n","type":"int64","path":"payload.user.\"i.d\""},{"name":"extra","type":"json","rest":false}]}"#;
        let mut other = def.clone();
        for change in changes(swapped) {
            other.alter(&change).unwrap();
        }
        let shown = describe(&other);
        assert_eq!(
            (shown["columns"][0].get("path"), &shown["columns"][1]["path"]),
            (None, &json!("payload.user.\"i.d\""))
        );
        assert_eq!(shown["columns"][2].get("rest"), None);
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_reason() {
        for (body, part) in [
            (
                r#"{"columns":[{"name":"a","type":"int"},{"name":"A","type":"int"}]}"#,
                "there is a column `a` already",
            ),
            (r#"{"columns":[{"name":"a\u0000","type":"int"}]}"#, "control character"),
            (r#"{"columns":[{"name":"a","type":"integr"}]}"#, "is not a data type"),
            (r#"{"columns":[{"name":"a","type":"int32","default":"x"}]}"#, "int32 expected"),
            (r#"{"colums":[]}"#, "unknown field `colums`"),
            (
                r#"{"columns":[{"name":"a","type":"int32","path":"x..y"}]}"#,
                "`x..y` is not a valid path: a name is empty",
            ),
            (
                r#"{"columns":[{"name":"a","type":"int32","rest":true}]}"#,
                "is int32, so it cannot take the rest",
            ),
            (
                r#"{"columns":[{"name":"a","type":"json","rest":true},{"name":"b","type":"json","rest":true}]}"#,
                "both `a` and `b` have `rest`",
            ),
            (
                r#"{"columns":[{"name":"a","type":"int32","path":"x"},{"name":"b","type":"int32","path":"x"}]}"#,
                "`x` is the path of column `a`",
            ),
            (r#"{"primary_key":["x"]}"#, "is not a column"),
            (
                r#"{"columns":[{"name":"a","type":"int32"}],"partition_by":["days(a)"]}"#,
                "the column is int32",
            ),
            (r#"{"columns":[{"name":"a","type":"point"}],"sort_by":["a"]}"#, "it is point"),
            ("[", "not a valid table definition"),
        ] {
            let error = Definition::parse(body.as_bytes()).and_then(|d| d.new_table("main.t")).unwrap_err();
            assert!(error.to_string().contains(part), "{body}: {error}");
        }
        let many: Vec<Json> =
            (0..20_000).map(|i| json!({"name": format!("c{i}"), "type": "int64"})).collect();
        let body = json!({ "columns": many }).to_string();
        let error = Definition::parse(body.as_bytes()).unwrap().new_table("main.t").unwrap_err();
        assert_eq!(error.kind(), Kind::Schema);
    }
}
