//! The images of this repository: what is where in them.

use crate::archive::{Architecture, Image};
use crate::source::Source;
use crate::tree::{Tree, TreeError};
use std::collections::BTreeMap;

/// Where programs are, and `PATH` within.
pub const PROGRAMS: &str = "usr/local/bin";

/// An image: its name, what it holds and what it may weigh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// The image's name, and that of its main program.
    pub name: &'static str,
    /// All its programs, each the only one of a package of that name.
    pub programs: &'static [&'static str],
    /// One line about it.
    pub description: &'static str,
    /// `uid:gid`.
    user: &'static str,
    /// Directories that are mounted over, so that the root may be read-only from the beginning.
    mounts: &'static [&'static str],
    /// SPDX expression of what is ours and of the libraries in C. The crates' are in the SBOM.
    licences: &'static str,
    /// Bytes that the files and the archive may have at most.
    pub goal: usize,
}

/// The operator.
pub const OPERATOR: Kind = Kind {
    name: "juneau-operator",
    programs: &["juneau-operator"],
    description: "Juneau's operator: from what exists to what shall be",
    user: "65532:65532",
    mounts: &[],
    licences: "(Apache-2.0 OR MIT) AND LGPL-2.1-or-later",
    goal: 25_000_000,
};

/// The agent, with the CNI plugin that it installs.
pub const AGENT: Kind = Kind {
    name: "juneau-agent",
    programs: &["juneau-agent", "juneau-cni"],
    description: "Juneau's node daemon, with the CNI plugin that it installs",
    user: "0:0",
    mounts: &["host/cgroup", "host/cni/bin", "host/cni/net.d", "host/sysctl/net", "run/juneau", "run/netns"],
    licences: "(Apache-2.0 OR MIT) AND (GPL-2.0-only OR BSD-2-Clause) AND (LGPL-2.1-only OR BSD-2-Clause) AND \
               (LGPL-3.0-or-later OR GPL-2.0-or-later) AND LGPL-2.1-or-later AND Zlib",
    goal: 30_000_000,
};

/// All images.
pub const KINDS: [Kind; 2] = [OPERATOR, AGENT];

/// What goes into an image beside what its kind says.
#[derive(Debug, Clone)]
pub struct Content {
    /// The program of each of the kind's names.
    pub programs: BTreeMap<&'static str, Vec<u8>>,
    /// Our licences, and those of others: names and texts.
    pub licences: Vec<(String, Vec<u8>)>,
    /// The SBOM.
    pub sbom: Vec<u8>,
}

impl Kind {
    /// The image, under this reference.
    ///
    /// # Errors
    /// [`TreeError`], when a licence has the name of another or of no file.
    pub fn image(
        &self,
        reference: String,
        architecture: Architecture,
        source: &Source,
        content: Content,
    ) -> Result<Image, TreeError> {
        let mut tree = Tree::default();
        // Who runs here, and where a resolver looks should it be asked for a name.
        tree.file("etc/passwd", 0o644, "root:x:0:0::/:/sbin/nologin\nnonroot:x:65532:65532::/:/sbin/nologin\n")?;
        tree.file("etc/group", 0o644, "root:x:0:\nnonroot:x:65532:\n")?;
        tree.file("etc/nsswitch.conf", 0o644, "hosts: files dns\n")?;
        // The runtime mounts over these; /var/run is where Kubernetes puts tokens, and runtimes have namespaces.
        for path in ["dev", "proc", "sys", "run/secrets/kubernetes.io/serviceaccount"] {
            tree.directory(path, 0o755)?;
        }
        tree.link("var/run", "../run")?;
        tree.directory("tmp", 0o1777)?;
        for path in self.mounts {
            tree.directory(path, 0o755)?;
        }
        for (name, program) in content.programs {
            tree.file(&format!("{PROGRAMS}/{name}"), 0o755, program)?;
        }
        for (name, text) in content.licences {
            tree.file(&format!("usr/share/licenses/{}/{name}", self.name), 0o644, text)?;
        }
        tree.file(&format!("usr/share/sbom/{}.cdx.json", self.name), 0o644, content.sbom)?;
        Ok(Image {
            reference,
            architecture,
            created: source.created,
            user: self.user.to_owned(),
            path: format!("/{PROGRAMS}"),
            entrypoint: vec![format!("/{PROGRAMS}/{}", self.name)],
            annotations: self.annotations(source),
            tree,
        })
    }

    fn annotations(&self, source: &Source) -> BTreeMap<String, String> {
        let mut said = vec![
            ("title", self.name),
            ("description", self.description),
            ("version", &source.version),
            ("source", env!("CARGO_PKG_REPOSITORY")),
            ("licenses", self.licences),
            ("vendor", env!("CARGO_PKG_AUTHORS")),
        ];
        said.extend(source.revision.as_deref().map(|revision| ("revision", revision)));
        said.into_iter().map(|(name, value)| (format!("org.opencontainers.image.{name}"), value.to_owned())).collect()
    }
}
