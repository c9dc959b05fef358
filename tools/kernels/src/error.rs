//! What can go wrong before or around a run. A failing test is not an error: it is a count in the table.

use std::{io, path::PathBuf, process::ExitStatus};

/// Why the runner could not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// A file or folder could not be read or written.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// What was tried, as a present participle.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A command could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program's name.
        program: String,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A command ended with an error.
    #[error("{command} failed ({status}){}", detail(stderr))]
    Command {
        /// The command as typed.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote to its standard error, when that was captured.
        stderr: String,
    },
    /// Debian packages are missing and may not be installed.
    #[error("missing Debian packages: {}; run: apt-get install --no-install-recommends {}", .0.join(" "), .0.join(" "))]
    Packages(Vec<String>),
    /// The configured package sources do not carry a kernel line.
    #[error(
        "the configured apt sources offer no kernel {line} ({meta}); add Debian bookworm and bookworm-security, then run apt-get update"
    )]
    NoKernel {
        /// The kernel line.
        line: &'static str,
        /// The meta package that should have named it.
        meta: &'static str,
    },
    /// A file that must be in a package is not there.
    #[error("{package} holds no {what}")]
    Incomplete {
        /// The package.
        package: String,
        /// What was looked for.
        what: String,
    },
    /// No virtiofsd in any of the known places.
    #[error("virtiofsd is not installed; on Debian 13 and later: apt-get install --no-install-recommends virtiofsd")]
    NoVirtiofsd,
    /// The process is not root.
    #[error("must be run as root: loading BPF programs and sharing the root file system need it")]
    NotRoot,
    /// Neither XDG_CACHE_HOME nor HOME says where caches belong.
    #[error("set HOME or XDG_CACHE_HOME: the kernels are cached below it")]
    NoHome,
    /// A line of the committed table does not parse.
    #[error("{}:{line}: expected a name, a tab and a number", path.display())]
    Table {
        /// The table.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// A test binary given by hand does not exist.
    #[error("no test binary {}", .0.display())]
    NoBinary(PathBuf),
    /// Cargo built fewer test binaries than were asked for.
    #[error("cargo built no test binary named {0}")]
    NotBuilt(String),
    /// The run took place, and something failed in it.
    #[error("some checks failed")]
    Failed,
}

fn detail(stderr: &str) -> String {
    let text = stderr.trim();
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

impl Error {
    /// Wraps an answer of the operating system about `path`.
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}
