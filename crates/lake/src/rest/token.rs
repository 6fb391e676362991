//! What a catalog is told of who asks: a token as it was given, or one that is got for a credential and kept until it ends.

use std::time::{Duration, Instant};

use serde_json::Value as Json;
use types::{Error, Kind, Result, name};
use vfs::{Mutex, Rank};

use super::client::escaped;
use super::http::{Answer, Body, Broken, Method, Request, Transport};

/// How a client is known to the catalog.
pub enum Identity {
    Nobody,
    Token(String),
    /// OAuth2's client credentials.
    Client {
        id: String,
        secret: String,
        scope: String,
        token_url: String,
    },
}

pub struct Tokens {
    identity: Identity,
    kept: Mutex<Option<Kept>>,
}

#[derive(Clone)]
struct Kept {
    token: String,
    /// A moment before it ends; `None`: nothing was said.
    until: Option<Instant>,
}

/// A token is not used in the last part of its life.
const LIFE_PERCENT: u32 = 90;

impl Tokens {
    pub fn new(identity: Identity) -> Tokens {
        Tokens { identity, kept: Mutex::new(Rank::new(61, "lake catalog token"), None) }
    }

    /// Whether another one can be had where one is not taken any more.
    pub fn can_renew(&self) -> bool {
        matches!(self.identity, Identity::Client { .. })
    }

    /// Forgets a token that was refused, unless there is another one by now.
    pub fn refuse(&self, token: &str) {
        let mut kept = self.kept.lock();
        if kept.as_ref().is_some_and(|kept| kept.token == token) {
            *kept = None;
        }
    }

    /// The token to ask with. No lock is held while one is got.
    pub fn get(&self, transport: &dyn Transport) -> Result<Option<String>> {
        let (id, secret, scope, token_url) = match &self.identity {
            Identity::Nobody => return Ok(None),
            Identity::Token(token) => return Ok(Some(token.clone())),
            Identity::Client { id, secret, scope, token_url } => (id, secret, scope, token_url),
        };
        let kept = self.kept.lock().clone();
        if let Some(kept) = kept.filter(|kept| kept.until.is_none_or(|until| Instant::now() < until)) {
            return Ok(Some(kept.token));
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
            Ok(answer) => read(&answer, token_url)?,
            Err(Broken::NotSent(why) | Broken::Unknown(why)) => {
                return Err(Error::io(format!("asking {token_url} for a token"), std::io::Error::other(why)));
            }
        };
        let until = got.1.map(|seconds| asked + Duration::from_secs(seconds) * LIFE_PERCENT / 100);
        *self.kept.lock() = Some(Kept { token: got.0.clone(), until });
        Ok(Some(got.0))
    }
}

/// More is not believed.
const SECONDS_MAX: u64 = 365 * 86_400;

/// A token and how many seconds it lives.
fn read(answer: &Answer, url: &str) -> Result<(String, Option<u64>)> {
    let body: Json = serde_json::from_slice(&answer.body).unwrap_or(Json::Null);
    let hint = "see the settings lake.catalog_credential, lake.catalog_scope and lake.catalog_oauth2_uri";
    match answer.status {
        200 => {}
        status @ (500.. | 408 | 429) => {
            let why = std::io::Error::other(format!("answered with {status}"));
            return Err(Error::io(format!("asking {url} for a token"), why));
        }
        status => {
            // OAuth's errors are texts, those of Iceberg objects.
            let said = body["error_description"].as_str().or(body["error"]["message"].as_str());
            let said = said.or(body["error"].as_str()).unwrap_or("it does not say why");
            let said: String = name::printable(said).chars().take(300).collect();
            let message = format!("{url} gives no token for the catalog's credential: {status}, {said}");
            return Err(Error::new(Kind::Forbidden, message).hint(hint));
        }
    }
    let token = body["access_token"].as_str().filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| {
        Error::invalid(format!("{url} answers a request for a token with something else")).hint(hint)
    })?;
    Ok((token.to_owned(), body["expires_in"].as_u64().map(|seconds| seconds.min(SECONDS_MAX))))
}
