//! Addresses as people write them: `127.0.0.1:7400`, `localhost:7400`.

use crate::error::ConfigError;
use serde::{Deserialize, Deserializer};
use std::net::{SocketAddr, SocketAddrV4, ToSocketAddrs};

/// An IPv4 address and a port; a name is looked up.
pub fn parse_v4(text: &str) -> Result<SocketAddrV4, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let found = text.to_socket_addrs().map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => format!("{text:?} is not like 127.0.0.1:7400 or localhost:7400"),
        _ => format!("{text:?} names no host that is known here ({error})"),
    })?;
    let v4 = |address| if let SocketAddr::V4(address) = address { Some(address) } else { None };
    found.into_iter().find_map(v4).ok_or_else(|| format!("{text:?} has no IPv4 address"))
}

/// The addresses in a variable of the environment, with commas between them; none if it is empty or not set.
pub fn of_environment(variable: &str) -> Result<Vec<SocketAddrV4>, String> {
    let Ok(text) = std::env::var(variable) else { return Ok(Vec::new()) };
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(|word| parse_v4(word).map_err(|error| format!("{variable}: {error}"))).collect()
}

/// An address and a port, of IPv6, too, if it is written in digits.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    text.parse().or_else(|_| parse_v4(text).map(SocketAddr::V4))
}

/// Why an address cannot be bound, and what to do.
pub fn bind_reason(error: &std::io::Error) -> String {
    use std::io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
    let advice = match error.kind() {
        AddrInUse => "another process has this port: stop it, or choose another port",
        AddrNotAvailable => {
            "no interface of this host has this address: `ip address` shows those that there are"
        }
        PermissionDenied => "ports below 1024 need root: choose another port",
        _ => return error.to_string(),
    };
    format!("{error}; {advice}")
}

/// Binds a UDP socket of a role.
pub fn bind_error(what: &str, address: SocketAddrV4) -> impl Fn(std::io::Error) -> ConfigError {
    let what = what.to_owned();
    move |error| {
        let reason = bind_reason(&error);
        ConfigError::new(format_args!("cannot bind {what} to {address}: {reason}"))
    }
}

/// A field of a configuration file.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddrV4, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_v4(&text).map_err(serde::de::Error::custom)
}

/// One, or a list of them.
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

/// A field that may be absent, of IPv6, too.
pub fn deserialize_optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).map(Some).map_err(serde::de::Error::custom)
}

/// A list of them.
pub fn deserialize_all<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SocketAddrV4>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| parse_v4(text).map_err(serde::de::Error::custom)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_digits_are_addresses() {
        assert_eq!(parse_v4("127.20.255.1:7400"), Ok("127.20.255.1:7400".parse().unwrap()));
        assert_eq!(parse_v4("localhost:7400"), Ok("127.0.0.1:7400".parse().unwrap()));
        assert_eq!(parse("[::1]:6379"), Ok("[::1]:6379".parse().unwrap()));
        assert_eq!(parse("localhost:0"), Ok("127.0.0.1:0".parse().unwrap()));
    }

    #[test]
    fn what_is_no_address_says_how_one_looks() {
        for text in
            ["", "localhost", ":", "127.0.0.1", "localhost:", "localhost:65536", "localhost:x", "6379"]
        {
            let error = parse(text).unwrap_err();
            assert!(error.contains("localhost:7400") || error.contains("no host"), "{text:?}: {error}");
            assert!(!error.contains('\n'));
        }
    }
}
