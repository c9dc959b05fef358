//! The CNI plugin's place on the node.

use super::Engine;
use super::problems::Finder;
use crate::install::Installation;
use juneau_core::model::Problem;
use std::path::PathBuf;

impl Engine {
    /// Puts the plugin and its configuration in place once this node can attach Pods, and again where somebody took
    /// them away since the last look.
    pub(super) fn install_plugin(&mut self) {
        let options = &self.options.cni;
        if !self.install_due || (options.cni_bin_dir.is_none() && options.cni_conf_dir.is_none()) || !self.ready() {
            return;
        }
        self.install_due = false;
        let plugin = options.cni_plugin.clone().unwrap_or_else(beside_this_program);
        let installation = Installation {
            plugin: &plugin,
            binaries: options.cni_bin_dir.as_deref(),
            configurations: options.cni_conf_dir.as_deref(),
            version: options.cni_version.as_str(),
            socket: &self.options.socket,
        };
        let problem = match installation.install() {
            Ok(true) => {
                tracing::info!(version = %options.cni_version.as_str(), "the CNI plugin is in place");
                None
            }
            Ok(false) => None,
            Err(error) => Some(Problem::new(
                format!("file {}", error.path.display()),
                format!("the CNI plugin is not in place: {}", error.source),
                "make room and let the agent write there, or correct --cni-plugin, --cni-bin-dir and --cni-conf-dir",
            )),
        };
        self.problems.set(Finder::Plugin, problem);
    }
}

/// Where the plugin lies in the agent's image and in a build.
fn beside_this_program() -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name("juneau-cni")
}
