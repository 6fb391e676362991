//! Sends requests over HTTP. The callers see requests and responses, and for a request without a response, whether it may have
//! been carried out.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::redirect;
use tokio::runtime::Runtime;
use types::{Error, Result};

/// Bytes of the largest response that is read; real metadata are far smaller.
const ANSWER_BYTES_MAX: usize = 256 << 20;
const CONNECT_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Delete,
}

#[derive(Clone)]
pub struct Request {
    pub method: Method,
    pub url: String,
    /// A bearer token. Never shown.
    pub bearer: Option<String>,
    /// True if the response is to contain credentials for the table's files.
    pub wants_credentials: bool,
    pub body: Option<Body>,
}

#[derive(Clone)]
pub enum Body {
    Json(Bytes),
    /// The fields of a form. Never shown, since they contain a secret.
    Form(String),
}

/// A response. Its body may contain secrets and is never shown.
pub struct Response {
    pub status: u16,
    pub body: Bytes,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} bytes", self.status, self.body.len())
    }
}

/// A request without a response.
#[derive(Debug)]
pub enum TransportError {
    /// The request was not sent.
    NotSent(String),
    /// The request may have been carried out, or may still be.
    Unknown(String),
}

/// Carries requests.
pub trait Transport: Send + Sync + fmt::Debug {
    fn call(&self, request: &Request) -> std::result::Result<Response, TransportError>;
}

/// HTTP/1.1 or 2, with TLS for `https`. Never follows a redirection, which could send a token to an unknown server.
pub struct Http {
    network: Network,
    client: reqwest::Client,
    call_max: Duration,
}

/// The runtime that runs the calls. It is shut down without waiting, because it may be dropped in any thread.
struct Network(Option<Runtime>);

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Http")
    }
}

impl Http {
    /// Creates the client. Every call ends within `call_max`.
    pub fn new(call_max: Duration) -> Result<Http> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(2)
            .thread_name("pn-rest")
            .enable_all()
            .build()
            .map_err(|e| Error::io("starting the thread of the catalog's client", e))?;
        let client = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_MAX.min(call_max))
            .user_agent(concat!("polynya/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| Error::internal(format!("the catalog's client cannot be made: {}", chain(&e))))?;
        Ok(Http { network: Network(Some(runtime)), client, call_max })
    }

    async fn send(&self, request: &Request) -> std::result::Result<Response, TransportError> {
        let method = match request.method {
            Method::Get => reqwest::Method::GET,
            Method::Post => reqwest::Method::POST,
            Method::Delete => reqwest::Method::DELETE,
        };
        let mut building = self.client.request(method, &request.url).header("accept", "application/json");
        if request.wants_credentials {
            building = building.header("x-iceberg-access-delegation", "vended-credentials");
        }
        if let Some(token) = &request.bearer {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
                TransportError::NotSent("the token has characters that no header may have".into())
            })?;
            value.set_sensitive(true);
            building = building.header(AUTHORIZATION, value);
        }
        building = match &request.body {
            None => building,
            Some(Body::Json(bytes)) => building.header(CONTENT_TYPE, "application/json").body(bytes.clone()),
            Some(Body::Form(text)) => {
                building.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(text.clone())
            }
        };
        let broken = |e: reqwest::Error| {
            let never_sent = e.is_connect() || e.is_builder();
            let text = chain(&e.without_url());
            if never_sent { TransportError::NotSent(text) } else { TransportError::Unknown(text) }
        };
        let mut response = building.send().await.map_err(broken)?;
        let status = response.status().as_u16();
        let mut body = BytesMut::new();
        // The request was answered, but the response is incomplete.
        while let Some(chunk) =
            response.chunk().await.map_err(|e| TransportError::Unknown(chain(&e.without_url())))?
        {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(TransportError::Unknown(format!(
                    "the answer is larger than {ANSWER_BYTES_MAX} bytes"
                )));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Response { status, body: body.freeze() })
    }
}

impl Transport for Http {
    fn call(&self, request: &Request) -> std::result::Result<Response, TransportError> {
        let limited = async { tokio::time::timeout(self.call_max, self.send(request)).await };
        match self.network.0.as_ref().map(|runtime| runtime.block_on(limited)) {
            Some(Ok(answer)) => answer,
            Some(Err(_)) | None => {
                Err(TransportError::Unknown(format!("no answer within {} s", self.call_max.as_secs_f32())))
            }
        }
    }
}

/// Returns an error's text with those of its causes, each text once.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            text += &format!(": {said}");
        }
        source = cause.source();
    }
    text
}
