//! Keys and certificates of one control plane. They live as long as its directory, so nothing renews them.

use crate::error::{Context, Error, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The certificate authority, and where files go.
#[derive(Debug)]
pub(crate) struct Pki {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate's file and that of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

fn failed(subject: &str) -> impl Fn(rcgen::Error) -> Error {
    let subject = subject.to_owned();
    move |source| Error::Certificate { subject: subject.clone(), source }
}

impl Pki {
    /// Makes a certificate authority, and the key that signs the tokens of ServiceAccounts.
    pub(crate) fn create(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir).on("creating", dir)?;
        let failed = failed("the certificate authority");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, "juneau-controlplane");
        let key = KeyPair::generate().map_err(&failed)?;
        let authority = params.self_signed(&key).map_err(&failed)?;
        let pki = Self { dir: dir.to_owned(), issuer: Issuer::new(params, key) };
        write(&pki.authority(), &authority.pem())?;
        write(&pki.authority_key(), &pki.issuer.key().serialize_pem())?;
        let tokens = KeyPair::generate().map_err(&failed)?;
        write(&pki.token_key(), &tokens.serialize_pem())?;
        write(&pki.token_public_key(), &tokens.public_key_pem())?;
        Ok(pki)
    }

    /// The certificate of the authority.
    pub(crate) fn authority(&self) -> PathBuf {
        self.dir.join("ca.crt")
    }

    /// The key of the authority.
    pub(crate) fn authority_key(&self) -> PathBuf {
        self.dir.join("ca.key")
    }

    /// The key that signs the tokens of ServiceAccounts.
    pub(crate) fn token_key(&self) -> PathBuf {
        self.dir.join("service-accounts.key")
    }

    /// The key that verifies them.
    pub(crate) fn token_public_key(&self) -> PathBuf {
        self.dir.join("service-accounts.pub")
    }

    /// The certificate of a server with these names and addresses.
    pub(crate) fn server(&self, name: &str, names: &[&str], addresses: &[IpAddr]) -> Result<Pair> {
        let failed = failed(name);
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).map_err(&failed)?;
        params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(name, &params)
    }

    /// The certificate by which a client is the user `user` in `group`.
    pub(crate) fn client(&self, file: &str, user: &str, group: Option<&str>) -> Result<Pair> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(file, &params)
    }

    fn sign(&self, file: &str, params: &CertificateParams) -> Result<Pair> {
        let failed = failed(file);
        let key = KeyPair::generate().map_err(&failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(&failed)?;
        let pair =
            Pair { certificate: self.dir.join(format!("{file}.crt")), key: self.dir.join(format!("{file}.key")) };
        write(&pair.certificate, &certificate.pem())?;
        write(&pair.key, &key.serialize_pem())?;
        Ok(pair)
    }
}

/// Writes a file that only its owner can read.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let file = std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).on("writing", path)
}
