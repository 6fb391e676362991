//! Sends requests to a catalog and interprets its responses.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use types::{Error, Kind, Result};
use vfs::{Mutex, Rank};

use super::changes::Changes;
use super::http::{Body, Http, Method, Request, Response, Transport, TransportError};
use super::token::{Identity, Tokens};
use super::vended::{AccessProperties, Properties};
use crate::objects::Credential;

/// Settings for the connection to a catalog.
#[derive(Clone, Default)]
pub struct Options {
    /// The address before `/v1`, such as `http://127.0.0.1:8181/catalog`.
    pub uri: String,
    /// The catalog's warehouse, for catalogs that have several.
    pub warehouse: Option<String>,
    /// A bearer token, sent unchanged.
    pub token: Option<String>,
    /// `ID:SECRET`, or only a secret, to be exchanged for a token.
    pub credential: Option<String>,
    /// The scope to request with a token; `catalog` by default.
    pub scope: Option<String>,
    /// The address that issues tokens; the catalog itself by default.
    pub oauth2_uri: Option<String>,
    /// Time limit of every call; 30 s by default.
    pub call_max: Option<Duration>,
}

impl fmt::Debug for Options {
    /// Shows no secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("uri", &self.uri)
            .field("warehouse", &self.warehouse)
            .finish_non_exhaustive()
    }
}

/// Default time limit of a call. A background thread waits meanwhile.
const CALL_MAX: Duration = Duration::from_secs(30);

const TABLE: &str = "/v1/{prefix}/namespaces/{namespace}/tables/{table}";
const CREDENTIALS: &str = "/v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials";
const TABLES: &str = "/v1/{prefix}/namespaces/{namespace}/tables";
const NAMESPACES: &str = "/v1/{prefix}/namespaces";

/// A catalog, and the database that has tables in it.
#[derive(Clone)]
pub struct Catalog(Arc<Inner>);

struct Inner {
    transport: Box<dyn Transport>,
    /// The address, without `/v1` and a slash at the end.
    uri: String,
    warehouse: Option<String>,
    tokens: Tokens,
    /// The catalog's configuration, once it was requested.
    config: Mutex<Option<Arc<CatalogConfig>>>,
    owner: String,
}

/// The configuration of a catalog: how requests to it must look, and its defaults.
struct CatalogConfig {
    /// The prefix in paths, with a slash before it, or empty.
    prefix: String,
    /// The endpoints that the catalog offers; `None` if it does not list them.
    endpoints: Option<Vec<String>>,
    /// Properties that apply to all tables. Never shown, since they may contain secrets.
    properties: Properties,
}

/// Tells whether a response is to contain credentials for the table's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delegation {
    None,
    Credentials,
}

/// A table as a catalog returns it.
#[derive(Debug)]
pub(super) struct LoadedTable {
    pub metadata_location: String,
    /// The metadata as JSON.
    pub metadata: Bytes,
    /// The properties that tell how the table's files are reached.
    pub access: AccessProperties,
}

/// A request that failed.
#[derive(Debug)]
pub(super) struct RequestError {
    pub error: Error,
    /// True if the request was not carried out and never will be.
    pub is_certain: bool,
    /// The response's status; 0 if there was no response.
    pub status: u16,
    /// True if the catalog itself says that the object does not exist, and not a proxy that does not reach the catalog.
    pub is_missing: bool,
}

impl RequestError {
    /// Returns true if the table's current state may be the reason of the refusal, rather than the client's rights, a rate
    /// limit, or a proxy that does not know the table.
    pub fn may_concern_table(&self) -> bool {
        (400..500).contains(&self.status) && !matches!(self.status, 401 | 403 | 404 | 407 | 421 | 429)
    }
}

type RequestResult<T> = std::result::Result<T, RequestError>;

impl From<RequestError> for Error {
    fn from(failed: RequestError) -> Error {
        failed.error
    }
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.uri)
    }
}

impl Catalog {
    /// Creates the client. `owner` is the id of the database. Sends no request; the first one is made by
    /// [`Catalog::ensure_usable`].
    pub fn connect(options: &Options, owner: &str) -> Result<Catalog> {
        let transport = Http::new(options.call_max.unwrap_or(CALL_MAX))?;
        Catalog::new(Box::new(transport), options, owner)
    }

