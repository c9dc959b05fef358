//! Our images, with stand-ins for the programs: what comes out is what the specification and `deploy/` want.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use flate2::read::GzDecoder;
use juneau_images::ours::{AGENT, Content, KINDS, Kind, OPERATOR};
use juneau_images::source::Source;
use juneau_images::{Architecture, Archive, Image};
use oci_spec::image::{Descriptor, ImageConfiguration, ImageIndex, ImageManifest, MediaType, OciLayout};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const CREATED: u64 = 1_700_000_000;

fn image(kind: Kind) -> Image {
    let source = Source { version: "0.1.0".to_owned(), revision: Some("0123abc".to_owned()), created: CREATED };
    let programs = kind.programs.iter().map(|name| (*name, format!("the program {name}").into_bytes())).collect();
    let licences = vec![("THIRD-PARTY.txt".to_owned(), b"notices".to_vec())];
    let content = Content { programs, licences, sbom: b"{}".to_vec() };
    let reference = format!("ghcr.io/juneau-net/{}:v{}", kind.name, env!("CARGO_PKG_VERSION"));
    kind.image(reference, Architecture::Amd64, &source, content).unwrap()
}

/// The files of an archive, in its order.
fn files(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(bytes);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (String::from_utf8(entry.path_bytes().into_owned()).unwrap(), content)
    });
    entries.collect()
}

/// An archive as somebody who takes it reads it, who trusts no digest and no size.
struct Layout {
    files: BTreeMap<String, Vec<u8>>,
    blobs_read: usize,
}

impl Layout {
    fn open(archive: &Archive) -> Self {
        let files: BTreeMap<_, _> = files(&archive.bytes).into_iter().collect();
        let layout: OciLayout = serde_json::from_slice(&files["oci-layout"]).unwrap();
        assert_eq!(layout.image_layout_version(), "1.0.0");
        Self { files, blobs_read: 0 }
    }

    fn blob(&mut self, descriptor: &Descriptor) -> Vec<u8> {
        let digest = descriptor.digest().to_string();
        let blob = &self.files[&format!("blobs/{}", digest.replace(':', "/"))];
        assert_eq!(digest, sha256sum(blob));
        assert_eq!(descriptor.size(), blob.len() as u64);
        self.blobs_read += 1;
        blob.clone()
    }
}

/// By a program that knows nothing of ours.
fn sha256sum(content: &[u8]) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, content).unwrap();
    let output = Command::new("sha256sum").arg(file.path()).stderr(Stdio::inherit()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    format!("sha256:{}", text.split_whitespace().next().unwrap())
}

#[test]
fn an_archive_is_an_image_layout_whose_digests_are_true() {
    for kind in KINDS {
        let image = image(kind);
        let archive = image.archive().unwrap();
        let mut layout = Layout::open(&archive);
        let index: ImageIndex = serde_json::from_slice(&layout.files["index.json"]).unwrap();
        assert_eq!(index.media_type(), &Some(MediaType::ImageIndex));
        let [described] = index.manifests().as_slice() else { panic!("one image") };
        assert_eq!(described.media_type(), &MediaType::ImageManifest);
        assert_eq!(described.digest().to_string(), archive.digest);
        let platform = described.platform().as_ref().unwrap();
        assert_eq!((platform.os().to_string(), platform.architecture().to_string()), ("linux".into(), "amd64".into()));
        let names = described.annotations().as_ref().unwrap();
        for name in ["org.opencontainers.image.ref.name", "io.containerd.image.name"] {
            assert_eq!(names[name], image.reference);
        }

        let manifest: ImageManifest = serde_json::from_slice(&layout.blob(described)).unwrap();
        assert_eq!(manifest.media_type(), &Some(MediaType::ImageManifest));
        assert_eq!(manifest.schema_version(), 2);
        assert_eq!(manifest.config().media_type(), &MediaType::ImageConfig);
        let configuration: ImageConfiguration = serde_json::from_slice(&layout.blob(manifest.config())).unwrap();
        let [layer] = manifest.layers().as_slice() else { panic!("one layer") };
        assert_eq!(layer.media_type(), &MediaType::ImageLayerGzip);
        assert_eq!(layer.size(), archive.layer as u64);
        let mut unpacked = Vec::new();
        GzDecoder::new(layout.blob(layer).as_slice()).read_to_end(&mut unpacked).unwrap();
        assert_eq!(configuration.rootfs().typ(), "layers");
        assert_eq!(*configuration.rootfs().diff_ids(), [sha256sum(&unpacked)]);
        // Nothing else is in the archive: two directories, the marker, the index, and what was read.
        assert_eq!(layout.files.len(), 4 + layout.blobs_read);

        assert_eq!(configuration.created().as_deref(), Some("2023-11-14T22:13:20Z"));
        let execution = configuration.config().as_ref().unwrap();
        assert_eq!(execution.entrypoint().as_ref().unwrap(), &[format!("/usr/local/bin/{}", kind.name)]);
        let labels = execution.labels().as_ref().unwrap();
        assert_eq!(Some(labels), manifest.annotations().as_ref());
        for (name, value) in [("title", kind.name), ("version", "0.1.0"), ("revision", "0123abc")] {
            assert_eq!(labels[&format!("org.opencontainers.image.{name}")], value);
        }
        assert_eq!(labels["org.opencontainers.image.created"], "2023-11-14T22:13:20Z");
        for name in ["source", "licenses", "description"] {
            assert!(!labels[&format!("org.opencontainers.image.{name}")].is_empty(), "{name}");
        }
        let programs: Vec<_> =
            files(&unpacked).into_iter().filter(|(path, _)| path.starts_with("usr/local/bin/j")).collect();
        assert_eq!(programs.len(), kind.programs.len());
    }
}

