//! TLS for etcd: trusted authorities and this instance's certificate, in PEM. No other authorities
//! are trusted, not even the system's.

use thiserror::Error;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// Why PEM input cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The input is not PEM.
    #[error("{0}: no PEM: {1}")]
    NoPem(String, String),
    /// The input is PEM, but has no item of the expected kind.
    #[error("{0}: it has no {1}")]
    Missing(String, &'static str),
}

/// File name (for errors) and content of a PEM file.
pub type Pem<'a> = (&'a str, &'a [u8]);

/// TLS configuration for `https` endpoints.
#[derive(Clone, Debug)]
pub struct EtcdTls(pub(super) TlsConfig);

impl EtcdTls {
    /// Trusts certificates issued by `authority`. If etcd asks for one, presents the certificate of
    /// `client`, given with its key.
    pub fn new(authority: Pem<'_>, client: Option<(Pem<'_>, Pem<'_>)>) -> Result<Self, TlsError> {
        let client = match client {
            Some((chain, key)) => Some(ClientCert::new_with_certs(&certificates(chain)?, private_key(key)?)),
            None => None,
        };
        let roots = RootCerts::new_with_certs(&certificates(authority)?);
        Ok(Self(TlsConfig::builder().root_certs(roots).client_cert(client).build()))
    }
}

fn items((name, pem): Pem<'_>) -> Result<Vec<PemItem<'static>>, TlsError> {
    let items = parse_pem(pem).collect::<Result<Vec<_>, _>>();
    items.map_err(|error| TlsError::NoPem(name.into(), error.to_string()))
}

fn certificates(pem: Pem<'_>) -> Result<Vec<Certificate<'static>>, TlsError> {
    let certificate =
        |item| if let PemItem::Certificate(certificate) = item { Some(certificate) } else { None };
    let found: Vec<_> = items(pem)?.into_iter().filter_map(certificate).collect();
    if found.is_empty() { Err(TlsError::Missing(pem.0.into(), "certificate")) } else { Ok(found) }
}

fn private_key(pem: Pem<'_>) -> Result<PrivateKey<'static>, TlsError> {
    let key = |item| if let PemItem::PrivateKey(key) = item { Some(key) } else { None };
    items(pem)?.into_iter().find_map(key).ok_or_else(|| TlsError::Missing(pem.0.into(), "private key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_certificate_or_key_error_names_the_file() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap();
        let (certificate, key) = (certificate.pem(), key.serialize_pem());
        let (certificate, key) = (("c.pem", certificate.as_bytes()), ("k.pem", key.as_bytes()));
        assert!(EtcdTls::new(certificate, Some((certificate, key))).is_ok());
        let refused = |authority, client| EtcdTls::new(authority, client).unwrap_err().to_string();
        assert_eq!(refused(key, None), "k.pem: it has no certificate");
        assert_eq!(refused(("e.pem", b""), None), "e.pem: it has no certificate");
        assert_eq!(refused(certificate, Some((certificate, certificate))), "c.pem: it has no private key");
        let broken = ("b.pem", &b"-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n"[..]);
        assert!(refused(broken, None).starts_with("b.pem: no PEM"));
    }
}
