//! The metadata of a view: its versions, each a query in one or more dialects.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use types::{Error, Result, name};

use super::change::checked_uuid;
use super::schema;
use super::table::with_id;

const FORMAT: i64 = 1;
/// The view property with the number of versions that the view keeps.
const VERSIONS_MAX: &str = "version.history.num-entries";
const VERSIONS_MAX_DEFAULT: usize = 10;
/// The view property that lets a new version lack a dialect of the version before.
const MAY_DROP_DIALECT: &str = "replace.drop-dialect.allowed";

const LAST_ADDED: i64 = -1;

/// A view's metadata. Members that are unknown here are kept unchanged in `other`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ViewMetadata {
    pub view_uuid: String,
    pub format_version: i64,
    pub location: String,
    pub current_version_id: i64,
    pub versions: Vec<Json>,
    pub version_log: Vec<Json>,
    pub schemas: Vec<Json>,
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    #[serde(flatten)]
    pub other: Map<String, Json>,
}

impl ViewMetadata {
    pub fn parse(bytes: &[u8]) -> Result<ViewMetadata> {
        let no_metadata = |e| Error::invalid(format!("this is not the metadata of an Iceberg view: {e}"));
        let view: ViewMetadata = serde_json::from_slice(bytes).map_err(no_metadata)?;
        if view.format_version != FORMAT {
            let found = view.format_version;
            return Err(Error::invalid(format!(
                "views of format version {found} are not supported; {FORMAT} is"
            )));
        }
        Ok(view)
    }

    pub fn to_json(&self) -> Result<Json> {
        serde_json::to_value(self)
            .map_err(|e| Error::internal(format!("writing the metadata of a view: {e}")))
    }

    fn version(&self, id: i64) -> Option<&Json> {
        with_id(&self.versions, "version-id", id)
    }
}

/// A view to which the changes of one commit are being applied.
#[derive(Debug)]
pub struct ViewChange {
    view: ViewMetadata,
    before: Option<Json>,
    is_new: bool,
    is_changed: bool,
    now_ms: i64,
    last_schema: Option<i64>,
    last_version: Option<i64>,
    added: BTreeSet<i64>,
    logged: Option<Json>,
}

impl ViewChange {
    pub fn of(view: ViewMetadata, now_ms: i64) -> ViewChange {
        let before = view.version(view.current_version_id).cloned();
        ViewChange::begin(view, before, now_ms)
    }

    pub fn new(uuid: String, location: String, now_ms: i64) -> ViewChange {
        let view = ViewMetadata {
            view_uuid: uuid,
            format_version: FORMAT,
            location,
            current_version_id: -1,
            versions: Vec::new(),
            version_log: Vec::new(),
            schemas: Vec::new(),
            properties: BTreeMap::new(),
            other: Map::new(),
        };
        let mut change = ViewChange::begin(view, None, now_ms);
        (change.is_new, change.is_changed) = (true, true);
        change
    }

    fn begin(view: ViewMetadata, before: Option<Json>, now_ms: i64) -> ViewChange {
        ViewChange {
            view,
            before,
            is_new: false,
            is_changed: false,
            now_ms,
            last_schema: None,
            last_version: None,
            added: BTreeSet::new(),
            logged: None,
        }
    }

    /// Applies the changes in order. Fails with [`types::Kind::Invalid`] if a change is unknown or does not fit the view.
    pub fn apply_all(&mut self, updates: &[Json]) -> Result<()> {
        updates.iter().try_for_each(|update| self.apply(update))
    }