    pub(crate) fn new(transport: Box<dyn Transport>, options: &Options, owner: &str) -> Result<Catalog> {
        let uri = base(&options.uri)?;
        let identity = match (&options.token, &options.credential) {
            (Some(_), Some(_)) => {
                return Err(Error::invalid("the catalog is given both a token and a credential")
                    .hint("set lake.catalog_token or lake.catalog_credential, not both"));
            }
            (Some(token), None) => Identity::Token(token.clone()),
            (None, Some(credential)) => {
                let (id, secret) = credential.split_once(':').unwrap_or(("", credential));
                let token_url = match &options.oauth2_uri {
                    Some(url) => base_of(url, "lake.catalog_oauth2_uri")?,
                    None => format!("{uri}/v1/oauth/tokens"),
                };
                let scope = options.scope.clone().unwrap_or_else(|| "catalog".into());
                Identity::Client { id: id.to_owned(), secret: secret.to_owned(), scope, token_url }
            }
            (None, None) => Identity::Nobody,
        };
        Ok(Catalog(Arc::new(Inner {
            transport,
            uri,
            warehouse: options.warehouse.clone(),
            tokens: Tokens::new(identity),
            config: Mutex::new(Rank::new(59, "lake catalog"), None),
            owner: owner.to_owned(),
        })))
    }

    /// Returns the id of the database that owns the tables.
    pub(super) fn owner(&self) -> &str {
        &self.0.owner
    }

    pub fn uri(&self) -> &str {
        &self.0.uri
    }

    /// Checks, once, that the address is a catalog which accepts our identity and has the endpoints that a lake needs.
    pub fn ensure_usable(&self) -> Result<()> {
        self.config().map(drop).map_err(Error::from)
    }

    fn config(&self) -> RequestResult<Arc<CatalogConfig>> {
        if let Some(known) = self.0.config.lock().clone() {
            return Ok(known);
        }
        let mut url = format!("{}/v1/config", self.0.uri);
        if let Some(warehouse) = &self.0.warehouse {
            url += &format!("?warehouse={}", escaped(warehouse));
        }
        let what = || format!("asking {url} what it is");
        let response = self.send(Method::Get, &url, Delegation::None, None, &what())?;
        let no_catalog = |why: &str| {
            certain(
                response.status,
                Error::invalid(format!(
                    "there is no Iceberg REST catalog at {}: {url} {why}",
                    self.0.uri
                ))
                .hint("lake.catalog is the catalog's address before /v1, such as http://127.0.0.1:8181/catalog"),
            )
        };
        match response.status {
            200 => {}
            status @ (301..=308 | 404 | 405) => {
                let said = error_text(&response.body).map(|said| format!(", {said}")).unwrap_or_default();
                return Err(no_catalog(&format!("is answered with {status}{said}")));
            }
            _ => return Err(self.error_of(&what(), &response)),
        }
        let config: ConfigResponse =
            serde_json::from_slice(&response.body).map_err(|_| no_catalog("answers with something else"))?;
        let mut properties = config.defaults;
        properties.extend(config.overrides);
        let prefix = properties.get("prefix");
        let prefix = prefix.map(|prefix| prefix.trim_matches('/')).filter(|prefix| !prefix.is_empty());
        let prefix = prefix.map(|prefix| format!("/{prefix}")).unwrap_or_default();
        let config = Arc::new(CatalogConfig { prefix, endpoints: config.endpoints, properties });
        for (method, endpoint) in [("GET", TABLE), ("POST", TABLE), ("POST", TABLES)] {
            if !config.has(method, endpoint) {
                let message = format!(
                    "the catalog at {} does not offer `{method} {endpoint}`, which a lake needs",
                    self.0.uri
                );
                let hint = "choose a catalog that creates tables and accepts commits, or a lake without one";
                return Err(certain(response.status, Error::invalid(message).hint(hint)));
            }
        }
        *self.0.config.lock() = Some(config.clone());
        Ok(config)
    }

