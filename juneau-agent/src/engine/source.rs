//! Where objects come from: a directory, or an API server, which is told something as well.

use super::files::Files;
use super::writes::Writer;
use crate::options::{Objects, Options};
use juneau_api::source::client::{configure, polite};
use juneau_api::source::directory::{DirectorySource, Snapshot};
use juneau_api::source::watch::WatchSource;
use juneau_core::model::Problem;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc;

/// A connection to the API server on which nothing was heard for so long is given up. A watch ends by itself before
/// (kube asks for 290 s), so a shorter one would have all nodes begin their watches again more often.
const PATIENCE: Duration = Duration::from_secs(295);

/// Objects cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The manifests cannot be watched.
    #[error("watching {}: {source} (raise fs.inotify.max_user_instances)", directory.display())]
    Watch {
        /// The directory.
        directory: PathBuf,
        /// What the kernel said.
        source: notify::Error,
    },
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {}: {source}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: kube::config::KubeconfigError,
    },
    /// This process is in no Pod.
    #[error("--in-cluster: {0} (run the agent as a Pod with a service account, or give --kubeconfig)")]
    InCluster(#[from] kube::config::InClusterError),
    /// What the configuration says makes no client.
    #[error("the API server's client: {0}")]
    Client(#[from] kube::Error),
}

/// Where objects come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A directory.
    Directory {
        /// Its objects.
        source: Box<DirectorySource>,
        /// Tells when they change.
        files: Files,
    },
    /// An API server.
    Server {
        /// Its objects.
        source: WatchSource,
        /// Tells it what this node did.
        writer: Writer,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory { source, .. } => write!(f, "directory {}", source.path().display()),
            Self::Server { .. } => f.write_str("API server"),
        }
    }
}

impl Source {
    /// Opens what the options name. `changes` gets something whenever there may be something new.
    pub(crate) async fn open(options: &Options, changes: mpsc::Sender<()>) -> Result<Self, SourceError> {
        let config = match &options.objects {
            Objects { manifests: Some(directory), .. } => {
                let files = Files::new(directory, changes)
                    .map_err(|source| SourceError::Watch { directory: directory.clone(), source })?;
                return Ok(Self::Directory { source: Box::new(DirectorySource::new(directory)), files });
            }
            Objects { kubeconfig: Some(path), .. } => {
                let failed = |source| SourceError::Kubeconfig { path: path.clone(), source };
                let file = Kubeconfig::read_from(path).map_err(failed)?;
                Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(failed)?
            }
            Objects { .. } => Config::incluster()?,
        };
        let name = format!("juneau-agent/{} ({})", env!("CARGO_PKG_VERSION"), options.node);
        let client = polite(Client::try_from(configure(config, &name, PATIENCE))?);
        let keep = Duration::from_secs(options.stale_after);
        let source = WatchSource::start(&client, &options.node, keep, move || {
            // A full channel holds an event already; a closed one has nobody to tell.
            let _ = changes.try_send(());
        });
        Ok(Self::Server { source, writer: Writer::start(client, options.node.clone()) })
    }

    /// What exists now, or why that cannot be told.
    pub(super) fn read(&mut self) -> Result<Snapshot, Problem> {
        match self {
            Self::Server { source, .. } => Ok(source.read()),
            Self::Directory { source, .. } => {
                let path = source.path().to_owned();
                source.read().map_err(|error| {
                    Problem::new(
                        format!("directory {}", path.display()),
                        error.to_string(),
                        "make it a directory that the agent may read; what was read before stays in force",
                    )
                })
            }
        }
    }

    /// Tries again to be told of changes where that has failed before.
    pub(super) fn renew_if_lost(&mut self) {
        if let Self::Directory { files, .. } = self {
            files.renew_if_lost();
        }
    }

    /// Makes sure to be told of changes of what is there now.
    pub(super) fn renew(&mut self) {
        if let Self::Directory { files, .. } = self {
            files.renew();
        }
    }

    /// Who tells the API server, if there is one.
    pub(super) const fn writer(&self) -> Option<&Writer> {
        match self {
            Self::Directory { .. } => None,
            Self::Server { writer, .. } => Some(writer),
        }
    }
}
