//! Authentication: finds the principal of a request by its key, and decides who is admitted while there are no keys.

use std::net::SocketAddr;

use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, header};
use types::{Micros, Principal};

use crate::failure::{Failure, Result};

/// Returns the secret of a new key: `pk_` and 64 random hexadecimal digits. It is shown once; only its hash ([`hash_of`]) is
/// stored.
pub fn new_secret(random: &dyn vfs::Random) -> String {
    let mut bytes = [0; 32];
    random.fill(&mut bytes);
    bytes.iter().fold(String::from("pk_"), |mut text, byte| {
        text.push_str(&format!("{byte:02x}"));
        text
    })
}

/// Returns the hash of a secret that is stored: BLAKE3. A secret has 256 random bits, so no slow hash is needed.
pub fn hash_of(secret: &str) -> [u8; 32] {
    *blake3::hash(secret.as_bytes()).as_bytes()
}

/// Tells whether a header is one that proxies add. Such a header means that the peer of the connection is not the client. A proxy
/// that adds none, such as nginx with its default settings, cannot be told from a program on this machine.
fn is_forwarded(name: &str) -> bool {
    matches!(name, "forwarded" | "via" | "x-real-ip" | "x-cluster-client-ip" | "x-original-host")
        || ["x-forwarded", "x-envoy-", "cf-", "tailscale-"].iter().any(|start| name.starts_with(start))
        || ["-client-ip", "-connecting-ip"].iter().any(|end| name.ends_with(end))
}

/// Returns true if the client is a program on this machine, as far as a request can show it.
pub fn is_direct(peer: Peer, headers: &HeaderMap) -> bool {
    peer.is_this_machine && forwarding(headers).is_none()
}

/// An authenticated client: its principal and the reason why it was admitted.
#[derive(Clone, Debug)]
pub struct Admitted {
    pub principal: Principal,
    grounds: Grounds,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Grounds {
    /// There was no key yet, and the request came directly from this machine.
    NoKeys,
    /// The client holds the secret of the data directory's owner.
    Owner,
    /// The client holds the key with this hash, made at this time.
    Key { hash: [u8; 32], created: Micros },
}

impl Admitted {
    /// Returns bytes that identify the client. A key of the same name that is made later has another identity.
    pub fn identity(&self) -> [u8; 33] {
        let (kind, hash) = match &self.grounds {
            // Both mean a user of this machine.
            Grounds::NoKeys | Grounds::Owner => (0, [0; 32]),
            Grounds::Key { hash, .. } => (1, *hash),
        };
        let mut identity = [kind; 33];
        identity[1..].copy_from_slice(&hash);
        identity
    }

    /// Returns the time from which on the client may have sent requests: when its key was made.
    pub fn valid_since(&self) -> Micros {
        match &self.grounds {
            Grounds::NoKeys | Grounds::Owner => Micros::MIN,
            Grounds::Key { created, .. } => *created,
        }
    }