#[test]
fn the_same_image_is_the_same_bytes_and_another_is_not() {
    let (one, again) = (image(AGENT), image(AGENT));
    let digest = one.archive().unwrap().digest;
    assert_eq!(one.archive().unwrap().bytes, again.archive().unwrap().bytes);
    type Change = fn(&mut Image);
    let changes: [Change; 6] = [
        |image| image.created += 1,
        |image| image.user = "1:1".to_owned(),
        |image| image.architecture = Architecture::Arm64,
        |image| image.entrypoint.push("run".to_owned()),
        |image| drop(image.annotations.insert("one".to_owned(), "more".to_owned())),
        |image| image.tree.file("one-more", 0o644, "").unwrap(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut other = image(AGENT);
        change(&mut other);
        assert_ne!(other.archive().unwrap().digest, digest, "change {number}");
    }
    // A name is no part of what it names.
    let mut renamed = image(AGENT);
    renamed.reference = "registry.example/agent:v1".to_owned();
    assert_eq!(renamed.archive().unwrap().digest, digest);
    // No calendar has it.
    let mut beyond = image(AGENT);
    beyond.created = u64::MAX;
    assert!(beyond.archive().is_err());
}

/// The Pod template of the only workload in a file of `deploy/base`.
fn pod(file: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/base").join(file);
    let documents: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap()).unwrap();
    let mut pods =
        documents.into_iter().map(|one| one["spec"]["template"]["spec"].clone()).filter(|pod| !pod.is_null());
    let pod = pods.next().unwrap();
    assert!(pods.next().is_none());
    pod
}

#[test]
fn images_have_what_the_manifests_want_of_them() {
    for (kind, file) in [(OPERATOR, "operator.yaml"), (AGENT, "agent.yaml")] {
        let image = image(kind);
        let pod = pod(file);
        let container = &pod["containers"][0];
        assert_eq!(container["image"], image.reference.as_str());
        let program = container["command"][0].as_str().unwrap();
        let found = format!("{}/{program}", image.path);
        assert_eq!(image.tree.content(&found).unwrap(), format!("the program {program}").as_bytes());
        assert_eq!(image.entrypoint, [found.as_str()]);
        let user = container["securityContext"]["runAsUser"].as_u64().unwrap();
        assert_eq!(image.user, format!("{user}:{user}"));
        let users = String::from_utf8(image.tree.content("/etc/passwd").unwrap().to_vec()).unwrap();
        assert!(users.lines().any(|line| line.split(':').nth(2) == Some(&user.to_string())));
        // The root is read-only: what is mounted over has to be there, below what the runtime mounts itself excepted.
        for mount in container["volumeMounts"].as_array().into_iter().flatten() {
            let path = mount["mountPath"].as_str().unwrap();
            assert!(path.starts_with("/sys/") || image.tree.has_directory(path), "{path}");
        }
        for path in ["/proc", "/sys", "/dev", "/tmp", "/run/secrets/kubernetes.io/serviceaccount"] {
            assert!(image.tree.has_directory(path), "{path}");
        }
    }
    // The agent installs the plugin that lies beside it.
    assert!(image(AGENT).tree.content("/usr/local/bin/juneau-cni").is_some());
}
