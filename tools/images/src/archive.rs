//! From an image's files and settings to its archive.
//!
//! Format: the OCI image specification 1.1 (`image-layout.md`, `manifest.md`, `config.md`, `layer.md`).

use crate::tree::{Tree, TreeError, header};
use flate2::{Compression, GzBuilder};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// An image that cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// Its files.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Seconds since 1970 that no calendar has.
    #[error("{seconds} s after 1970 is no date")]
    Created {
        /// The seconds.
        seconds: u64,
    },
    /// A document, the compressed layer or the archive could not be written.
    #[error("the archive cannot be written: {0}")]
    Write(#[from] io::Error),
}

/// A processor, by Go's name for it, as the image specification wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// x86-64.
    Amd64,
    /// AArch64.
    Arm64,
}

impl Architecture {
    /// Of a target's name, if images are made for it.
    #[must_use]
    pub fn of(target: &str) -> Option<Self> {
        match target.split('-').next()? {
            "x86_64" => Some(Self::Amd64),
            "aarch64" => Some(Self::Arm64),
            _ => None,
        }
    }
}

/// What an image is made of. The archive depends on nothing else.
#[derive(Debug, Clone)]
pub struct Image {
    /// Name and tag, as in `ghcr.io/juneau-net/juneau-agent:v0.1.0`.
    pub reference: String,
    /// What its programs run on.
    pub architecture: Architecture,
    /// When it was made, in seconds since 1970; the time of all its files.
    pub created: u64,
    /// Whom it runs as, `uid:gid`.
    pub user: String,
    /// `PATH` within.
    pub path: String,
    /// What it starts.
    pub entrypoint: Vec<String>,
    /// Labels of the configuration, and annotations of the manifest; `org.opencontainers.image.created` is added.
    pub annotations: BTreeMap<String, String>,
    /// Its files.
    pub tree: Tree,
}

/// A tar file with an OCI image layout that holds one image.
#[derive(Debug, Clone)]
pub struct Archive {
    /// The tar file.
    pub bytes: Vec<u8>,
    /// Digest of the manifest, which is the image's.
    pub digest: String,
    /// Bytes of the compressed layer: what a node fetches.
    pub layer: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor<'a> {
    media_type: &'a str,
    digest: String,
    size: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<Platform>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<BTreeMap<&'a str, &'a str>>,
}

#[derive(Serialize)]
struct Platform {
    architecture: Architecture,
    os: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    schema_version: u32,
    media_type: &'a str,
    config: Descriptor<'a>,
    layers: [Descriptor<'a>; 1],
    annotations: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Index<'a> {
    schema_version: u32,
    media_type: &'a str,
    manifests: [Descriptor<'a>; 1],
}

#[derive(Serialize)]
struct Configuration<'a> {
    created: &'a str,
    #[serde(flatten)]
    platform: Platform,
    config: Execution<'a>,
    rootfs: RootFs,
    history: [History<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Execution<'a> {
    user: &'a str,
    env: [String; 1],
    entrypoint: &'a [String],
    working_dir: &'a str,
    labels: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct RootFs {
    r#type: &'static str,
    diff_ids: [String; 1],
}

#[derive(Serialize)]
struct History<'a> {
    created: &'a str,
    created_by: &'a str,
}

/// Blobs by digest, as a layout holds them.
#[derive(Default)]
struct Blobs(BTreeMap<String, Vec<u8>>);

impl Blobs {
    fn add<'a>(&mut self, media_type: &'a str, blob: Vec<u8>) -> Descriptor<'a> {
        let (digest, size) = (digest(&blob), blob.len());
        self.0.insert(digest.clone(), blob);
        Descriptor { media_type, digest, size, platform: None, annotations: None }
    }
}

fn digest(blob: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(blob) {
        // Into a String: it cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn json(document: &impl Serialize) -> Result<Vec<u8>, ImageError> {
    Ok(serde_json::to_vec(document).map_err(io::Error::from)?)
}

/// Seconds since 1970 as RFC 3339 has them.
///
/// # Errors
/// [`ImageError::Created`].
pub fn date(seconds: u64) -> Result<String, ImageError> {
    let failed = || ImageError::Created { seconds };
    let date = i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    date.ok_or_else(failed)?.format(&Rfc3339).map_err(|_| failed())
}

impl Image {
    /// The archive.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn archive(&self) -> Result<Archive, ImageError> {
        self.packed(Compression::best())
    }

    /// The archive, larger and much sooner: for images that are used where they are made.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn quick_archive(&self) -> Result<Archive, ImageError> {
        self.packed(Compression::fast())
    }

    fn packed(&self, compression: Compression) -> Result<Archive, ImageError> {
        let created = date(self.created)?;
        let packed = self.tree.pack(self.created)?;
        // Neither a name nor a time: gzip would keep both.
        let mut gzip = GzBuilder::new().write(Vec::new(), compression);
        gzip.write_all(&packed)?;
        let compressed = gzip.finish()?;
        let layer = compressed.len();

        let mut annotations = self.annotations.clone();
        annotations.insert("org.opencontainers.image.created".to_owned(), created.clone());
        let platform = || Platform { architecture: self.architecture, os: "linux" };
        let configuration = Configuration {
            created: &created,
            platform: platform(),
            config: Execution {
                user: &self.user,
                env: [format!("PATH={}", self.path)],
                entrypoint: &self.entrypoint,
                working_dir: "/",
                labels: &annotations,
            },
            rootfs: RootFs { r#type: "layers", diff_ids: [digest(&packed)] },
            history: [History { created: &created, created_by: "juneau-images" }],
        };
        let mut blobs = Blobs::default();
        let manifest = Manifest {
            schema_version: 2,
            media_type: MANIFEST,
            config: blobs.add(CONFIG, json(&configuration)?),
            layers: [blobs.add(LAYER, compressed)],
            annotations: &annotations,
        };
        let mut described = blobs.add(MANIFEST, json(&manifest)?);
        let digest = described.digest.clone();
        described.platform = Some(platform());
        // The whole name in both: the first is containerd's own, the second what all others look at.
        let names = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];
        described.annotations = Some(names.into_iter().map(|name| (name, self.reference.as_str())).collect());
        let index = Index { schema_version: 2, media_type: INDEX, manifests: [described] };
        let bytes = layout(&json(&index)?, &blobs, self.created)?;
        Ok(Archive { bytes, digest, layer })
    }
}

fn layout(index: &[u8], blobs: &Blobs, time: u64) -> Result<Vec<u8>, ImageError> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut add = |path: &str, content: &[u8]| {
        let (kind, mode) = match path.ends_with('/') {
            true => (tar::EntryType::Directory, 0o755),
            false => (tar::EntryType::Regular, 0o644),
        };
        let mut header = header(kind, mode, content.len(), time);
        header.set_path(path)?;
        header.set_cksum();
        builder.append(&header, content)
    };
    add("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    add("index.json", index)?;
    add("blobs/", &[])?;
    add("blobs/sha256/", &[])?;
    for (digest, blob) in &blobs.0 {
        add(&format!("blobs/{}", digest.replacen(':', "/", 1)), blob)?;
    }
    Ok(builder.into_inner()?)
}
