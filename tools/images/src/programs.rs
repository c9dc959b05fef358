//! Building the programs, and asking the machine what they were made of.

use crate::dependencies::{Graph, GraphError};
use crate::elf::{self, ElfError};
use crate::notices::NoticeError;
use crate::sbom::Library;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

/// Something that cannot be built or found out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A command that could not be started, or failed.
    #[error("{command}: {reason}")]
    Command {
        /// What was run.
        command: String,
        /// Why it failed; its own words are on standard error.
        reason: String,
    },
    /// A file.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A program that needs more than an image has.
    #[error("{}: {source}", path.display())]
    Program {
        /// The program.
        path: PathBuf,
        /// What is wrong.
        source: ElfError,
    },
    /// A program that says where it was built, and so would be another one elsewhere.
    #[error("{} contains the path {path:?} of this machine", program.display())]
    Path {
        /// The program.
        program: PathBuf,
        /// The path.
        path: String,
    },
    /// A library that is not there to be linked in.
    #[error("there is no {archive}: install the package that has it (libelf-dev, zlib1g-dev and libc6-dev on Debian)")]
    Library {
        /// Its file.
        archive: &'static str,
    },
    /// What cargo said about dependencies.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Licences of what is linked in.
    #[error(transparent)]
    Notice(#[from] NoticeError),
}

/// Where things are.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// The repository.
    pub repository: PathBuf,
    /// Cargo's output of all other builds.
    pub target_dir: PathBuf,
    /// What is compiled for; this machine.
    pub target: String,
    cargo: OsString,
}

const PROFILE: &str = "image";
/// Both at once, so that they share what they have in common, and features are the same for the build and the list.
const DAEMONS: [&str; 4] = ["--package=juneau-agent", "--package=juneau-operator", "--features", "juneau-bpf/static"];
/// The separator of `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\x1f";

impl Workspace {
    /// The workspace of this program.
    ///
    /// # Errors
    /// [`BuildError`], when there is no compiler.
    pub fn find() -> Result<Self, BuildError> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let repository =
            fs::canonicalize(&repository).map_err(|source| BuildError::File { path: repository, source })?;
        let target_dir = env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository.join("target"), Into::into);
        let version = said(Command::new("rustc").arg("-vV"))?;
        let target = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default().to_owned();
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        Ok(Self { repository, target_dir, target, cargo })
    }

    /// Builds a program and reads it: `juneau-cni` small, as `make plugin` does, the others as one build.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn program(&self, name: &str) -> Result<Vec<u8>, BuildError> {
        let path = match name {
            "juneau-cni" => {
                let script = self.repository.join("tools/plugin.sh");
                PathBuf::from(said(Command::new(script).arg("--locked"))?.trim_end())
            }
            _ => self.daemon(name)?,
        };
        let program = fs::read(&path).map_err(|source| BuildError::File { path: path.clone(), source })?;
        elf::is_static(&program).map_err(|source| BuildError::Program { path: path.clone(), source })?;
        for (from, _) in self.remapped() {
            let from = from.to_string_lossy().into_owned();
            if program.windows(from.len()).any(|window| window == from.as_bytes()) {
                return Err(BuildError::Path { program: path, path: from });
            }
        }
        Ok(program)
    }

    fn daemon(&self, name: &str) -> Result<PathBuf, BuildError> {
        let target_dir = self.target_dir.join("static");
        let mut flags = vec!["-Ctarget-feature=+crt-static".into(), "-Clink-arg=-Wl,--build-id=none".into()];
        for (from, to) in self.remapped() {
            let mut flag = OsString::from("--remap-path-prefix=");
            flag.push(from);
            flag.push("=");
            flag.push(to);
            flags.push(flag);
        }
        let libraries = archive("libelf.a")?.parent().map(Path::to_owned).unwrap_or_default();
        let mut build = self.cargo("build");
        build
            .args(["--locked", "--profile", PROFILE, "--target", &self.target, "--target-dir"])
            .arg(&target_dir)
            .args(DAEMONS)
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join(OsStr::new(SEPARATOR)))
            .env(format!("LIBBPF_SYS_LIBRARY_PATH_{}", self.target.replace('-', "_")), libraries)
            .stdout(Stdio::null());
        run(&mut build)?;
        Ok(target_dir.join(&self.target).join(PROFILE).join(name))
    }

    /// Directories of this machine, and what programs call them. A later one wins.
    fn remapped(&self) -> Vec<(PathBuf, &'static str)> {
        let home = env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
        let mut all: Vec<_> = home.into_iter().map(|home| (home, "/cargo")).collect();
        all.push((self.repository.clone(), "/juneau"));
        all.push((self.target_dir.clone(), "/target"));
        all
    }

    fn cargo(&self, command: &str) -> Command {
        let mut cargo = Command::new(&self.cargo);
        cargo.arg(command).current_dir(&self.repository);
        cargo
    }

    /// What all programs are made of.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn graph(&self) -> Result<Graph, BuildError> {
        let metadata = said(
            self.cargo("metadata").args(["--format-version=1", "--locked", "--filter-platform"]).arg(&self.target),
        )?;
        let mut whole = Graph::default();
        for packages in [&DAEMONS[..], &["--package=juneau-cni"]] {
            let mut tree = self.cargo("tree");
            tree.args(["--locked", "--edges=normal,no-proc-macro", "--prefix=depth", "--format=|{p}", "--target"]);
            let tree = said(tree.arg(&self.target).args(packages))?;
            whole = whole.and(Graph::parse(&tree, &metadata)?);
        }
        Ok(whole)
    }

    /// The libraries that are linked into a program and that cargo does not know.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn libraries(&self, program: &str, graph: &Graph) -> Result<Vec<Library>, BuildError> {
        let mut all = vec![self.standard_library()?];
        for (file, licence) in
            [("libc.a", "LGPL-2.1-or-later"), ("libgcc_eh.a", "GPL-3.0-or-later WITH GCC-exception-3.1")]
        {
            all.push(system_library(file, licence)?);
        }
        let bindings = graph.find(program).map(|id| graph.below(&id)).and_then(|part| {
            let id = part.find("libbpf-sys")?;
            let directory = part.packages.get(&id)?.directory.join("libbpf");
            Some((id.1, directory))
        });
        if let Some((version, directory)) = bindings {
            // The version of what the crate brings with it stands behind its own.
            let version = version.split_once('+').map_or(version.as_str(), |(_, brought)| brought).to_owned();
            all.push(Library {
                name: "libbpf".to_owned(),
                purl: format!("pkg:github/libbpf/libbpf@{version}"),
                version: Some(version),
                licence: "LGPL-2.1-only OR BSD-2-Clause".to_owned(),
                notices: crate::notices::find(&directory)?,
            });
            all.push(system_library("libelf.a", "LGPL-3.0-or-later OR GPL-2.0-or-later")?);
            all.push(system_library("libz.a", "Zlib")?);
        }
        Ok(all)
    }

    fn standard_library(&self) -> Result<Library, BuildError> {
        let version = said(Command::new("rustc").arg("-vV"))?;
        let version = version.lines().find_map(|line| line.strip_prefix("release: ")).unwrap_or_default();
        let sysroot = said(Command::new("rustc").args(["--print", "sysroot"]))?;
        let path = Path::new(sysroot.trim_end()).join("share/doc/rust/COPYRIGHT-library.html");
        // Not every distribution has it.
        let notices = fs::read_to_string(path).ok().map(|text| ("COPYRIGHT-library.html".to_owned(), text));
        Ok(Library {
            name: "rust-std".to_owned(),
            version: Some(version.to_owned()),
            purl: format!("pkg:generic/rust-std@{version}"),
            licence: "MIT OR Apache-2.0".to_owned(),
            notices: notices.into_iter().collect(),
        })
    }
}

