//! Credentials that a catalog hands out for a table's files: their properties in its responses, and the request for new ones.
//!
//! A response has properties for the whole table (`config`) and for parts of the store (`storage-credentials`). Of the latter,
//! those with the longest prefix of the table's location come first, before the former. The properties of the catalog itself
//! come last.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value as Json;
use types::{Error, Kind, Result, name};

use super::client::Catalog;
use crate::objects::{Credential, StoreEndpoint, Vendor};

pub(super) type Properties = BTreeMap<String, String>;

const ACCESS_KEY: &str = "s3.access-key-id";
const SECRET_KEY: &str = "s3.secret-access-key";
const TOKEN: &str = "s3.session-token";
const ENDS: &str = "s3.session-token-expires-at-ms";
const SIGNS: &str = "s3.remote-signing-enabled";

/// The properties in a response that tell how a table's files are reached. Never shown, since they contain secrets.
#[derive(Clone, Default)]
pub(super) struct AccessProperties {
    config: Properties,
    storage: Vec<(String, Properties)>,
}

impl fmt::Debug for AccessProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessProperties")
    }
}

impl AccessProperties {
    /// Parses a response's `config` and `storage-credentials`. Parts of another form are ignored.
    pub fn of(config: &Json, storage: &Json) -> AccessProperties {
        let of = |one: &Json| Some((one["prefix"].as_str()?.to_owned(), properties(&one["config"])));
        let storage = storage.as_array().into_iter().flatten().filter_map(of).collect();
        AccessProperties { config: properties(config), storage }
    }

    /// Returns the properties that apply to a location, in the order of precedence.
    pub fn for_location<'a>(&'a self, of_catalog: &'a Properties, location: &str) -> LocationAccess<'a> {
        let fits = self.storage.iter().filter(|(prefix, _)| is_prefix(prefix, location));
        let longest = fits.max_by_key(|(prefix, _)| prefix.len()).map(|(_, properties)| properties);
        LocationAccess(longest.into_iter().chain([&self.config, of_catalog]).collect())
    }
}

/// Parses properties. Numbers and booleans, which some catalogs do not write as texts, become texts.
fn properties(of: &Json) -> Properties {
    let text = |value: &Json| match value {
        Json::String(text) => Some(text.clone()),
        Json::Number(_) | Json::Bool(_) => Some(value.to_string()),
        _ => None,
    };
    let all = of.as_object().into_iter().flatten();
    all.filter_map(|(key, value)| Some((key.clone(), text(value)?))).collect()
}

/// Returns true if a location lies in a prefix (`s3`, `s3://bucket` or `s3://bucket/path`), compared by whole path components.
fn is_prefix(prefix: &str, location: &str) -> bool {
    let Some(rest) = location.strip_prefix(prefix) else { return prefix.strip_suffix('/') == Some(location) };
    rest.is_empty() || prefix.is_empty() || prefix.ends_with('/') || rest.starts_with(['/', ':'])
}

/// The properties that apply to one location, in the order of precedence.
pub(super) struct LocationAccess<'a>(Vec<&'a Properties>);

impl LocationAccess<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find_map(|properties| properties.get(key)).map(String::as_str)
    }

    pub fn endpoint(&self) -> StoreEndpoint {
        let text = |key: &str| self.get(key).filter(|text| !text.is_empty()).map(str::to_owned);
        StoreEndpoint {
            endpoint: text("s3.endpoint").map(|endpoint| endpoint.trim_end_matches('/').to_owned()),
            region: text("s3.region").or_else(|| text("client.region")),
            virtual_hosted: self.get("s3.path-style-access") == Some("false"),
        }
    }

    /// Returns the credential. All its parts come from the same set of properties: a token of another set does not belong to
    /// the key.
    pub fn credential(&self, catalog: &str, location: &str) -> Result<Credential> {
        let from = self.0.iter().find(|properties| properties.contains_key(ACCESS_KEY));
        let part = |key: &str| from.and_then(|from| from.get(key)).filter(|part| !part.is_empty());
        if let Some((access_key, secret_key)) = part(ACCESS_KEY).zip(part(SECRET_KEY)) {
            return Ok(Credential {
                access_key: access_key.clone(),
                secret_key: secret_key.clone(),
                session_token: part(TOKEN).cloned(),
                ends_at_ms: part(ENDS).and_then(|ends| ends.parse().ok()),
            });
        }
        let at =
            format!("the catalog at {catalog} hands out no credentials for {}", name::printable(location));
        let others = ["gcs.", "adls.", "oss."]
            .into_iter()
            .find(|kind| self.0.iter().any(|properties| properties.keys().any(|key| key.starts_with(kind))));
        let why = match (from, others) {
            (Some(_), _) => ": a part of the key is missing".to_owned(),
            _ if self.get(SIGNS) == Some("true") => {
                ": it signs each request itself, which Polynya does not ask of it".to_owned()
            }
            (None, Some(kind)) => format!(" that S3 takes, but others (`{kind}…`)"),
            (None, None) => String::new(),
        };
        Err(Error::new(Kind::Forbidden, format!("{at}{why}")).hint(
            "have it vend credentials for S3 to this user, or give Polynya a key of its own (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)",
        ))
    }
}

