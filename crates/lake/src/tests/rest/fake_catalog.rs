//! A catalog in memory that can be made to fail. It applies changes with the rules of the catalog for other engines' tables,
//! which are independent of the lake.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use iceberg::metadata::Metadata;
use serde_json::{Value as Json, json};
use sim::Rng;
use types::Kind;

use crate::catalog::{self, NewTable, TableChange, TableMetadata, requirement};
use crate::rest::http::{Body, Method, Request, Response, Transport, TransportError};

pub const URI: &str = "http://catalog.test/base";

/// The fate of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The call is carried out and answered.
    Well,
    /// The call never reaches the catalog, and the sender knows it.
    Refused,
    /// The call never reaches the catalog, and nobody knows it.
    Dropped,
    /// The call is carried out, and the response is lost.
    Lost,
    /// The call is not carried out, and answered with this status.
    Before(u16),
    /// The call is carried out, and answered with this status.
    After(u16),
    /// There is no response, and the call is carried out later, by [`FakeCatalog::deliver`].
    Late,
}

#[derive(Clone, Default)]
pub struct FakeCatalog(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    namespaces: BTreeSet<String>,
    tables: BTreeMap<String, (TableMetadata, String)>,
    versions: u64,
    calls: u64,
    /// The call that fails, counted from 1; true if all later ones fail too; and its fate.
    fault: Option<(u64, bool, Fate)>,
    /// Calls fail at random, one in as many as the number says.
    random: Option<(Rng, u64)>,
    late: VecDeque<Request>,
    /// Fields get other ids when a table is created (`reassigns`), or also with later schemas (`always_reassigns`).
    pub reassigns: bool,
    pub always_reassigns: bool,
    /// The status of the response to a snapshot whose sequence number is taken; 0 means 400.
    pub overtaken: u16,
    endpoints: Option<Vec<String>>,
    /// The valid token, if one is required.
    token: Option<String>,
    tokens_made: u64,
    vends: Option<Vends>,
    pub log: Vec<String>,
}

/// Returns the `config` and `storage-credentials` of responses for a location, or the status of a refusal.
pub type Vends = Box<dyn FnMut(&str) -> std::result::Result<(Json, Json), u16> + Send>;

impl std::fmt::Debug for FakeCatalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("fake")
    }
}

type Reply = (u16, Json);

fn problem(status: u16, kind: &str, message: impl Into<String>) -> Reply {
    (status, json!({ "error": { "code": status, "type": kind, "message": message.into() } }))
}

impl FakeCatalog {
    /// Returns a table's metadata as the catalog tells them.
    pub fn metadata(&self, name: &str) -> Option<Metadata> {
        let state = self.0.lock().unwrap();
        let (table, _) = state.tables.get(name)?;
        Some(Metadata::parse(table.to_json().unwrap().to_string().as_bytes()).unwrap())
    }

    pub fn calls(&self) -> u64 {
        self.0.lock().unwrap().calls
    }

