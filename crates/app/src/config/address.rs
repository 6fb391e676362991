//! Parses the address and port to listen on, in all the forms that people write.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Deserializer, de};

/// The address of a port that is given without one: the loopback interface, like the default.
const THIS_MACHINE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Parses `127.0.0.1:8484`, `[::1]:8484`, `localhost:8484`, `:8484` or `8484`. No other host name is accepted, because a
/// change in the DNS must not move a server to another address. The error is half a sentence that says what is wrong.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let address = match host {
        "" | "localhost" => Some(THIS_MACHINE),
        host => host.trim_start_matches('[').trim_end_matches(']').parse().ok(),
    };
    if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) {
        let number = port.parse().map_err(|_| format!("`{port}` is not a port: ports are 0 to 65535"))?;
        let address =
            address.ok_or_else(|| format!("`{host}` is not a numeric address like 127.0.0.1 or [::1]"))?;
        return Ok(SocketAddr::new(address, number));
    }
    if text.parse::<IpAddr>().is_ok() || text == "localhost" {
        Err(format!("`{text}` has no port"))
    } else {
        Err(format!("`{text}` is not an address and port"))
    }
}

/// Deserializes the value of a settings file, where a port alone may be a number.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum PortOrText {
        Port(u64),
        Text(String),
    }
    let text = match PortOrText::deserialize(deserializer)? {
        PortOrText::Port(port) => port.to_string(),
        PortOrText::Text(text) => text,
    };
    parse(text.trim()).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_this_machine() {
        for (text, address) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("[::1]:8484", "[::1]:8484"),
            ("0.0.0.0:0", "0.0.0.0:0"),
            ("localhost:8484", "127.0.0.1:8484"),
            (":8484", "127.0.0.1:8484"),
            ("8484", "127.0.0.1:8484"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), address);
        }
        for (text, said) in [
            ("127.0.0.1:99999", "`99999` is not a port"),
            ("99999", "`99999` is not a port"),
            (":", "not an address and port"),
            ("127.0.0.1", "has no port"),
            ("localhost", "has no port"),
            ("box:80", "`box` is not a numeric address"),
            ("", "not an address and port"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
