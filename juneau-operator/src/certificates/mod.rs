//! The webhook's certificates: made here, kept in a Secret, renewed before they end.
//!
//! Each renewal makes a CA of its own, signs one certificate with it and forgets the CA's key: there is none to steal.
//! The Secret keeps the new CA together with the one before, so replicas that still serve the old certificate stay
//! trusted; a replica serves the new one when the webhook configuration trusts it ([`keep`]).

mod keep;
mod serve;

pub use keep::{Keeper, Step, decide};
pub use serve::{Resolver, tls};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// The Secret's name, unless told otherwise.
pub const SECRET: &str = "webhook-certs";
/// How long a certificate is valid.
pub const LIFETIME: Duration = Duration::from_secs(90 * DAY);
/// It is renewed when less than this is left.
pub const RENEW_BEFORE: Duration = Duration::from_secs(30 * DAY);
/// It is valid from this long before it was made: clocks differ.
const BACKDATE: Duration = Duration::from_secs(DAY);
const DAY: u64 = 86_400;

/// Why there is no certificate to serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A name that cannot stand in a certificate, or no randomness.
    #[error("the certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
    /// Not PEM, not a certificate, or a key that is not of the certificate.
    #[error("the certificate cannot be read: {0}")]
    Read(String),
    /// A time that certificates cannot express.
    #[error("the clock is out of range")]
    Clock,
}

/// A certificate, its key, and who is to be trusted for it. All in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Bundle {
    /// The CA of the certificate, then the one before it.
    pub authorities: String,
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl core::fmt::Debug for Bundle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // The key stays out of logs.
        f.debug_struct("Bundle").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// Why a stored certificate is replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// There is none.
    Missing,
    /// It cannot be used.
    Unusable(String),
    /// It has ended, or ends soon.
    Ends,
    /// It does not name this host.
    Host(String),
}

impl core::fmt::Display for Reason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Missing => f.write_str("there was none"),
            Self::Unusable(why) => write!(f, "the old one cannot be used: {why}"),
            Self::Ends => f.write_str("the old one ends"),
            Self::Host(host) => write!(f, "the old one does not name {host}"),
        }
    }
}

impl Bundle {
    /// Makes a certificate for `hosts` (names or addresses), valid from `now` on.
    ///
    /// # Errors
    /// When a host cannot stand in a certificate.
    pub fn make(hosts: &BTreeSet<String>, now: SystemTime, before: Option<&Self>) -> Result<Self, CertificateError> {
        let seconds = unix(now);
        let start = moment(seconds.saturating_sub(i64::try_from(BACKDATE.as_secs()).unwrap_or_default()))?;
        let end = moment(seconds.saturating_add(i64::try_from(LIFETIME.as_secs()).unwrap_or_default()))?;
        let mut authority = CertificateParams::default();
        authority.not_before = start;
        authority.not_after = end;
        authority.distinguished_name.push(DnType::CommonName, format!("juneau-webhook-ca {seconds}"));
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::DigitalSignature];
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

        let mut leaf = CertificateParams::new(hosts.iter().cloned().collect::<Vec<_>>())?;
        leaf.not_before = start;
        leaf.not_after = end;
        leaf.distinguished_name.push(DnType::CommonName, "juneau-webhook");
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        leaf.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
        leaf.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = leaf.signed_by(&key, &authority)?;

        let mut authorities = authority.pem();
        if let Some(old) = before.and_then(|before| first_pem(&before.authorities)) {
            authorities.push_str(&old);
        }
        Ok(Self { authorities, certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// The certificate with its key, to serve.
    ///
    /// # Errors
    /// When either cannot be read, or they do not belong together.
    pub fn certified(&self) -> Result<CertifiedKey, CertificateError> {
        let read = |error: &dyn core::fmt::Display| CertificateError::Read(error.to_string());
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| read(&error))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|error| read(&error))?;
        CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider()).map_err(|error| read(&error))
    }

    /// When the certificate ends.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn ends(&self) -> Result<SystemTime, CertificateError> {
        self.leaf(|leaf| at(leaf.validity().not_after.timestamp()))
    }

    /// Why this is to be replaced; `None` while it is good.
    #[must_use]
    pub fn fault(&self, hosts: &BTreeSet<String>, now: SystemTime) -> Option<Reason> {
        if let Err(error) = self.certified() {
            return Some(Reason::Unusable(error.to_string()));
        }
        let seen = self.leaf(|leaf| {
            let names = match leaf.subject_alternative_name() {
                Ok(Some(names)) => names.value.general_names.iter().filter_map(host).collect(),
                _ => BTreeSet::new(),
            };
            let validity = leaf.validity();
            (names, at(validity.not_before.timestamp()), at(validity.not_after.timestamp()))
        });
        let (names, starts, ends) = match seen {
            Ok(seen) => seen,
            Err(error) => return Some(Reason::Unusable(error.to_string())),
        };
        if now + RENEW_BEFORE >= ends || now < starts {
            return Some(Reason::Ends);
        }
        match CertificateDer::from_pem_slice(self.authorities.as_bytes()) {
            Ok(authority) => match X509Certificate::from_der(&authority) {
                Ok((_, authority)) if at(authority.validity().not_after.timestamp()) >= ends => {}
                Ok(_) => return Some(Reason::Ends),
                Err(error) => return Some(Reason::Unusable(format!("its CA: {error}"))),
            },
            Err(error) => return Some(Reason::Unusable(format!("its CA: {error}"))),
        }
        hosts.iter().find(|host| !names.contains(*host)).map(|host| Reason::Host(host.clone()))
    }

    /// The names and addresses that the certificate stands for.
    #[must_use]
    pub fn hosts(&self) -> BTreeSet<String> {
        self.leaf(|leaf| match leaf.subject_alternative_name() {
            Ok(Some(names)) => names.value.general_names.iter().filter_map(host).collect(),
            _ => BTreeSet::new(),
        })
        .unwrap_or_default()
    }

    fn leaf<T>(&self, look: impl FnOnce(&X509Certificate<'_>) -> T) -> Result<T, CertificateError> {
        let der = CertificateDer::from_pem_slice(self.certificate.as_bytes())
            .map_err(|error| CertificateError::Read(error.to_string()))?;
        let (_, leaf) = X509Certificate::from_der(&der).map_err(|error| CertificateError::Read(error.to_string()))?;
        Ok(look(&leaf))
    }
}

fn host(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let address: IpAddr = match bytes.len() {
                4 => <[u8; 4]>::try_from(*bytes).ok()?.into(),
                _ => <[u8; 16]>::try_from(*bytes).ok()?.into(),
            };
            Some(address.to_string())
        }
        _ => None,
    }
}

/// The first certificate of a PEM text.
fn first_pem(text: &str) -> Option<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let end = text.find(END)? + END.len();
    let first = text.get(..end)?;
    // What cannot be read is not carried on.
    CertificateDer::from_pem_slice(first.as_bytes()).ok()?;
    Some(format!("{}\n", first.trim_start()))
}

fn unix(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

fn at(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

fn moment(seconds: i64) -> Result<OffsetDateTime, CertificateError> {
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| CertificateError::Clock)
}

#[cfg(test)]
mod tests;
