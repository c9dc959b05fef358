//! Which certificate a handshake gets: replaced while the listener stays open.

use super::{Bundle, CertificateError};
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::{Arc, PoisonError, RwLock};

/// The certificate in use. Connections that are open keep theirs.
#[derive(Debug, Default)]
pub struct Resolver(RwLock<Option<(Bundle, Arc<CertifiedKey>)>>);

impl Resolver {
    /// Serves this one from the next handshake on.
    ///
    /// # Errors
    /// When it cannot be used; what was served before stays.
    pub fn serve(&self, bundle: Bundle) -> Result<(), CertificateError> {
        let key = Arc::new(bundle.certified()?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some((bundle, key));
        Ok(())
    }

    /// The one that is served.
    #[must_use]
    pub fn served(&self) -> Option<Bundle> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(bundle, _)| bundle.clone())
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(_, key)| Arc::clone(key))
    }
}

/// A TLS server that asks `resolver` at each handshake, and speaks HTTP/2 if it is told to.
///
/// # Errors
/// Never with the ciphers that come with this program.
pub fn tls(resolver: Arc<Resolver>, http2: bool) -> Result<ServerConfig, CertificateError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| CertificateError::Read(error.to_string()))?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if http2 {
        config.alpn_protocols.insert(0, b"h2".to_vec());
    }
    Ok(config)
}