    /// Loads a table by its full name; `None` if it does not exist.
    pub(super) fn table(
        &self,
        full_name: &str,
        delegation: Delegation,
    ) -> RequestResult<Option<LoadedTable>> {
        let url = self.table_url(full_name)?;
        let what = format!("loading {full_name} from the catalog at {}", self.0.uri);
        let response = self.send(Method::Get, &url, delegation, None, &what)?;
        match response.status {
            200 => read(&response, &what).map(Some),
            404 if is_missing(&response) => Ok(None),
            _ => Err(self.error_of(&what, &response)),
        }
    }

    /// Returns the properties that apply to all tables.
    pub(super) fn properties(&self) -> RequestResult<Properties> {
        Ok(self.config()?.properties.clone())
    }

    /// Gets credentials for the files of a table at `location`.
    pub(super) fn credential(&self, full_name: &str, location: &str) -> Result<Credential> {
        let config = self.config()?;
        let at = |access: &AccessProperties| {
            access.for_location(&config.properties, location).credential(self.uri(), location)
        };
        if config.endpoints.is_some() && config.has("GET", CREDENTIALS) {
            let url = format!("{}/credentials", self.table_url(full_name)?);
            let what = format!("asking the catalog at {} for credentials of {full_name}", self.0.uri);
            let response = self.send(Method::Get, &url, Delegation::Credentials, None, &what)?;
            match response.status {
                200 => {
                    let no = || Error::io(&what, io::Error::other("the answer has another form"));
                    let body: Json = serde_json::from_slice(&response.body).map_err(|_| no())?;
                    // If none of these credentials is for this location, the table's own response may have some.
                    if let Ok(found) = at(&AccessProperties::of(&Json::Null, &body["storage-credentials"])) {
                        return Ok(found);
                    }
                }
                // The catalog lists the endpoint and does not have it. The table's own response may have credentials.
                404 | 405 | 501 => {}
                _ => return Err(self.error_of(&what, &response).into()),
            }
        }
        let loaded = self.table(full_name, Delegation::Credentials)?.ok_or_else(|| {
            Error::not_found(format!("the catalog at {} has no {full_name} any more", self.0.uri))
        })?;
        if loaded.location()? != location {
            return Err(Error::conflict(format!(
                "{full_name} in the catalog at {} is another table by now",
                self.0.uri
            )));
        }
        at(&loaded.access)
    }

    /// Creates a namespace unless it exists.
    pub(super) fn make_namespace(&self, namespace: &str) -> RequestResult<()> {
        let config = self.config()?;
        let all = format!("{}/v1{}/namespaces", self.0.uri, config.prefix);
        let what = format!("looking for the namespace {namespace} in the catalog at {}", self.0.uri);
        let response =
            self.send(Method::Get, &format!("{all}/{}", escaped(namespace)), Delegation::None, None, &what)?;
        match response.status {
            200 | 204 => return Ok(()),
            404 if is_missing(&response) && !config.has("POST", NAMESPACES) => {
                let message = format!("the catalog at {} has no namespace {namespace}", self.0.uri);
                let hint = "it cannot create namespaces by request, so create it there by hand";
                return Err(certain(404, Error::not_found(message).hint(hint)));
            }
            404 if is_missing(&response) => {}
            _ => return Err(self.error_of(&what, &response)),
        }
        let what = format!("making the namespace {namespace} in the catalog at {}", self.0.uri);
        let body = json!({ "namespace": [namespace], "properties": {} });
        let response = self.send(Method::Post, &all, Delegation::None, Some(&body), &what)?;
        match response.status {
            // 409: another client created it first.
            200 | 204 | 409 => Ok(()),
            _ => Err(self.error_of(&what, &response)),
        }
    }

    /// Creates a table as `body` describes it; the name is added here.
    pub(super) fn create(
        &self,
        full_name: &str,
        delegation: Delegation,
        mut body: Json,
    ) -> RequestResult<LoadedTable> {
        let config = self.config()?;
        let (namespace, table) = split(full_name);
        body["name"] = json!(table);
        let url = format!("{}/v1{}/namespaces/{}/tables", self.0.uri, config.prefix, escaped(namespace));
        let what = format!("making {full_name} in the catalog at {}", self.0.uri);
        let response = self.send(Method::Post, &url, delegation, Some(&body), &what)?;
        match response.status {
            200 => read(&response, &what),
            _ => Err(self.error_of(&what, &response)),
        }
    }

