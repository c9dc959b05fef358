//! The programs of Kubernetes: found where `KUBEBUILDER_ASSETS` says, or else built once from this folder's Go module
//! into the cache of the user. `etcd` is Debian's.

mod go;

use crate::error::{Context, Error, Result};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The Go module that the programs are built from.
const MODULE: &str = include_str!("../go.mod");

/// Changes whenever cached programs must be built anew though their version stays.
const RECIPE: &str = "1";

/// A program of Kubernetes that is built here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The API server.
    ApiServer,
    /// Kubernetes' own controllers: ServiceAccounts, garbage, Deployments and so on.
    ControllerManager,
    /// What gives Pods their nodes.
    Scheduler,
    /// The client.
    Kubectl,
}

impl Program {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ApiServer, Self::ControllerManager, Self::Scheduler, Self::Kubectl];

    /// The file's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubectl => "kubectl",
        }
    }
}

/// Where the programs are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    assets: Option<PathBuf>,
    cache: PathBuf,
    etcd: PathBuf,
}

impl Programs {
    /// Finds the programs, and builds those that are missing. `progress` is told what takes long, line by line.
    ///
    /// One process at a time builds; others wait for it.
    ///
    /// # Errors
    /// [`Error::Missing`] when there is no etcd, or something must be built and there is no Go; [`Error::Build`].
    pub fn find_or_build(progress: &mut dyn FnMut(&str)) -> Result<Self> {
        let found = Self::find()?;
        let missing = found.missing();
        if missing.is_empty() {
            return Ok(found);
        }
        std::fs::create_dir_all(&found.cache).on("creating", &found.cache)?;
        let lock_path = found.cache.join("lock");
        let lock = File::create(&lock_path).on("making", &lock_path)?;
        if lock.try_lock().is_err() {
            progress("another process builds the programs of Kubernetes: waiting for it");
            lock.lock().on("locking", &lock_path)?;
        }
        // Another process may have built them while this one waited.
        let missing = found.missing();
        if !missing.is_empty() {
            found.build(&missing, progress)?;
        }
        Ok(found)
    }

    /// Where the programs are or would be, without building any.
    fn find() -> Result<Self> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let caches = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
        let cache = caches.ok_or(Error::NoHome)?.join("juneau/kubernetes").join(version());
        let assets = set("KUBEBUILDER_ASSETS");
        let etcd = assets.iter().map(|dir| dir.join("etcd")).find(|path| path.is_file());
        let etcd = etcd.or_else(|| on_path("etcd")).ok_or_else(|| Error::Missing {
            program: "etcd",
            remedy: "apt-get install --no-install-recommends etcd-server".to_owned(),
        })?;
        Ok(Self { assets, cache, etcd })
    }

    /// The file of a program. [`Programs::find_or_build`] has seen to it that it is there.
    #[must_use]
    pub fn path(&self, program: Program) -> PathBuf {
        let given = self.assets.iter().map(|dir| dir.join(program.name())).find(|path| path.is_file());
        given.unwrap_or_else(|| self.folder().join(program.name()))
    }

    /// The file of etcd.
    #[must_use]
    pub fn etcd(&self) -> &Path {
        &self.etcd
    }

    fn folder(&self) -> PathBuf {
        self.cache.join("bin")
    }

    fn missing(&self) -> Vec<Program> {
        let stamp = std::fs::read_to_string(self.cache.join("recipe")).unwrap_or_default();
        let current = stamp.trim() == RECIPE;
        let built = self.folder();
        Program::ALL
            .into_iter()
            .filter(|program| {
                let path = self.path(*program);
                !path.is_file() || (path.starts_with(&built) && !current)
            })
            .collect()
    }

    fn build(&self, programs: &[Program], progress: &mut dyn FnMut(&str)) -> Result<()> {
        // Made under another name and renamed: a program in the folder is whole.
        let unfinished = self.cache.join("unfinished");
        match std::fs::remove_dir_all(&unfinished) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).on("removing", &unfinished);
            }
            _ => {}
        }
        let folder = self.folder();
        for dir in [&unfinished, &folder] {
            std::fs::create_dir_all(dir).on("creating", dir)?;
        }
        go::build(programs, version(), &unfinished, progress)?;
        for program in programs {
            let (from, to) = (unfinished.join(program.name()), folder.join(program.name()));
            std::fs::rename(&from, &to).on("moving to its place", &from)?;
        }
        std::fs::remove_dir_all(&unfinished).on("removing", &unfinished)?;
        let stamp = self.cache.join("recipe");
        std::fs::write(&stamp, RECIPE).on("writing", &stamp)
    }
}

/// The version of Kubernetes that the Go module names, for example `v1.37.2`.
fn version() -> &'static str {
    let mut words =
        MODULE.lines().filter_map(|line| line.trim().trim_start_matches("require ").strip_prefix(REPOSITORY));
    words.find_map(|rest| rest.split_whitespace().next()).unwrap_or("unknown")
}

const REPOSITORY: &str = "k8s.io/kubernetes ";

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_version_is_the_caches() {
        let version = version();
        assert!(version.starts_with("v1.") && version.split('.').count() == 3, "{version}");
    }

    #[test]
    fn given_programs_win_and_a_changed_recipe_builds_anew() {
        let dir = std::env::temp_dir().join(format!("juneau-programs-{}", std::process::id()));
        let (assets, cache) = (dir.join("assets"), dir.join("cache"));
        let programs = Programs { assets: Some(assets.clone()), cache: cache.clone(), etcd: PathBuf::from("/etcd") };
        assert_eq!(programs.missing(), Program::ALL);
        for folder in [&assets, &cache.join("bin")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(assets.join("kubectl"), "").unwrap();
        assert_eq!(programs.path(Program::Kubectl), assets.join("kubectl"));
        for program in Program::ALL {
            std::fs::write(cache.join("bin").join(program.name()), "").unwrap();
        }
        assert_eq!(programs.missing(), [Program::ApiServer, Program::ControllerManager, Program::Scheduler]);
        std::fs::write(cache.join("recipe"), RECIPE).unwrap();
        assert_eq!(programs.missing(), []);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