    fn apply(&mut self, update: &Json) -> Result<()> {
        let action = update["action"].as_str().ok_or_else(|| Error::invalid("a change has no `action`"))?;
        let lacks = |key: &str| Error::invalid(format!("the change `{action}` has no `{key}`"));
        let text = |key: &str| update[key].as_str().ok_or_else(|| lacks(key));
        let number = |key: &str| update[key].as_i64().ok_or_else(|| lacks(key));
        match action {
            "assign-uuid" => {
                let uuid = checked_uuid(text("uuid")?)?;
                if !self.is_new && uuid != self.view.view_uuid {
                    return Err(Error::invalid("the view has a UUID already, which stays"));
                }
                self.view.view_uuid = uuid;
            }
            "upgrade-format-version" => {
                if number("format-version")? != FORMAT {
                    return Err(Error::invalid(format!("views have the format version {FORMAT}")));
                }
            }
            "set-location" => {
                let location = text("location")?.trim_end_matches('/');
                self.is_changed |= self.view.location != location;
                self.view.location = location.to_owned();
            }
            "set-properties" => {
                for (key, value) in super::string_map(&update["updates"], "a property")? {
                    let before = self.view.properties.insert(key, value.clone());
                    self.is_changed |= before.as_ref() != Some(&value);
                }
            }
            "remove-properties" => {
                let removals = update["removals"].as_array().ok_or_else(|| lacks("removals"))?;
                for key in removals.iter().filter_map(Json::as_str) {
                    self.is_changed |= self.view.properties.remove(key).is_some();
                }
            }
            "add-schema" => self.add_schema(&update["schema"])?,
            "add-view-version" => self.add_version(&update["view-version"])?,
            "set-current-view-version" => self.set_version(number("view-version-id")?)?,
            other => {
                return Err(Error::invalid(format!(
                    "`{}` is not a change of a view",
                    name::printable(other)
                )));
            }
        }
        Ok(())
    }

    fn add_schema(&mut self, added: &Json) -> Result<()> {
        // A view has the columns of its query, which may read tables of any format version.
        schema::check(added, super::table::FORMAT_MAX)?;
        if let Some(same) = self.view.schemas.iter().find(|known| schema::same(known, added)) {
            self.last_schema = same["schema-id"].as_i64();
            return Ok(());
        }
        let ids = self.view.schemas.iter().filter_map(|known| known["schema-id"].as_i64());
        let id = ids.max().map_or(0, |id| id + 1);
        self.view.schemas.push(schema::with_id(added, id));
        self.last_schema = Some(id);
        self.is_changed = true;
        Ok(())
    }

    fn add_version(&mut self, added: &Json) -> Result<()> {
        let lacks = |key: &str| Error::invalid(format!("the view version has no `{key}`"));
        let mut version = added.clone();
        if !added["timestamp-ms"].is_i64() {
            return Err(lacks("timestamp-ms"));
        }
        for key in ["representations", "default-namespace"] {
            if !added[key].is_array() {
                return Err(lacks(key));
            }
        }
        let schema_id = added["schema-id"].as_i64().ok_or_else(|| lacks("schema-id"))?;
        let schema_id = match schema_id {
            LAST_ADDED => {
                self.last_schema.ok_or_else(|| Error::invalid("no schema was added before in this commit"))?
            }
            id => id,
        };
        if with_id(&self.view.schemas, "schema-id", schema_id).is_none() {
            return Err(Error::invalid(format!("the view has no schema {schema_id}")));
        }
        version["schema-id"] = json!(schema_id);
        dialects(&version)?;
        let same = |known: &&Json| {
            ["summary", "representations", "default-catalog", "default-namespace", "schema-id"]
                .iter()
                .all(|key| known[*key] == version[*key])
        };
        if let Some(same) = self.view.versions.iter().find(same) {
            self.last_version = same["version-id"].as_i64();
            return Ok(());
        }
        let ids = self.view.versions.iter().filter_map(|known| known["version-id"].as_i64());
        let wanted = added["version-id"].as_i64().unwrap_or(1).max(1);
        let id = ids.max().map_or(wanted, |id| wanted.max(id + 1));
        version["version-id"] = json!(id);
        self.view.versions.push(version);
        self.last_version = Some(id);
        self.added.insert(id);
        self.is_changed = true;
        Ok(())
    }

