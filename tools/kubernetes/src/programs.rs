//! The programs of Kubernetes: found where `KUBEBUILDER_ASSETS` says, or else built once from this folder's Go module
//! into the cache of the user. `etcd` is Debian's.

mod go;

use crate::cache;
use crate::error::{Context, Error, Result};
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
    /// What runs Pods on a node.
    Kubelet,
    /// The end-to-end tests: all that Kubernetes has, in one program.
    EndToEnd,
    /// What runs those tests several at a time. It must be of the version that they were written with.
    Ginkgo,
    /// What those tests run in their Pods.
    Agnhost,
}

impl Program {
    /// What a control plane and those who speak to it need.
    pub const CONTROL_PLANE: [Self; 4] = [Self::ApiServer, Self::ControllerManager, Self::Scheduler, Self::Kubectl];

    /// What a cluster needs: those of nodes as well.
    pub const ALL: [Self; 5] =
        [Self::ApiServer, Self::ControllerManager, Self::Scheduler, Self::Kubectl, Self::Kubelet];

    /// What Kubernetes' own tests of a cluster need beside it.
    pub const CONFORMANCE: [Self; 3] = [Self::EndToEnd, Self::Ginkgo, Self::Agnhost];

    /// The file's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubectl => "kubectl",
            Self::Kubelet => "kubelet",
            Self::EndToEnd => "e2e.test",
            Self::Ginkgo => "ginkgo",
            Self::Agnhost => "agnhost",
        }
    }

    /// The package that it is built from.
    fn package(self) -> String {
        match self {
            Self::EndToEnd => "k8s.io/kubernetes/test/e2e".to_owned(),
            Self::Ginkgo => "github.com/onsi/ginkgo/v2/ginkgo".to_owned(),
            Self::Agnhost => "k8s.io/kubernetes/test/images/agnhost".to_owned(),
            _ => format!("k8s.io/kubernetes/cmd/{}", self.name()),
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
    /// Finds the programs of a control plane, and builds those that are missing. `progress` is told what takes long,
    /// line by line.
    ///
    /// One process at a time builds; others wait for it.
    ///
    /// # Errors
    /// [`Error::Missing`] when there is no etcd, or something must be built and there is no Go; [`Error::Build`].
    pub fn find_or_build(progress: &mut dyn FnMut(&str)) -> Result<Self> {
        Self::find_or_build_these(&Program::CONTROL_PLANE, progress)
    }

    /// The same for these programs: whoever needs no kubelet does not wait until there is one.
    ///
    /// # Errors
    /// Those of [`Programs::find_or_build`].
    pub fn find_or_build_these(wanted: &[Program], progress: &mut dyn FnMut(&str)) -> Result<Self> {
        let found = Self::find()?;
        let missing = found.missing(wanted);
        if missing.is_empty() {
            return Ok(found);
        }
        let _lock = cache::lock(&found.cache, "the programs of Kubernetes", progress)?;
        // Another process may have built them while this one waited.
        let missing = found.missing(wanted);
        if !missing.is_empty() {
            found.build(&missing, progress)?;
        }
        Ok(found)
    }

    /// Where the programs are or would be, without building any.
    fn find() -> Result<Self> {
        let cache = cache::folder("kubernetes")?.join(version());
        let assets = cache::set("KUBEBUILDER_ASSETS");
        let etcd = assets.iter().map(|dir| dir.join("etcd")).find(|path| path.is_file());
        let etcd = etcd.or_else(|| cache::on_path("etcd")).ok_or_else(|| Error::Missing {
            program: "etcd",
            remedy: "apt-get install --no-install-recommends etcd-server".to_owned(),
        })?;
        Ok(Self { assets, cache, etcd })
    }

    /// The file of a program. Whoever asked for it has seen to it that it is there.
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

    /// The folder of those that are built here.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.cache.join("bin")
    }

    /// The version of Kubernetes that they are built from, for example `v1.37.2`.
    #[must_use]
    pub fn version() -> &'static str {
        version()
    }

    /// Whether what is in the folder was built as it would be now.
    fn is_current(&self) -> bool {
        std::fs::read_to_string(self.cache.join("recipe")).is_ok_and(|stamp| stamp.trim() == RECIPE)
    }

    fn missing(&self, wanted: &[Program]) -> Vec<Program> {
        let (current, built) = (self.is_current(), self.folder());
        let is_missing = |program: &Program| {
            let path = self.path(*program);
            !path.is_file() || (path.starts_with(&built) && !current)
        };
        wanted.iter().copied().filter(is_missing).collect()
    }

    fn build(&self, programs: &[Program], progress: &mut dyn FnMut(&str)) -> Result<()> {
        // Made under another name and renamed: a program in the folder is whole.
        let (unfinished, folder) = (self.cache.join("unfinished"), self.folder());
        // What another recipe made goes whole: the stamp speaks for all that is there.
        let stale = (!self.is_current()).then_some(&folder);
        for dir in std::iter::once(&unfinished).chain(stale) {
            cache::remove(dir)?;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_version_is_the_caches() {
        let version = version();
        assert!(version.starts_with("v1.") && version.split('.').count() == 3, "{version}");
    }

    #[test]
    fn the_module_has_the_package_of_every_program() {
        let tools: Vec<&str> = MODULE.lines().map(str::trim).collect();
        for program in Program::ALL.into_iter().chain(Program::CONFORMANCE) {
            assert!(tools.contains(&program.package().as_str()), "{} is no tool of the module", program.package());
        }
    }

    #[test]
    fn only_what_is_asked_for_is_missing() {
        let dir = std::env::temp_dir().join(format!("juneau-lazily-{}", std::process::id()));
        let programs = Programs { assets: None, cache: dir.clone(), etcd: PathBuf::from("/etcd") };
        std::fs::create_dir_all(dir.join("bin")).unwrap();
        std::fs::write(dir.join("recipe"), RECIPE).unwrap();
        for program in Program::CONTROL_PLANE {
            std::fs::write(dir.join("bin").join(program.name()), "").unwrap();
        }
        assert_eq!(programs.missing(&Program::CONTROL_PLANE), []);
        assert_eq!(programs.missing(&Program::ALL), [Program::Kubelet]);
        assert_eq!(programs.missing(&Program::CONFORMANCE), Program::CONFORMANCE);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn given_programs_win_and_a_changed_recipe_builds_anew() {
        let dir = std::env::temp_dir().join(format!("juneau-programs-{}", std::process::id()));
        let (assets, cache) = (dir.join("assets"), dir.join("cache"));
        let programs = Programs { assets: Some(assets.clone()), cache: cache.clone(), etcd: PathBuf::from("/etcd") };
        assert_eq!(programs.missing(&Program::ALL), Program::ALL);
        for folder in [&assets, &cache.join("bin")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(assets.join("kubectl"), "").unwrap();
        assert_eq!(programs.path(Program::Kubectl), assets.join("kubectl"));
        for program in Program::ALL {
            std::fs::write(cache.join("bin").join(program.name()), "").unwrap();
        }
        let built = [Program::ApiServer, Program::ControllerManager, Program::Scheduler];
        assert_eq!(programs.missing(&Program::CONTROL_PLANE), built);
        std::fs::write(cache.join("recipe"), RECIPE).unwrap();
        assert_eq!(programs.missing(&Program::ALL), []);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
