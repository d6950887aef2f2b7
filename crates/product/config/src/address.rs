//! Socket addresses in files and on the command line: `127.0.0.1:7400`, `localhost:7400`.

use crate::error::ConfigError;
use serde::{Deserialize, Deserializer};
use std::net::{SocketAddr, SocketAddrV4, ToSocketAddrs};

/// Parses an IPv4 address or a host name, with a port. A host name is resolved.
pub fn parse_v4(text: &str) -> Result<SocketAddrV4, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let found = text.to_socket_addrs().map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => {
            format!("{text:?} is not an address such as 127.0.0.1:7400 or localhost:7400")
        }
        _ => format!("{text:?}: the host name cannot be resolved ({error})"),
    })?;
    let v4 = |address| if let SocketAddr::V4(address) = address { Some(address) } else { None };
    found.into_iter().find_map(v4).ok_or_else(|| format!("{text:?} has no IPv4 address"))
}

/// The comma-separated addresses in an environment variable; empty if the variable is empty or not
/// set.
pub fn of_environment(variable: &str) -> Result<Vec<SocketAddrV4>, String> {
    let Ok(text) = std::env::var(variable) else { return Ok(Vec::new()) };
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(|word| parse_v4(word).map_err(|error| format!("{variable}: {error}"))).collect()
}

/// Parses an address with a port; an IPv6 address must be numeric.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    text.parse().or_else(|_| parse_v4(text).map(SocketAddr::V4))
}

/// Why an address cannot be bound, and what to do.
pub fn bind_reason(error: &std::io::Error) -> String {
    use std::io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
    let advice = match error.kind() {
        AddrInUse => "another process uses this port: stop it, or choose another port",
        AddrNotAvailable => "no interface of this host has this address: `ip address` lists them",
        PermissionDenied => "ports below 1024 need root: choose another port",
        _ => return error.to_string(),
    };
    format!("{error}; {advice}")
}

/// Makes the error of a role that cannot bind its socket.
pub fn bind_error(what: &str, address: SocketAddrV4) -> impl Fn(std::io::Error) -> ConfigError {
    let what = what.to_owned();
    move |error| {
        let reason = bind_reason(&error);
        ConfigError::new(format_args!("cannot bind {what} to {address}: {reason}"))
    }
}

/// Deserializes one address; for `#[serde(deserialize_with)]`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddrV4, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_v4(&text).map_err(serde::de::Error::custom)
}

/// Deserializes one address or a list; for `#[serde(deserialize_with)]`.
pub fn deserialize_some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SocketAddrV4>, D::Error> {
    struct Some;
    impl<'de> serde::de::Visitor<'de> for Some {
        type Value = Vec<String>;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("an address like 127.0.0.1:7400, or a list of them")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Vec<String>, E> {
            Ok(vec![text.to_owned()])
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, items: A) -> Result<Vec<String>, A::Error> {
            Vec::deserialize(serde::de::value::SeqAccessDeserializer::new(items))
        }
    }
    let texts = deserializer.deserialize_any(Some)?;
    texts.iter().map(|text| parse_v4(text).map_err(serde::de::Error::custom)).collect()
}

/// For serde: an optional address, also of IPv6.
pub fn deserialize_optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).map(Some).map_err(serde::de::Error::custom)
}

/// For serde: an address that may be missing.
pub fn deserialize_optional_v4<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddrV4>, D::Error> {
    deserialize(deserializer).map(Some)
}

/// For serde: a list of addresses.
pub fn deserialize_all<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SocketAddrV4>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| parse_v4(text).map_err(serde::de::Error::custom)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_digits_and_host_names() {
        assert_eq!(parse_v4("127.20.255.1:7400"), Ok("127.20.255.1:7400".parse().unwrap()));
        assert_eq!(parse_v4("localhost:7400"), Ok("127.0.0.1:7400".parse().unwrap()));
        assert_eq!(parse("[::1]:6379"), Ok("[::1]:6379".parse().unwrap()));
        assert_eq!(parse("localhost:0"), Ok("127.0.0.1:0".parse().unwrap()));
    }

    #[test]
    fn errors_show_what_an_address_looks_like() {
        for text in
            ["", "localhost", ":", "127.0.0.1", "localhost:", "localhost:65536", "localhost:x", "6379"]
        {
            let error = parse(text).unwrap_err();
            assert!(
                error.contains("localhost:7400") || error.contains("cannot be resolved"),
                "{text:?}: {error}"
            );
            assert!(!error.contains('\n'));
        }
    }
}
