//! Bearer tokens for requests to a catalog: a configured one, or one obtained for a credential and cached until it expires.

use std::time::{Duration, Instant};

use serde_json::Value as Json;
use types::{Error, Kind, Result, name};
use vfs::{Mutex, Rank};

use super::client::escaped;
use super::http::{Body, Method, Request, Response, Transport, TransportError};

/// The client's identity to the catalog.
pub enum Identity {
    Nobody,
    Token(String),
    /// Client credentials of OAuth2.
    Client {
        id: String,
        secret: String,
        scope: String,
        token_url: String,
    },
}

pub struct Tokens {
    identity: Identity,
    cached: Mutex<Option<CachedToken>>,
}

#[derive(Clone)]
struct CachedToken {
    token: String,
    /// The time after which the token is not used, a little before it expires; `None` if the server told no lifetime.
    until: Option<Instant>,
}

/// Percent of a token's lifetime after which it is not used any more.
const LIFE_PERCENT: u32 = 90;

impl Tokens {
    pub fn new(identity: Identity) -> Tokens {
        Tokens { identity, cached: Mutex::new(Rank::new(61, "lake catalog token"), None) }
    }

    /// Returns true if a refused token can be replaced by a new one.
    pub fn can_renew(&self) -> bool {
        matches!(self.identity, Identity::Client { .. })
    }

    /// Forgets a refused token, unless a newer one is cached already.
    pub fn refuse(&self, token: &str) {
        let mut cached = self.cached.lock();
        if cached.as_ref().is_some_and(|cached| cached.token == token) {
            *cached = None;
        }
    }

    /// Returns the token for a request. Holds no lock while it obtains a new one.
    pub fn get(&self, transport: &dyn Transport) -> Result<Option<String>> {
        let (id, secret, scope, token_url) = match &self.identity {
            Identity::Nobody => return Ok(None),
            Identity::Token(token) => return Ok(Some(token.clone())),
            Identity::Client { id, secret, scope, token_url } => (id, secret, scope, token_url),
        };
        let cached = self.cached.lock().clone();
        if let Some(cached) = cached.filter(|cached| cached.until.is_none_or(|until| Instant::now() < until))
        {
            return Ok(Some(cached.token));
        }
        let mut form = format!("grant_type=client_credentials&client_secret={}", escaped(secret));
        for (key, value) in [("client_id", id), ("scope", scope)] {
            if !value.is_empty() {
                form += &format!("&{key}={}", escaped(value));
            }
        }
        let url = token_url.clone();
        let request = Request {
            method: Method::Post,
            url,
            bearer: None,
            wants_credentials: false,
            body: Some(Body::Form(form)),
        };
        let asked = Instant::now();
        let got = match transport.call(&request) {
            Ok(response) => read(&response, token_url)?,
            Err(TransportError::NotSent(why) | TransportError::Unknown(why)) => {
                return Err(Error::io(format!("asking {token_url} for a token"), std::io::Error::other(why)));
            }
        };
        let until = got.1.map(|seconds| asked + Duration::from_secs(seconds) * LIFE_PERCENT / 100);
        *self.cached.lock() = Some(CachedToken { token: got.0.clone(), until });
        Ok(Some(got.0))
    }
}

/// Seconds of the longest lifetime of a token that is believed.
const SECONDS_MAX: u64 = 365 * 86_400;

/// Parses a response. Returns the token and its lifetime in seconds.
fn read(response: &Response, url: &str) -> Result<(String, Option<u64>)> {
    let body: Json = serde_json::from_slice(&response.body).unwrap_or(Json::Null);
    let hint = "see the settings lake.catalog_credential, lake.catalog_scope and lake.catalog_oauth2_uri";
    match response.status {
        200 => {}
        status @ (500.. | 408 | 429) => {
            let why = std::io::Error::other(format!("answered with {status}"));
            return Err(Error::io(format!("asking {url} for a token"), why));
        }
        status => {
            // An error is a text in OAuth's form and an object in Iceberg's.
            let said = body["error_description"].as_str().or(body["error"]["message"].as_str());
            let said = said.or(body["error"].as_str()).unwrap_or("it does not say why");
            let said: String = name::printable(said).chars().take(300).collect();
            let message = format!("{url} gives no token for the catalog's credential: {status}, {said}");
            return Err(Error::new(Kind::Forbidden, message).hint(hint));
        }
    }
    let token = body["access_token"].as_str().filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| {
        Error::invalid(format!("{url} does not answer a request for a token as expected")).hint(hint)
    })?;
    Ok((token.to_owned(), body["expires_in"].as_u64().map(|seconds| seconds.min(SECONDS_MAX))))
}
