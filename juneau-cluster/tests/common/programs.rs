//! The programs that the tests have anyway, in images under the names that `deploy/` has.
#![allow(unreachable_pub, reason = "each test file uses it")]

use juneau_cluster::image;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The programs under their names, in a folder of the target directory.
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    pub fn new() -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cluster-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let this = Self { folder };
        // Without what only a debugger reads.
        let stripped = this.file("juneau-cluster");
        succeeds(Command::new("strip").arg("-o").arg(&stripped).arg(env!("CARGO_BIN_EXE_juneau-cluster")));
        for name in ["juneau-agent", "juneau-operator", "juneau-responder", "kubectl-juneau"] {
            std::fs::hard_link(&stripped, this.file(name)).unwrap();
        }
        this
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Images under the names that `deploy/` has.
    pub fn images(&self) -> PathBuf {
        let folder = self.folder.join("images");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/plugin.sh");
        let plugin = PathBuf::from(succeeds(&mut Command::new(script)).trim());
        let (agent, operator) = (self.file("juneau-agent"), self.file("juneau-operator"));
        let agents: [(&str, &Path); 2] = [("juneau-agent", &agent), ("juneau-cni", &plugin)];
        let operators: [(&str, &Path); 1] = [("juneau-operator", &operator)];
        for (name, user, programs) in
            [("juneau-agent", "0:0", &agents[..]), ("juneau-operator", "65532:65532", &operators)]
        {
            let reference = format!("ghcr.io/juneau-net/{name}:v{}", env!("CARGO_PKG_VERSION"));
            image::write_local(&folder, &reference, &[&format!("/bin/{name}")], user, programs).unwrap();
        }
        folder
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// Runs a command that must succeed; returns its standard output.
#[track_caller]
pub fn succeeds(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}
