//! The PEM files for TLS: the gateway's certificate and key, and the authorities of client
//! certificates.

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// PEM files that are read when the gateway starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The gateway's certificate, followed by intermediate ones.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// Certificate authorities for clients. If present, clients must show a certificate of one of
    /// them.
    pub ca: Option<PathBuf>,
}

impl TlsFiles {
    /// Checks that the files can be read, and that key and certificate match. The error names the
    /// file and the problem.
    pub fn check(&self) -> Result<(), String> {
        self.read().map(|_| ())
    }

    pub(crate) fn read(&self) -> Result<Arc<ServerConfig>, String> {
        let provider = Arc::new(default_provider());
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| file_error(&self.key, error))?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match &self.ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| file_error(path, error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().map_err(|error| file_error(path, error))?)
            }
        };
        let config =
            builder.with_single_cert(chain, key).map_err(|error| file_error(&self.certificate, error))?;
        Ok(Arc::new(config))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|error| file_error(path, error))?;
    if all.is_empty() { Err(file_error(path, "no certificate in it")) } else { Ok(all) }
}

fn file_error(path: &Path, error: impl Display) -> String {
    format!("{}: {error}", path.display())
}
