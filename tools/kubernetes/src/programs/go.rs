//! Building with the Go tools.

use super::Program;
use crate::cache::on_path;
use crate::error::{Context, Error, Result};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often progress is told.
const TELL: Duration = Duration::from_secs(10);

/// The Go module's folder, as it was when this program was compiled.
const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// Flags for the linker: no symbols, and the version in both places where programs look for it. Without it a client
/// that compares versions refuses the server's.
fn link_flags(version: &str) -> String {
    let minor = version.split('.').nth(1).unwrap_or_default();
    let mut flags = "-s -w".to_owned();
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        let values = [
            ("gitVersion", version),
            ("gitMajor", "1"),
            ("gitMinor", minor),
            ("gitCommit", "0000000000000000000000000000000000000000"),
            ("gitTreeState", "clean"),
            ("buildDate", "2026-01-01T00:00:00Z"),
        ];
        for (name, value) in values {
            flags.push_str(&format!(" -X {package}.{name}={value}"));
        }
    }
    flags
}

fn go(arguments: &[&str]) -> Command {
    let mut command = Command::new("go");
    command.args(arguments).current_dir(FOLDER).stdin(Stdio::null());
    // Statically linked, and nothing of this checkout in the result: other flags would compile all packages again.
    command.env("CGO_ENABLED", "0").env("GOFLAGS", "-buildvcs=false");
    command
}

/// Builds programs into `folder`.
pub(super) fn build(programs: &[Program], version: &str, folder: &Path, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let names: Vec<&str> = programs.iter().map(|program| program.name()).collect();
    let names = names.join(", ");
    if on_path("go").is_none() {
        let remedy = "install Go 1.21 or newer (https://go.dev/dl), which gets the release that it needs; or set \
                      KUBEBUILDER_ASSETS to a folder that holds the programs";
        return Err(Error::Missing { program: "go", remedy: remedy.to_owned() });
    }
    let (tests, plain): (Vec<Program>, Vec<Program>) =
        programs.iter().partition(|program| matches!(program, Program::EndToEnd));
    let start = Instant::now();
    progress(&format!("building {names} {version}: once, several minutes, {}", folder.display()));
    let flags = link_flags(version);
    if !plain.is_empty() {
        let mut command = go(&["build", "-v", "-trimpath", "-ldflags", &flags, "-o"]);
        command.arg(folder);
        let packages: Vec<String> = plain.iter().map(|program| program.package()).collect();
        compile(command, &packages, &names, start, progress)?;
    }
    for program in tests {
        // What they are made of first: `go test` would not say what it compiles.
        let parts = parts_of_tests(&program.package())?;
        compile(go(&["build", "-v", "-trimpath", "-ldflags", &flags]), &parts, &names, start, progress)?;
        let mut command = go(&["test", "-c", "-trimpath", "-ldflags", &flags, "-o"]);
        command.arg(folder.join(program.name())).arg(program.package());
        succeed(&mut command, &names)?;
    }
    progress(&format!("built {names} {version} in {} s", start.elapsed().as_secs()));
    Ok(())
}

/// Has `command` compile packages, and tells how far it is.
fn compile(
    mut command: Command,
    packages: &[String],
    names: &str,
    start: Instant,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let total = lines(&mut go_list(&["-deps"], packages), names)?.len();
    command.args(packages).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context(|| "starting go")?;
    let (mut packages, mut last, mut told) = (0_usize, String::new(), start);
    for line in child.stderr.take().into_iter().flat_map(|pipe| BufReader::new(pipe).lines()) {
        let line = line.context(|| "reading what go says")?;
        // With -v, go names each package that it compiles, and says everything else in more words.
        if line.contains(' ') {
            last = line;
        } else {
            packages += 1;
        }
        if told.elapsed() >= TELL {
            told = Instant::now();
            progress(&format!("{packages} of at most {total} packages, {} s", start.elapsed().as_secs()));
        }
    }
    let status = child.wait().context(|| "waiting for go")?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Build { programs: names.to_owned(), status: status.to_string(), last })
}

/// The packages that the tests of a package are made of, which are all that takes long about them.
fn parts_of_tests(package: &str) -> Result<Vec<String>> {
    let imports = "{{range .TestImports}}{{println .}}{{end}}{{range .XTestImports}}{{println .}}{{end}}";
    let mut all = lines(&mut go_list(&["-f", imports], &[package.to_owned()]), package)?;
    all.retain(|import| import != package);
    Ok(all)
}

fn go_list(flags: &[&str], packages: &[String]) -> Command {
    let mut command = go(&["list"]);
    command.args(flags).args(packages);
    command
}

/// The lines that Go says, once each. Fetches modules that are missing.
fn lines(command: &mut Command, names: &str) -> Result<Vec<String>> {
    let output = succeed(command, names)?;
    let mut all: Vec<String> =
        String::from_utf8_lossy(&output).lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    all.sort();
    all.dedup();
    Ok(all)
}

/// Runs Go, which must succeed; returns what it says.
fn succeed(command: &mut Command, names: &str) -> Result<Vec<u8>> {
    let output = command.output().context(|| "starting go")?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().unwrap_or_default().to_owned();
    Err(Error::Build { programs: names.to_owned(), status: output.status.to_string(), last })
}
