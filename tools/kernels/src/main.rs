//! Runs the test binaries of the BPF programs on this kernel and on others.
//!
//! A BPF program that loads on one kernel may be refused by the verifier of another, and helpers and hooks differ.
//! So the tests that load and run the programs are built once and run on the oldest supported kernel, on one in
//! between, and natively. `docs/kernels.md` describes the machinery.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Parser, Subcommand};

use crate::{
    error::Error,
    kernel::Cache,
    run::{Plan, Target},
    suite::Test,
};

/// Prints a line to standard output. A reader that has gone away is no reason to stop.
macro_rules! say {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout().lock(), $($argument)*);
    }};
}

mod command;
mod debian;
mod error;
mod guest;
mod initramfs;
mod kernel;
mod native;
mod outcome;
mod report;
mod run;
mod suite;
mod verified;

/// Runs the tests of the BPF programs on several kernels.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Fetch kernels into the cache and prepare them.
    Fetch {
        /// A kernel line; may be repeated. All when left out.
        #[arg(long = "kernel", value_parser = target)]
        kernels: Vec<Target>,
        /// Replace a cached kernel when the sources have a newer release.
        #[arg(long)]
        refresh: bool,
    },
    /// Run tests on kernels.
    Run {
        /// `native` or a kernel line; may be repeated. All when left out.
        #[arg(long = "kernel", value_parser = target)]
        kernels: Vec<Target>,
        /// The longest that one test binary may take on one kernel, in seconds.
        #[arg(long, default_value_t = 600)]
        limit: u64,
        /// Count a kernel that cannot be had as skipped, not as failed.
        #[arg(long)]
        allow_missing: bool,
        /// Build the tests of the whole workspace: quick after `cargo test --workspace`.
        #[arg(long)]
        workspace: bool,
        /// Write the verified instructions of this run into the committed table.
        #[arg(long)]
        record: bool,
        /// Test binaries to run in place of the built ones.
        #[arg(last = true)]
        binaries: Vec<PathBuf>,
    },
    /// List the kernels, and which are cached.
    List,
}

fn target(name: &str) -> Result<Target, String> {
    if name == "native" {
        return Ok(Target::Native);
    }
    kernel::line(name).map(Target::Guest).ok_or_else(|| {
        let names: Vec<_> = Target::all().into_iter().map(Target::name).collect();
        format!("known are: {}", names.join(", "))
    })
}

fn main() -> ExitCode {
    match act(Options::parse().action) {
        Ok(()) => ExitCode::SUCCESS,
        // The tables have said it.
        Err(Error::Failed) => ExitCode::FAILURE,
        Err(error) => {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr().lock(), "juneau-kernels: {error}");
            ExitCode::FAILURE
        }
    }
}

fn act(action: Action) -> Result<(), Error> {
    match action {
        Action::Fetch { kernels, refresh } => fetch(&or_all(kernels), refresh),
        Action::Run { kernels, limit, allow_missing, workspace: whole, record, binaries } => {
            require_root()?;
            let workspace = workspace();
            let given = !binaries.is_empty();
            let tests = if given {
                binaries.iter().map(|path| Test::from_path(path)).collect::<Result<_, _>>()?
            } else {
                suite::build(workspace, whole)?
            };
            run::run(&Plan {
                targets: or_all(kernels),
                tests,
                split: !given,
                limit: Duration::from_secs(limit),
                allow_missing,
                table: (!given).then(|| workspace.join("tools/kernels/verified.tsv")),
                record,
                logs: target_folder(workspace).join("kernels"),
            })
        }
        Action::List => list(),
    }
}

fn or_all(kernels: Vec<Target>) -> Vec<Target> {
    if kernels.is_empty() { Target::all() } else { kernels }
}

fn fetch(targets: &[Target], refresh: bool) -> Result<(), Error> {
    debian::ensure_tools()?;
    let cache = Cache::of_user()?;
    for target in targets {
        if let Target::Guest(line) = target {
            let kernel = cache.fetch(*line, refresh)?;
            say!("{}: {}", line.name, kernel.version());
        }
    }
    Ok(())
}

fn list() -> Result<(), Error> {
    let cache = Cache::of_user()?;
    let mut cells = vec![["kernel", "version", "state"].map(str::to_owned).to_vec()];
    for target in Target::all() {
        let (release, state) = match target {
            Target::Native => (native::release()?, "running"),
            Target::Guest(line) => match cache.get(line) {
                Some(kernel) => (kernel.version().to_owned(), "cached"),
                None => ("-".to_owned(), "not fetched"),
            },
        };
        cells.push(vec![target.name().to_owned(), release, state.to_owned()]);
    }
    say!("{}cache: {}", report::columns(&cells, 3), cache.path().display());
    Ok(())
}

fn require_root() -> Result<(), Error> {
    // This process's own folder belongs to the user it runs as.
    let path = "/proc/self";
    let owner = std::fs::metadata(path).map_err(Error::file("reading", path))?.uid();
    if owner == 0 { Ok(()) } else { Err(Error::NotRoot) }
}

/// The folder of the workspace that this program was built from.
fn workspace() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package)
}

fn target_folder(workspace: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from)
}