    /// Returns and clears the log of requests.
    pub fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().log)
    }

    /// Makes the call number `call` fail, counted from now, and all later ones if `ends`.
    pub fn fail(&self, call: u64, ends: bool, fate: Fate) {
        let mut state = self.0.lock().unwrap();
        state.calls = 0;
        state.fault = Some((call, ends, fate));
    }

    pub fn fail_at_random(&self, seed: u64, one_in: u64) {
        self.0.lock().unwrap().random = Some((Rng::new(seed), one_in));
    }

    pub fn works_again(&self) {
        let mut state = self.0.lock().unwrap();
        (state.fault, state.random) = (None, None);
    }

    /// Carries out the late requests in the order in which they were sent. Returns their number.
    pub fn deliver(&self) -> usize {
        let mut state = self.0.lock().unwrap();
        let late: Vec<Request> = state.late.drain(..).collect();
        late.iter().for_each(|request| drop(state.respond(request)));
        late.len()
    }

    pub fn reassigns_ids(&self, always: bool) {
        let mut state = self.0.lock().unwrap();
        (state.reassigns, state.always_reassigns) = (true, always);
    }

    /// Sets the status of the response to a snapshot whose sequence number is taken: catalogs differ in that.
    pub fn answers_overtaken_with(&self, status: u16) {
        self.0.lock().unwrap().overtaken = status;
    }

    pub fn offers(&self, endpoints: &[&str]) {
        self.0.lock().unwrap().endpoints = Some(endpoints.iter().map(|e| (*e).to_owned()).collect());
    }

    /// Requires a new token from now on. It is handed out for `me:secret`.
    pub fn wants_a_new_token(&self) {
        let mut state = self.0.lock().unwrap();
        state.tokens_made += 1;
        state.token = Some(format!("token-{}", state.tokens_made));
    }

    /// Hands out credentials from now on, to requests that ask for them.
    pub fn vends(&self, vends: Vends) {
        self.0.lock().unwrap().vends = Some(vends);
    }

    /// Changes a table as another program would. Panics if a change does not fit.
    pub fn change(&self, name: &str, updates: &[Json]) {
        let mut state = self.0.lock().unwrap();
        let done = state.commit(name, &json!({ "requirements": [], "updates": updates }));
        assert_eq!(done.0, 200, "{}", done.1);
    }

    pub fn drop_table(&self, name: &str) {
        self.0.lock().unwrap().tables.remove(name).unwrap();
    }

    pub fn respond(&self, request: &Request) -> std::result::Result<Response, TransportError> {
        let mut state = self.0.lock().unwrap();
        state.calls += 1;
        let call = state.calls;
        let mut fate = match state.fault {
            Some((at, ends, fate)) if call == at || ends && call > at => fate,
            _ => Fate::Well,
        };
        if let Some((rng, one_in)) = &mut state.random
            && rng.below(*one_in) == 0
        {
            let all = [
                Fate::Refused,
                Fate::Dropped,
                Fate::Lost,
                Fate::Late,
                Fate::Before(500),
                Fate::Before(503),
                Fate::After(500),
                Fate::After(504),
                Fate::Before(429),
            ];
            fate = all[rng.below(all.len() as u64) as usize];
        }
        // A GET has no effect, so that it is never late.
        if fate == Fate::Late && request.method == Method::Get {
            fate = Fate::Dropped;
        }
        let told = |(status, body): Reply| Ok(Response { status, body: Bytes::from(body.to_string()) });
        let nothing = |status| Ok(Response { status, body: Bytes::new() });
        match fate {
            Fate::Well => told(state.respond(request)),
            Fate::Refused => Err(TransportError::NotSent("connection refused".into())),
            Fate::Dropped => Err(TransportError::Unknown("no answer within 30 s".into())),
            Fate::Before(status) => nothing(status),
            Fate::Lost => {
                state.respond(request);
                Err(TransportError::Unknown("the connection was closed".into()))
            }
            Fate::After(status) => {
                state.respond(request);
                nothing(status)
            }
            Fate::Late => {
                state.late.push_back(request.clone());
                Err(TransportError::Unknown("no answer within 30 s".into()))
            }
        }
    }
}

impl Transport for FakeCatalog {
    fn call(&self, request: &Request) -> std::result::Result<Response, TransportError> {
        self.respond(request)
    }
}

impl State {
    fn respond(&mut self, request: &Request) -> Reply {
        let body: Json = match &request.body {
            Some(Body::Json(bytes)) => serde_json::from_slice(bytes).unwrap(),
            _ => Json::Null,
        };
        let rest = request.url.split_once("/v1/").map_or("", |(_, rest)| rest);
        let path = rest.split('?').next().unwrap_or_default();
        let method = match request.method {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Delete => "DELETE",
        };
        let wants = if request.wants_credentials { ", with credentials" } else { "" };
        self.log.push(format!("{method} {rest}{wants}"));
        if path == "oauth/tokens" {
            return self.tokens(request);
        }
        if self.token.is_some() && request.bearer != self.token {
            return problem(401, "NotAuthorizedException", "no such token");
        }
        if path == "config" {
            let overrides = json!({ "prefix": "p" });
            return (200, json!({ "defaults": {}, "overrides": overrides, "endpoints": self.endpoints }));
        }
        let parts: Vec<&str> = path.split('/').collect();
        match (request.method, &parts[..]) {
            (Method::Post, ["p", "namespaces"]) => {
                let namespace = body["namespace"][0].as_str().unwrap().to_owned();
                if self.namespaces.insert(namespace) {
                    (200, body)
                } else {
                    problem(409, "AlreadyExistsException", "it is there")
                }
            }
            (Method::Get, ["p", "namespaces", namespace]) => {
                if self.namespaces.contains(*namespace) {
                    (200, json!({ "namespace": [namespace] }))
                } else {
                    problem(404, "NoSuchNamespaceException", "there is none")
                }
            }
            (Method::Post, ["p", "namespaces", namespace, "tables"]) => self.create(namespace, &body),
            (method, ["p", "namespaces", namespace, "tables", table]) => {
                let name = format!("{namespace}.{table}");
                if !self.tables.contains_key(&name) {
                    return problem(404, "NoSuchTableException", "there is none");
                }
                match method {
                    Method::Get => match self.vended(request, &name) {
                        Ok((config, storage)) => {
                            let (status, mut told) = self.table_response(&name);
                            (told["config"], told["storage-credentials"]) = (config, storage);
                            (status, told)
                        }
                        Err(status) => problem(status, "ServiceFailureException", "no credentials today"),
                    },
                    Method::Post => self.commit(&name, &body),
                    Method::Delete => {
                        self.tables.remove(&name);
                        (204, Json::Null)
                    }
                }
            }
            (Method::Get, ["p", "namespaces", namespace, "tables", table, "credentials"]) => {
                match self.vended(request, &format!("{namespace}.{table}")) {
                    Ok((_, storage)) => (200, json!({ "storage-credentials": storage })),
                    Err(status) => problem(status, "ServiceFailureException", "no credentials today"),
                }
            }
            _ => (404, Json::String("no page of this name".into())),
        }
    }