    /// Returns true if the client would be admitted again with the same rights. Answers without end are cut once this is false. A
    /// new key of the same name does not count, nor does the key if its scope or tables changed.
    pub fn still_holds(&self, keys: &[engine::ApiKey]) -> bool {
        match &self.grounds {
            Grounds::NoKeys => keys.is_empty(),
            Grounds::Owner => true,
            Grounds::Key { hash, .. } => keys.iter().any(|key| {
                key.hash == *hash && key.scope == self.principal.scope && key.tables == self.principal.tables
            }),
        }
    }
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub address: SocketAddr,
    /// True if the peer is on this machine: it has a loopback address, or the very address that it connected to.
    pub is_this_machine: bool,
}

impl Peer {
    /// Makes the peer at `address`. `called` is the connection's own address on this side.
    pub fn new(address: SocketAddr, called: Option<SocketAddr>) -> Self {
        let ip = address.ip().to_canonical();
        let is_this_machine =
            ip.is_loopback() || called.is_some_and(|called| called.ip().to_canonical() == ip);
        Peer { address, is_this_machine }
    }
}

/// Authenticates a request. `keys` are the keys of the database, `owner` is [`crate::Options::owner_hash`]. Fails with 401 for a
/// missing or unknown key, and with 403 if there are no keys and the request does not come directly from this machine.
pub fn principal(
    keys: &[engine::ApiKey],
    owner: Option<[u8; 32]>,
    peer: Peer,
    request: &Parts,
) -> Result<Admitted> {
    let secret = bearer(&request.headers);
    // `blake3::Hash` compares in constant time.
    let hash = secret.map(|secret| blake3::hash(secret.as_bytes()));
    // A forwarded request is not accepted as the owner's, whatever secret it has.
    if is_direct(peer, &request.headers)
        && owner.is_some_and(|owner| hash == Some(blake3::Hash::from_bytes(owner)))
    {
        return Ok(Admitted { principal: Principal::local(), grounds: Grounds::Owner });
    }
    if keys.is_empty() {
        let principal = admit_without_key(peer.address, request)?;
        return Ok(Admitted { principal, grounds: Grounds::NoKeys });
    }
    let hint = "send `Authorization: Bearer pk_…`; `polynya key create me --scope admin` makes a key, with the server running or not";
    let Some(hash) = hash else {
        let message = if request.headers.contains_key(header::AUTHORIZATION) {
            "the Authorization header holds no bearer key"
        } else {
            "this server requires a key"
        };
        return Err(Failure::unauthorized(message, hint));
    };
    match keys.iter().find(|key| hash == blake3::Hash::from_bytes(key.hash)) {
        Some(key) => Ok(Admitted {
            principal: Principal { name: key.name.clone(), scope: key.scope, tables: key.tables.clone() },
            grounds: Grounds::Key { hash: key.hash, created: key.created },
        }),
        None => Err(Failure::unauthorized("there is no such key", hint)),
    }
}

/// Returns true if `secret` would be accepted as a bearer key. While there are no keys any secret is, because it is not checked.
pub fn is_key(
    keys: &[engine::ApiKey],
    owner: Option<[u8; 32]>,
    peer: Peer,
    headers: &HeaderMap,
    secret: &str,
) -> bool {
    let hash = blake3::hash(secret.as_bytes());
    let is_owner =
        is_direct(peer, headers) && owner.is_some_and(|owner| hash == blake3::Hash::from_bytes(owner));
    is_owner || keys.is_empty() || keys.iter().any(|key| hash == blake3::Hash::from_bytes(key.hash))
}

/// The WebSocket subprotocol that the server speaks. A page's script cannot send `Authorization` with a handshake. It can propose
/// subprotocols, and so pass its key: `new WebSocket(url, ["polynya", "bearer.pk_…"])`.
pub const WEBSOCKET_PROTOCOL: &str = "polynya";
const BEARER_PROTOCOL: &str = "bearer.";

/// Returns true if a request asks for an upgrade to WebSocket.
pub fn opens_websocket(headers: &HeaderMap) -> bool {
    let asked = headers.get_all(header::UPGRADE).iter().filter_map(|value| value.to_str().ok());
    asked.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case("websocket"))
}

/// Returns the secret of `Authorization: Bearer …`, or of the subprotocols of a WebSocket handshake.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    if !headers.contains_key(header::AUTHORIZATION) && opens_websocket(headers) {
        let asked = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
        let mut words = asked.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
        return words.find_map(|word| word.trim().strip_prefix(BEARER_PROTOCOL));
    }
    let (scheme, secret) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