/// Requests new credentials for a table from its catalog.
pub(super) struct TableVendor {
    pub catalog: Catalog,
    pub table: String,
    pub location: String,
}

impl fmt::Debug for TableVendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {:?}", self.table, self.catalog)
    }
}

impl Vendor for TableVendor {
    fn vend(&self) -> Result<Credential> {
        self.catalog.credential(&self.table, &self.location)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(id: &str) -> Json {
        json!({ ACCESS_KEY: id, SECRET_KEY: format!("{id}-secret") })
    }

    #[test]
    fn the_longest_prefix_of_a_table_wins_before_its_config() {
        let location = "s3://bucket/lake/main/t-1";
        let all = [
            ("s3://bucket/lake", "lake"),
            ("s3://bucket/lake/main/t-1", "table"),
            ("s3", "scheme"),
            ("s3://bucket/lake/main/t", "another"),
            ("s3://bucket/lake/main/t-1/data", "below"),
            ("s3://bucket", "bucket"),
        ];
        let told = |of: &[(&str, &str)]| {
            let storage = of.iter().map(|(prefix, id)| json!({ "prefix": prefix, "config": key(id) }));
            AccessProperties::of(&key("config"), &storage.collect())
        };
        let catalog = Properties::new();
        let id = |told: &AccessProperties| {
            told.for_location(&catalog, location).credential("c", location).unwrap().access_key
        };
        assert_eq!(id(&told(&all)), "table");
        assert_eq!(id(&told(&[all[0], all[2], all[5]])), "lake");
        assert_eq!(id(&told(&[all[2], all[5]])), "bucket");
        assert_eq!(id(&told(&[all[2]])), "scheme");
        assert_eq!(id(&told(&[("s3://bucket/lake/main/t-1/", "slash"), all[0]])), "slash");
        // Whole path components are compared: neither a sibling's prefix nor one below the table applies.
        assert_eq!(id(&told(&[all[3], all[4]])), "config");
        assert_eq!(id(&told(&[("", "all")])), "all");
    }

    #[test]
    fn properties_of_a_table_come_before_those_of_the_catalog() {
        let catalog = properties(&json!({
            "s3.endpoint": "http://all", "client.region": "all", "s3.path-style-access": true, SIGNS: "true",
        }));
        let told = AccessProperties::of(
            &json!({ "s3.endpoint": "http://table/", "s3.session-token": "of another" }),
            &json!([
                { "prefix": "s3://b", "config": { "s3.region": "part", ACCESS_KEY: "id", SECRET_KEY: "s", ENDS: 17 } },
            ]),
        );
        let access = told.for_location(&catalog, "s3://b/t");
        let endpoint = StoreEndpoint {
            endpoint: Some("http://table".into()),
            region: Some("part".into()),
            virtual_hosted: false,
        };
        assert_eq!(access.endpoint(), endpoint);
        let credential = access.credential("c", "s3://b/t").unwrap();
        assert_eq!((credential.session_token, credential.ends_at_ms), (None, Some(17)));
        let virtual_hosted = properties(&json!({ "s3.path-style-access": "false" }));
        assert!(
            AccessProperties::default().for_location(&virtual_hosted, "s3://b/t").endpoint().virtual_hosted
        );
    }

    #[test]
    fn the_error_names_the_missing_part_of_a_credential() {
        let says = |config: Json| {
            let told = AccessProperties::of(&config, &Json::Null);
            let error = told
                .for_location(&Properties::new(), "s3://b/t")
                .credential("http://c", "s3://b/t")
                .unwrap_err();
            assert_eq!(error.kind(), Kind::Forbidden);
            error.to_string()
        };
        assert!(says(json!({})).contains("hands out no credentials for s3://b/t;"));
        assert!(says(json!({ SIGNS: "true" })).contains("signs each request itself"));
        assert!(says(json!({ ACCESS_KEY: "id" })).contains("a part of the key is missing"));
        assert!(says(json!({ "gcs.oauth2.token": "hush" })).contains("`gcs.…`"));
        assert!(!says(json!({ "gcs.oauth2.token": "hush", SECRET_KEY: "hush" })).contains("hush"));
        let told = format!("{:?}", AccessProperties::of(&key("hush"), &Json::Null));
        assert!(!told.contains("hush"), "{told}");
    }
}