    fn vended(&mut self, request: &Request, name: &str) -> std::result::Result<(Json, Json), u16> {
        match (&mut self.vends, self.tables.get(name)) {
            (Some(vends), Some((table, _))) if request.wants_credentials => vends(&table.location),
            _ => Ok((json!({}), Json::Null)),
        }
    }

    fn tokens(&mut self, request: &Request) -> Reply {
        let Some(Body::Form(form)) = &request.body else { panic!("no form") };
        assert!(request.bearer.is_none(), "a token is not asked for with a token");
        let fits = form.contains("client_id=me") && form.contains("client_secret=secret%26%2B");
        if fits && form.contains("grant_type=client_credentials") && form.contains("scope=catalog") {
            (200, json!({ "access_token": self.token, "token_type": "bearer", "expires_in": 3600 }))
        } else {
            (401, json!({ "error": "invalid_client", "error_description": "who are you?" }))
        }
    }

    fn table_response(&self, name: &str) -> Reply {
        let (table, location) = &self.tables[name];
        (200, json!({ "metadata-location": location, "metadata": table.to_json().unwrap(), "config": {} }))
    }

    fn put(&mut self, name: &str, table: TableMetadata) -> Reply {
        self.versions += 1;
        let location = format!("{}/metadata/{:05}-x.metadata.json", table.location, self.versions);
        self.tables.insert(name.to_owned(), (table, location));
        self.table_response(name)
    }

    fn create(&mut self, namespace: &str, body: &Json) -> Reply {
        let name = format!("{namespace}.{}", body["name"].as_str().unwrap());
        if !self.namespaces.contains(namespace) {
            return problem(404, "NoSuchNamespaceException", "there is none");
        }
        if self.tables.contains_key(&name) {
            return problem(409, "AlreadyExistsException", "it is there");
        }
        let wanted = NewTable {
            schema: &body["schema"],
            partition_spec: &body["partition-spec"],
            write_order: &body["write-order"],
            properties: catalog::string_map(&body["properties"], "a property").unwrap(),
        };
        let uuid = format!("00000000-0000-4000-8000-{:012}", self.versions + 1);
        let mut table = catalog::create(wanted, &uuid, body["location"].as_str().unwrap(), 1).unwrap();
        if self.reassigns {
            table.schemas = table.schemas.iter().map(other_ids).collect();
            table.last_column_id += 1;
        }
        self.put(&name, table)
    }

    fn commit(&mut self, name: &str, body: &Json) -> Reply {
        let (table, location) = self.tables[name].clone();
        let list = |key: &str| body[key].as_array().unwrap().clone();
        if let Err(error) = requirement::check(&list("requirements"), &table) {
            return match error.kind() {
                Kind::Conflict => problem(409, "CommitFailedException", error.to_string()),
                _ => problem(400, "BadRequestException", error.to_string()),
            };
        }
        let mut updates = list("updates");
        for update in
            updates.iter_mut().filter(|update| self.always_reassigns && update["action"] == "add-schema")
        {
            update["schema"] = other_ids(&update["schema"]);
            update["last-column-id"] = Json::Null;
        }
        let mut change = TableChange::of(table, 1);
        if let Err(error) = change.apply_all(&updates) {
            let is_overtaken = error.to_string().contains("sequence number") && self.overtaken != 0;
            let status = if is_overtaken { self.overtaken } else { 400 };
            return problem(status, "BadRequestException", error.to_string());
        }
        match change.finish(Some(&location)) {
            Ok(None) => self.table_response(name),
            Ok(Some(changed)) => self.put(name, changed.table),
            Err(error) => problem(400, "BadRequestException", error.to_string()),
        }
    }
}

/// Returns a schema in which each field has the next id.
fn other_ids(schema: &Json) -> Json {
    let mut schema = schema.clone();
    for field in schema["fields"].as_array_mut().unwrap() {
        field["id"] = json!(field["id"].as_i64().unwrap() + 1);
    }
    if let Json::Object(schema) = &mut schema {
        schema.remove("identifier-field-ids");
    }
    schema
}