/// Admits a request while there are no keys, if a program on this machine sent it directly. Refuses what a proxy passed on, and
/// requests that a browser makes for another site (recognised by `Origin`, or by a host name that was pointed at this address).
fn admit_without_key(peer: SocketAddr, request: &Parts) -> Result<Principal> {
    let headers = &request.headers;
    let refuse = |message: &str| {
        Err(Failure::forbidden(
            message,
            "while there is no key only direct requests from this machine are answered; make one with `polynya key create me --scope admin`",
        ))
    };
    if !peer.ip().to_canonical().is_loopback() {
        return refuse("the request comes from another machine");
    }
    if let Some(name) = forwarding(headers) {
        return refuse(&format!("the request was forwarded (`{name}`)"));
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(is_local) {
        return refuse("the Host header names another machine");
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    // A link on another site may lead to a page: only the user who follows it sees the page. An `<object>` or a frame is
    // opened like a link too, but whether it loads tells the other site something about the answer, and so does the time that it
    // takes.
    let reads = matches!(request.method, Method::GET | Method::HEAD);
    let opens = text("sec-fetch-mode") == Some("navigate") && text("sec-fetch-dest") == Some("document");
    let follows_link = reads && opens && is_page(request.uri.path());
    if !follows_link && matches!(text("sec-fetch-site"), Some("cross-site" | "same-site")) {
        return refuse("the request was made by another site's page");
    }
    if !follows_link && let Some(origin) = headers.get(header::ORIGIN) {
        let same =
            origin.to_str().ok().and_then(|o| o.strip_prefix("http://")).is_some_and(|o| Some(o) == host);
        if !same {
            return refuse("the request was made by another site's page");
        }
    }
    Ok(Principal::local())
}

/// Returns the first header that shows that a proxy passed the request on.
fn forwarding(headers: &HeaderMap) -> Option<&HeaderName> {
    headers.keys().find(|name| is_forwarded(name.as_str()))
}

/// Returns true if a path is a page for people. The other paths answer programs with data.
fn is_page(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    !["v1", "mcp", "metrics", "iceberg"].contains(&first)
}

/// Returns true if a `Host` header names this machine: `localhost`, `127.0.0.1`, `[::1]`, with or without a port.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    };
    matches!(name.to_ascii_lowercase().as_str(), "localhost" | "127.0.0.1" | "[::1]")
}

#[cfg(test)]
mod tests {
    use types::{Scope, TableSet};

    use super::*;

    fn parts(method: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().method(method).uri("/v1/tables");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    const LOCAL: &str = "127.0.0.1:9";

    fn from(address: &str) -> Peer {
        Peer::new(address.parse().unwrap(), Some("192.0.2.7:8484".parse().unwrap()))
    }

    #[test]
    fn without_keys_only_this_machine_is_let_in() {
        let ask = |peer: &str, method: &str, headers: &[(&str, &str)]| {
            principal(&[], None, from(peer), &parts(method, headers))
                .map(|a| a.principal.name)
                .map_err(|f| f.status().as_u16())
        };
        let host = ("host", "localhost:8484");
        assert_eq!(ask(LOCAL, "GET", &[host]), Ok("local".into()));
        assert_eq!(ask("[::1]:9", "POST", &[("host", "[::1]:8484")]), Ok("local".into()));
        assert_eq!(ask("[::ffff:127.0.0.1]:9", "GET", &[("host", "127.0.0.1")]), Ok("local".into()));
        assert_eq!(ask(LOCAL, "POST", &[host, ("origin", "http://localhost:8484")]), Ok("local".into()));
        for (peer, method, headers) in [
            ("192.0.2.1:9", "GET", &[host][..]),
            (LOCAL, "GET", &[]),
            (LOCAL, "GET", &[("host", "evil.example:8484")]),
            (LOCAL, "GET", &[("host", "localhost.evil.example")]),
            (LOCAL, "GET", &[host, ("x-forwarded-for", "192.0.2.1")]),
            (LOCAL, "GET", &[host, ("via", "1.1 proxy")]),
            (LOCAL, "GET", &[host, ("cf-connecting-ip", "192.0.2.1")]),
            (LOCAL, "GET", &[host, ("true-client-ip", "192.0.2.1")]),
            (LOCAL, "GET", &[host, ("x-forwarded-port", "443")]),
            (LOCAL, "POST", &[host, ("origin", "https://evil.example")]),
            (LOCAL, "DELETE", &[host, ("origin", "null")]),
            (LOCAL, "POST", &[host, ("sec-fetch-site", "cross-site")]),
            (LOCAL, "POST", &[host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]),
            (LOCAL, "GET", &[host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]),
            (LOCAL, "GET", &[host, ("origin", "http://evil.example")]),
            (LOCAL, "GET", &[host, ("origin", "null")]),
        ] {
            assert_eq!(ask(peer, method, headers), Err(403), "{peer} {headers:?}");
        }
    }

    /// A page of another site could load, in an `<object>`, a search whose filter divides by zero if a secret begins with `s`,
    /// and learn from success or failure whether it does.
    #[test]
    fn a_link_of_another_site_leads_to_pages_and_to_no_data() {
        let follow = |path: &str, dest: &str| {
            let mut request = parts(
                "GET",
                &[
                    ("host", "localhost:8484"),
                    ("sec-fetch-site", "cross-site"),
                    ("sec-fetch-mode", "navigate"),
                    ("sec-fetch-dest", dest),
                ],
            );
            request.uri = path.parse().unwrap();
            principal(&[], None, from(LOCAL), &request)
                .map(|a| a.principal.name)
                .map_err(|f| f.status().as_u16())
        };
        for page in ["/_/", "/", "/notes/a", "/health", "/v1x"] {
            assert_eq!(follow(page, "document"), Ok("local".into()), "{page}");
            for dest in ["object", "embed", "iframe", "frame"] {
                assert_eq!(follow(page, dest), Err(403), "{page} {dest}");
            }
        }
        for data in ["/v1/tables/t/search?q=a&filter=x", "/v1", "/metrics", "/mcp", "//v1/tables"] {
            assert_eq!(follow(data, "document"), Err(403), "{data}");
        }
    }

    #[test]
    fn with_a_key_the_key_decides() {
        let secret = "pk_test";
        let key = engine::ApiKey {
            name: "reader".into(),
            hash: hash_of(secret),
            scope: Scope::Read,
            tables: TableSet::Only(vec!["main.a".into()]),
            created: 0,
        };
        let ask = |authorization: &[(&str, &str)]| {
            principal(std::slice::from_ref(&key), None, from("192.0.2.1:9"), &parts("GET", authorization))
        };
        let found = ask(&[("authorization", "bearer pk_test")]).unwrap().principal;
        assert_eq!((found.name.as_str(), found.scope), ("reader", Scope::Read));
        for bad in [&[][..], &[("authorization", "Basic pk_test")], &[("authorization", "Bearer pk_other")]] {
            assert_eq!(ask(bad).unwrap_err().status().as_u16(), 401);
        }
    }

    #[test]
    fn the_owner_of_the_directory_needs_no_key_on_this_machine() {
        let key = engine::ApiKey {
            name: "reader".into(),
            hash: hash_of("pk_test"),
            scope: Scope::Read,
            tables: TableSet::Only(vec![]),
            created: 0,
        };
        let ask = |owner: Option<&str>, peer: &str| {
            let request = parts("GET", &[("authorization", "Bearer pk_owner")]);
            let owner = owner.map(hash_of);
            principal(std::slice::from_ref(&key), owner, from(peer), &request)
                .map(|a| a.principal.scope)
                .map_err(|f| f.status().as_u16())
        };
        assert_eq!(ask(Some("pk_owner"), LOCAL), Ok(Scope::Admin));
        // The server listens on one address of this machine, and the command connects to that address.
        assert_eq!(ask(Some("pk_owner"), "192.0.2.7:9"), Ok(Scope::Admin));
        let request = parts("GET", &[("authorization", "Bearer pk_owner")]);
        let before_keys = principal(&[], Some(hash_of("pk_owner")), from("192.0.2.7:9"), &request).unwrap();
        assert_eq!(before_keys.principal.scope, Scope::Admin);
        assert_eq!(ask(Some("pk_owner"), "192.0.2.1:9"), Err(401));
        let forwarded = [("authorization", "Bearer pk_owner"), ("x-forwarded-for", "198.51.100.1")];
        for keys in [&[][..], std::slice::from_ref(&key)] {
            let owner = Some(hash_of("pk_owner"));
            assert!(principal(keys, owner, from(LOCAL), &parts("GET", &forwarded)).is_err());
        }
        assert_eq!(ask(Some("pk_other"), LOCAL), Err(401));
        assert_eq!(ask(None, LOCAL), Err(401));
    }

    #[test]
    fn a_stream_ends_with_its_key_and_not_with_its_name() {
        let key = |secret: &str, scope: Scope, tables: TableSet| engine::ApiKey {
            name: "reader".into(),
            hash: hash_of(secret),
            scope,
            tables,
            created: 0,
        };
        let first = key("pk_one", Scope::Write, TableSet::All);
        let request = parts("GET", &[("authorization", "Bearer pk_one")]);
        let peer = from("192.0.2.1:9");
        let admitted = principal(std::slice::from_ref(&first), None, peer, &request).unwrap();
        assert!(admitted.still_holds(std::slice::from_ref(&first)));
        for other in [
            key("pk_two", Scope::Write, TableSet::All),
            key("pk_one", Scope::Read, TableSet::All),
            key("pk_one", Scope::Write, TableSet::Only(vec![])),
        ] {
            assert!(!admitted.still_holds(&[other]));
        }
        let request = parts("GET", &[("host", "localhost")]);
        let local = principal(&[], None, from(LOCAL), &request).unwrap();
        assert!(local.still_holds(&[]) && !local.still_holds(&[first]));
    }
}