/// Where the compiler finds a static library.
fn archive(name: &'static str) -> Result<PathBuf, BuildError> {
    let path = said(Command::new("cc").arg(format!("-print-file-name={name}")))?;
    // Only the name comes back for what is not there.
    fs::canonicalize(path.trim_end()).map_err(|_| BuildError::Library { archive: name })
}

/// A library of the system; with its package, where dpkg knows it.
fn system_library(file: &'static str, licence: &str) -> Result<Library, BuildError> {
    let path = archive(file)?;
    let package = Command::new("dpkg-query").arg("-S").arg(&path).stderr(Stdio::null()).output().ok();
    let package = package.filter(|output| output.status.success()).and_then(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // `libc6-dev:amd64: /usr/lib/…`
        Some(text.split_once(": ")?.0.to_owned())
    });
    let Some(package) = package else {
        return Ok(Library {
            name: file.to_owned(),
            version: None,
            purl: format!("pkg:generic/{file}"),
            licence: licence.to_owned(),
            notices: Vec::new(),
        });
    };
    let version = said(Command::new("dpkg-query").args(["-W", "-f", "${Version}"]).arg(&package))?;
    let (name, architecture) = package.split_once(':').unwrap_or((&package, "all"));
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let vendor = release.lines().find_map(|line| line.strip_prefix("ID=")).unwrap_or("debian").trim_matches('"');
    let notice = Path::new("/usr/share/doc").join(name).join("copyright");
    let text = fs::read(&notice).map_err(|source| BuildError::File { path: notice, source })?;
    Ok(Library {
        name: name.to_owned(),
        purl: format!(
            "pkg:deb/{vendor}/{name}@{}?arch={architecture}",
            version.replace('+', "%2B").replace(':', "%3A")
        ),
        version: Some(version),
        licence: licence.to_owned(),
        notices: vec![("copyright".to_owned(), String::from_utf8_lossy(&text).into_owned())],
    })
}

fn name(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Runs a command whose words go to standard error.
fn run(command: &mut Command) -> Result<(), BuildError> {
    let status = command.status();
    let reason = match status {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    Err(BuildError::Command { command: name(command), reason })
}

/// What a command says on standard output.
fn said(command: &mut Command) -> Result<String, BuildError> {
    let output = command.stderr(Stdio::inherit()).output();
    let reason = match output {
        Ok(output) if output.status.success() => return Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => output.status.to_string(),
        Err(error) => error.to_string(),
    };
    Err(BuildError::Command { command: name(command), reason })
}