    pub(super) fn commit(&self, full_name: &str, changes: &Changes) -> RequestResult<LoadedTable> {
        let url = self.table_url(full_name)?;
        let (namespace, table) = split(full_name);
        let body = json!({
            "identifier": { "namespace": [namespace], "name": table },
            "requirements": changes.requirements,
            "updates": changes.updates,
        });
        let what = format!("committing {full_name} to the catalog at {}", self.0.uri);
        let response = self.send(Method::Post, &url, Delegation::None, Some(&body), &what)?;
        match response.status {
            200 => read(&response, &what),
            _ => Err(self.error_of(&what, &response)),
        }
    }

    /// Drops a table without its files. Succeeds if it does not exist.
    pub(super) fn drop_table(&self, full_name: &str) -> RequestResult<()> {
        let url = format!("{}?purgeRequested=false", self.table_url(full_name)?);
        let what = format!("dropping {full_name} in the catalog at {}", self.0.uri);
        let response = self.send(Method::Delete, &url, Delegation::None, None, &what)?;
        match response.status {
            200 | 204 => Ok(()),
            404 if is_missing(&response) => Ok(()),
            _ => Err(self.error_of(&what, &response)),
        }
    }

    fn table_url(&self, full_name: &str) -> RequestResult<String> {
        let config = self.config()?;
        let (namespace, table) = split(full_name);
        let (uri, prefix) = (&self.0.uri, &config.prefix);
        Ok(format!("{uri}/v1{prefix}/namespaces/{}/tables/{}", escaped(namespace), escaped(table)))
    }

    /// Sends a request. Repeats it once with a new token if the first one is refused. A request for which no token could be had
    /// was not sent.
    fn send(
        &self,
        method: Method,
        url: &str,
        delegation: Delegation,
        body: Option<&Json>,
        what: &str,
    ) -> RequestResult<Response> {
        let body = body.map(|body| Body::Json(Bytes::from(body.to_string())));
        let mut is_renewed = false;
        loop {
            let transport = &*self.0.transport;
            let bearer = self.0.tokens.get(transport).map_err(|error| certain(0, error))?;
            let wants_credentials = delegation == Delegation::Credentials;
            let request =
                Request { method, url: url.to_owned(), bearer, wants_credentials, body: body.clone() };
            let response = transport.call(&request).map_err(|broken| {
                let (why, is_certain) = match broken {
                    TransportError::NotSent(why) => (why, true),
                    TransportError::Unknown(why) => (why, method == Method::Get),
                };
                RequestError {
                    error: Error::io(what, io::Error::other(why)),
                    is_certain,
                    status: 0,
                    is_missing: false,
                }
            })?;
            match request.bearer {
                Some(token) if response.status == 401 && self.0.tokens.can_renew() && !is_renewed => {
                    self.0.tokens.refuse(&token);
                    is_renewed = true;
                }
                _ => return Ok(response),
            }
        }
    }

    /// Returns the error for an unexpected response.
    fn error_of(&self, what: &str, response: &Response) -> RequestError {
        let status = response.status;
        let said = error_text(&response.body).map(|said| format!(", {said}")).unwrap_or_default();
        let message = format!("{what} failed: it answers with {status}{said}");
        let error = match status {
            401 | 403 => Error::new(Kind::Forbidden, message)
                .hint("check lake.catalog_token or lake.catalog_credential, and what they may do there: load, make, commit to and drop tables"),
            404 => Error::not_found(message),
            409 => Error::conflict(message),
            429 => Error::new(Kind::Busy, message),
            400..=499 => Error::invalid(message),
            _ => Error::io(what, io::Error::other(format!("it answers with {status}{said}"))),
        };
        // Other errors, such as those of an overloaded server or of a proxy, do not tell whether the request was carried out.
        let is_certain =
            matches!(status, 400..=407 | 410..=417 | 421 | 422 | 424 | 426 | 428 | 429 | 431 | 501);
        RequestError { error, is_certain, status, is_missing: is_missing(response) }
    }
}

/// Returns true if the catalog says that an object does not exist. A 404 in another form comes from some other server.
fn is_missing(response: &Response) -> bool {
    response.status == 404 && error_text(&response.body).is_some()
}

