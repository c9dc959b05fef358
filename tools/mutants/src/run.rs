//! Plants each fault in a copy of the tree, builds it and lets the differential test look for it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::{Error, Mutant};

/// What became of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// The test failed: found.
    Killed,
    /// The test passed: not found.
    Survived,
    /// It does not build or load, so it proves nothing.
    Invalid,
}

/// What one run takes and gives.
#[derive(Debug)]
pub struct Runner {
    repository: PathBuf,
    tree: PathBuf,
    build: PathBuf,
    /// Bound on the search for one fault.
    pub seconds: u64,
}

impl Runner {
    /// A runner for a repository; its copy and its build lie below `target/mutants`. The build is its own: cargo takes
    /// what it built of one copy of a workspace for what belongs to the other.
    #[must_use]
    pub fn new(repository: &Path, target: &Path) -> Self {
        let base = target.join("mutants");
        Self { repository: repository.to_owned(), tree: base.join("tree"), build: base.join("build"), seconds: 20 }
    }

    /// Copies what git knows of, as it lies in the work tree, and builds it without a fault: the control.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn prepare(&self) -> Result<Fate, Error> {
        if self.tree.exists() {
            std::fs::remove_dir_all(&self.tree).map_err(Error::io("the old copy of the tree"))?;
        }
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&self.repository)
            .output()
            .map_err(Error::io("git ls-files"))?;
        for name in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|name| !name.is_empty()) {
            self.copy(Path::new(name))?;
        }
        self.test()
    }

    fn copy(&self, name: &Path) -> Result<(), Error> {
        let (from, to) = (self.repository.join(name), self.tree.join(name));
        let what = || name.display().to_string();
        let Ok(metadata) = from.symlink_metadata() else { return Ok(()) };
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent).map_err(Error::io(what()))?;
        }
        if metadata.is_symlink() {
            let target = std::fs::read_link(&from).map_err(Error::io(what()))?;
            return std::os::unix::fs::symlink(target, &to).map_err(Error::io(what()));
        }
        std::fs::copy(&from, &to).map(drop).map_err(Error::io(what()))
    }

    /// Plants a fault, looks for it, and takes it out again.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NotOnce`].
    pub fn judge(&self, mutant: &Mutant) -> Result<Fate, Error> {
        let path = self.tree.join(&mutant.file);
        let what = || mutant.file.display().to_string();
        let source = std::fs::read_to_string(&path).map_err(Error::io(what()))?;
        std::fs::write(&path, mutant.plant(&source)?).map_err(Error::io(what()))?;
        let fate = self.test();
        std::fs::write(&path, source).map_err(Error::io(what()))?;
        fate
    }

    fn cargo(&self, arguments: &[&str]) -> Result<std::process::Output, Error> {
        Command::new("cargo")
            .args(["test", "-q", "-p", "juneau-bpf", "--test", "differential"])
            .args(arguments)
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.build)
            .env("JUNEAU_DIFFERENTIAL_SECONDS", self.seconds.to_string())
            .env_remove("JUNEAU_DIFFERENTIAL_SEED")
            .env("RUST_BACKTRACE", "0")
            .output()
            .map_err(Error::io("cargo"))
    }

    fn test(&self) -> Result<Fate, Error> {
        if !self.cargo(&["--no-run"])?.status.success() {
            return Ok(Fate::Invalid);
        }
        let output = self.cargo(&[])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        Ok(judge_output(output.status.success(), &text))
    }
}

/// A test that ends otherwise than by a difference, or that never looked, finds nothing.
fn judge_output(success: bool, text: &str) -> Fate {
    if text.contains("SKIPPED") {
        Fate::Invalid
    } else if success {
        Fate::Survived
    } else if text.contains("seed ") || text.contains("exits that no packet reached") {
        Fate::Killed
    } else {
        Fate::Invalid
    }
}

/// Runs the control, then every fault whose name has one of `names` in it (or all), and reports. Returns whether all
/// were found.
///
/// # Errors
/// Those of [`Runner::judge`], and of writing the report.
pub fn run(runner: &Runner, names: &[String], out: &mut impl Write) -> Result<bool, Error> {
    let say = |out: &mut dyn Write, line: String| writeln!(out, "{line}").map_err(Error::io("the report"));
    let mutants = Mutant::read_all(&runner.repository.join("tests/mutants"))?;
    let chosen: Vec<_> = mutants
        .iter()
        .filter(|m| names.is_empty() || names.iter().any(|name| m.name.contains(name.as_str())))
        .collect();
    say(out, format!("building without a fault (the control), then {} mutants", chosen.len()))?;
    let control = runner.prepare()?;
    if control != Fate::Survived {
        say(out, "the differential test does not pass as it is: nothing can be said".to_owned())?;
        return Ok(false);
    }
    let (mut found, mut missed) = (0, 0);
    for mutant in chosen {
        let start = Instant::now();
        let fate = runner.judge(mutant)?;
        let word = match fate {
            Fate::Killed => "killed",
            Fate::Survived => "SURVIVED",
            Fate::Invalid => "INVALID",
        };
        if fate == Fate::Killed {
            found += 1;
        } else {
            missed += 1;
        }
        let seconds = start.elapsed().max(Duration::from_secs(1)).as_secs();
        say(out, format!("{word:<9} {seconds:>4} s  {:<28} {}", mutant.name, mutant.why))?;
    }
    say(out, format!("{found} passed, {missed} failed"))?;
    Ok(missed == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_difference_kills() {
        assert_eq!(judge_output(true, "test result: ok"), Fate::Survived);
        assert_eq!(judge_output(false, "seed 3 step 12: verdicts differ"), Fate::Killed);
        assert_eq!(judge_output(false, "cannot load: permission denied"), Fate::Invalid);
        assert_eq!(judge_output(true, "SKIPPED 1: needs root"), Fate::Invalid);
    }
}
