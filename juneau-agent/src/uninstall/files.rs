//! Files: the CNI plugin and its configuration, sockets, the state directory. What is not ours by its content stays.

use super::report::Report;
use crate::install::{CONFIGURATION, PLUGIN, unfinished};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// What the plugin says to `--version`, less the number.
const MARK: &[u8] = b"juneau-cni ";
const WRITABLE: &str = "see that the directory can be written, then once more";

/// The configuration comes first: from then on the runtime asks our plugin for no new Pod.
pub(super) fn cni(report: &mut Report, configurations: &Path, binaries: &Path) {
    let configuration = configurations.join(CONFIGURATION);
    judge(report, "configuration", &configuration, "another network's configuration of this name", |text| {
        names_the_plugin(text)
    });
    for path in others_that_name_it(configurations) {
        report.left(
            "configuration",
            path,
            "not installed by the agent, and it names the plugin juneau, which is removed",
            "take juneau out of it, or remove it",
        );
    }
    judge(report, "plugin", &binaries.join(PLUGIN), "another program of this name", |content| {
        content.windows(MARK.len()).any(|window| window == MARK)
    });
    for path in [configurations.join(unfinished(CONFIGURATION)), binaries.join(unfinished(PLUGIN))] {
        if path.symlink_metadata().is_ok() {
            remove(report, "file", &path);
        }
    }
}

/// Removes a file that is ours by its content.
fn judge(report: &mut Report, kind: &'static str, path: &Path, otherwise: &str, ours: impl FnOnce(&[u8]) -> bool) {
    let content = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Ok(metadata) if !metadata.is_file() => Ok(Vec::new()),
        _ => fs::read(path),
    };
    match content {
        Ok(content) if ours(&content) => remove(report, kind, path),
        Ok(_) => report.left(kind, path.display().to_string(), otherwise, "remove it by hand if nobody needs it"),
        Err(error) => report.failed(kind, path.display().to_string(), error, WRITABLE),
    }
}

fn remove(report: &mut Report, kind: &'static str, path: &Path) {
    report.remove(kind, path.display().to_string(), WRITABLE, || fs::remove_file(path));
}

/// Whether a configuration list has our plugin in it.
fn names_the_plugin(text: &[u8]) -> bool {
    let Ok(list) = serde_json::from_slice::<serde_json::Value>(text) else { return false };
    let plugins = list["plugins"].as_array().map(Vec::as_slice).unwrap_or_default();
    plugins.iter().chain([&list]).any(|plugin| plugin["type"] == PLUGIN)
}

/// Other configurations with our plugin in them, by name.
fn others_that_name_it(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<String> = entries
        .filter(|entry| entry.file_name() != CONFIGURATION && !entry.file_name().to_string_lossy().starts_with('.'))
        .map(|entry| entry.path())
        .filter(|path| path.is_file() && fs::read(path).is_ok_and(|text| names_the_plugin(&text)))
        .map(|path| path.display().to_string())
        .collect();
    found.sort();
    found
}

/// Sockets, the lock, and their directory once nothing else is in it.
pub(super) fn state(report: &mut Report, directory: &Path, sockets: [&Path; 2]) {
    for path in sockets {
        match path.symlink_metadata() {
            Ok(metadata) if metadata.file_type().is_socket() => remove(report, "socket", path),
            Ok(_) => report.left("file", path.display().to_string(), "it is no socket", "remove it if nobody needs it"),
            Err(_) => {}
        }
    }
    let lock = directory.join(crate::lock::FILE);
    if lock.symlink_metadata().is_ok() {
        remove(report, "lock", &lock);
    }
    let name = directory.display().to_string();
    let rest = fs::read_dir(directory).map(|entries| {
        let gone = |path: &Path| report.dry_run && (path == lock || sockets.contains(&path));
        entries.flatten().filter(|entry| !gone(&entry.path())).count()
    });
    match rest {
        Err(_) => {}
        Ok(0) if report.dry_run => report.done("directory", name, "", Ok::<(), io::Error>(())),
        Ok(0) => match fs::remove_dir(directory) {
            // In a container it is a mount of the node's. Where the container's root is read-only the kernel says that first.
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy
                    || (error.kind() == io::ErrorKind::ReadOnlyFilesystem && is_mount(directory)) =>
            {
                report.left(
                    "directory",
                    name,
                    "it is empty, and mounted here",
                    "nothing: a restart of the node removes it",
                );
            }
            outcome => report.done("directory", name, WRITABLE, outcome),
        },
        Ok(count) => {
            let why = format!("{count} files in it are not the agent's");
            report.left("directory", name, why, "remove it by hand if nobody needs them");
        }
    }
}

/// Whether it is in another file system than the directory that it is in.
fn is_mount(directory: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|metadata| metadata.dev()).ok();
    directory.parent().is_some_and(|parent| device(directory) != device(parent))
}

#[cfg(test)]
mod tests {
    use super::names_the_plugin;

    #[test]
    fn our_configuration_is_told_by_what_it_names() {
        for ours in [
            r#"{"name":"juneau","plugins":[{"type":"juneau"}]}"#,
            r#"{"plugins":[{"type":"bandwidth"},{"type":"juneau"}]}"#,
            r#"{"name":"x","type":"juneau"}"#,
        ] {
            assert!(names_the_plugin(ours.as_bytes()), "{ours}");
        }
        for other in ["", "juneau", r#"{"name":"juneau","plugins":[{"type":"ptp"}]}"#, r#"{"plugins":"juneau"}"#] {
            assert!(!names_the_plugin(other.as_bytes()), "{other}");
        }
    }
}