impl CatalogConfig {
    fn has(&self, method: &str, path: &str) -> bool {
        let wanted = format!("{method} {path}");
        self.endpoints.as_ref().is_none_or(|endpoints| endpoints.contains(&wanted))
    }
}

#[derive(Deserialize)]
struct ConfigResponse {
    defaults: BTreeMap<String, String>,
    overrides: BTreeMap<String, String>,
    #[serde(default)]
    endpoints: Option<Vec<String>>,
}

fn certain(status: u16, error: Error) -> RequestError {
    RequestError { error, is_certain: true, status, is_missing: false }
}

/// Parses a table in a response. A response that cannot be parsed does not tell whether the request was carried out.
fn read(response: &Response, what: &str) -> RequestResult<LoadedTable> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Table {
        metadata_location: String,
        metadata: Box<RawValue>,
        #[serde(default)]
        config: Json,
        #[serde(default)]
        storage_credentials: Json,
    }
    let table: Table = serde_json::from_slice(&response.body).map_err(|e| RequestError {
        error: Error::io(what, io::Error::other(format!("the answer is not a table: {e}"))),
        is_certain: false,
        status: response.status,
        is_missing: false,
    })?;
    let metadata = Bytes::from(String::from(Box::<str>::from(table.metadata)));
    let access = AccessProperties::of(&table.config, &table.storage_credentials);
    Ok(LoadedTable { metadata_location: table.metadata_location, metadata, access })
}

impl LoadedTable {
    /// Returns the table's location according to its metadata.
    fn location(&self) -> Result<String> {
        #[derive(Deserialize)]
        struct Located {
            location: String,
        }
        let located: Located = serde_json::from_slice(&self.metadata)
            .map_err(|_| Error::damaged("the catalog does not say where a table is"))?;
        Ok(located.location.trim_end_matches('/').to_owned())
    }
}

/// Returns the error in a response, if it has the form of the REST catalog protocol.
fn error_text(body: &[u8]) -> Option<String> {
    let body: Json = serde_json::from_slice(body).ok()?;
    let error = &body["error"];
    let said = match (error["type"].as_str(), error["message"].as_str()) {
        (Some(kind), Some(message)) => format!("{kind}: {message}"),
        (_, Some(message)) => message.to_owned(),
        (Some(kind), None) => kind.to_owned(),
        (None, None) => return None,
    };
    Some(one_line(&said))
}

/// Makes another program's text fit into one line of a message: no control characters, 400 characters at most.
pub(super) fn one_line(text: &str) -> String {
    text.chars().take(400).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn split(full_name: &str) -> (&str, &str) {
    full_name.split_once('.').unwrap_or((types::name::DEFAULT_NAMESPACE, full_name))
}

/// Escapes a text for a part of a URL or of a form.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            other => out += &format!("%{other:02X}"),
        }
    }
    out
}

/// Checks a catalog's address and removes `/v1` and a slash at its end.
fn base(uri: &str) -> Result<String> {
    let base = base_of(uri, "lake.catalog")?;
    // Some people write the address with `/v1`.
    Ok(base.strip_suffix("/v1").unwrap_or(&base).to_owned())
}

fn base_of(uri: &str, setting: &str) -> Result<String> {
    let rest = uri.strip_prefix("http://").or_else(|| uri.strip_prefix("https://"));
    let host = rest.and_then(|rest| rest.split('/').next()).unwrap_or_default();
    if host.is_empty() || uri.contains(['?', '#']) || uri.chars().any(|c| c.is_whitespace() || c.is_control())
    {
        return Err(Error::invalid(format!(
            "{setting} is not an address: `{}`",
            types::name::printable(uri)
        ))
        .hint(
            "write http:// or https://, the host, and the path before /v1: http://127.0.0.1:8181/catalog",
        ));
    }
    if host.contains('@') {
        // The address is not shown because it may contain a password.
        return Err(Error::invalid(format!("{setting} has a name or password in it, which would be shown"))
            .hint("set lake.catalog_credential or lake.catalog_token instead"));
    }
    Ok(uri.trim_end_matches('/').to_owned())
}