    fn set_version(&mut self, id: i64) -> Result<()> {
        let id = match id {
            LAST_ADDED => self
                .last_version
                .ok_or_else(|| Error::invalid("no version was added before in this commit"))?,
            id => id,
        };
        let Some(version) = self.view.version(id) else {
            return Err(Error::invalid(format!("the view has no version {id}")));
        };
        if self.view.current_version_id == id {
            return Ok(());
        }
        let time =
            if self.added.contains(&id) { version["timestamp-ms"].clone() } else { json!(self.now_ms) };
        self.logged = Some(json!({ "timestamp-ms": time, "version-id": id }));
        self.view.current_version_id = id;
        self.is_changed = true;
        Ok(())
    }

    /// Returns the changed view; `None` if nothing changed.
    pub fn finish(mut self) -> Result<Option<ViewMetadata>> {
        if !self.is_changed {
            return Ok(None);
        }
        let current = self.view.version(self.view.current_version_id).cloned();
        let current = current.ok_or_else(|| Error::invalid("the view has no current version"))?;
        let may_drop =
            self.view.properties.get(MAY_DROP_DIALECT).is_some_and(|set| set.eq_ignore_ascii_case("true"));
        if let Some(before) = self.before.as_ref().filter(|_| !may_drop) {
            let now = dialects(&current)?;
            if let Some(lost) = dialects(before)?.difference(&now).next() {
                return Err(Error::invalid(format!(
                    "Cannot replace view due to loss of view dialects: {} ({MAY_DROP_DIALECT}=false)",
                    name::printable(lost)
                )));
            }
        }
        self.view.version_log.extend(self.logged.take());
        self.expire()?;
        Ok(Some(self.view))
    }

    /// Removes the oldest versions above the number that the view keeps. The current version and those added in this commit
    /// stay.
    fn expire(&mut self) -> Result<()> {
        let max = match self.view.properties.get(VERSIONS_MAX) {
            None => VERSIONS_MAX_DEFAULT,
            Some(text) => text.parse().ok().filter(|max| *max > 0).ok_or_else(|| {
                Error::invalid(format!(
                    "`{VERSIONS_MAX}` is a number from 1 on, `{}` was given",
                    name::printable(text)
                ))
            })?,
        };
        let current = self.view.current_version_id;
        let mut needed = self.added.clone();
        needed.insert(current);
        let max = max.max(needed.len());
        if self.view.versions.len() <= max {
            return Ok(());
        }
        let id_of = |version: &Json| version["version-id"].as_i64().unwrap_or_default();
        let mut newest: Vec<i64> = self.view.versions.iter().map(id_of).filter(|id| *id != current).collect();
        newest.sort_unstable_by_key(|id| std::cmp::Reverse(*id));
        let kept: BTreeSet<i64> = newest.into_iter().take(max - 1).chain([current]).collect();
        self.view.versions.retain(|version| kept.contains(&id_of(version)));
        // The log has no gaps: entries before a removed version are not part of the history of the remaining ones.
        let log = std::mem::take(&mut self.view.version_log);
        for entry in log {
            if kept.contains(&id_of(&entry)) {
                self.view.version_log.push(entry)
            } else {
                self.view.version_log.clear()
            }
        }
        Ok(())
    }
}

/// Returns the dialects of a version's queries, in lower case. Fails if a dialect occurs twice.
fn dialects(version: &Json) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for one in version["representations"].as_array().into_iter().flatten() {
        let (Some("sql"), Some(dialect), Some(_)) =
            (one["type"].as_str(), one["dialect"].as_str(), one["sql"].as_str())
        else {
            return Err(Error::invalid("a view's query has `\"type\": \"sql\"`, `sql` and `dialect`"));
        };
        let dialect = dialect.to_lowercase();
        if found.contains(&dialect) {
            return Err(Error::invalid(format!(
                "Invalid view version: Cannot add multiple queries for dialect {}",
                name::printable(&dialect)
            )));
        }
        found.insert(dialect);
    }
    Ok(found)
}
