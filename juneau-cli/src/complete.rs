//! Completion the way `kubectl` asks its plugins for it: a program `kubectl_complete-juneau` is given the words after
//! `kubectl juneau`, the last of them to be completed, and prints one candidate a line and a directive.

use crate::cli::Cli;
use clap::CommandFactory as _;
use clap::{Arg, Command};

/// The name under which `kubectl` calls a plugin for completion.
pub const PROGRAM: &str = "kubectl_complete-juneau";

/// To `kubectl`: no files. The number is `ShellCompDirectiveNoFileComp` of the library that it is made with.
const NO_FILES: &str = ":4";
/// To `kubectl`: files are welcome.
const FILES: &str = ":0";

/// Candidates for the last of the words, and the directive, one a line.
#[must_use]
pub fn complete(words: &[String]) -> String {
    let root = Cli::command();
    let (last, before) = words.split_last().map_or(("", [].as_slice()), |(last, before)| (last.as_str(), before));
    let mut command = &root;
    let mut places = 0;
    let mut value_of: Option<&Arg> = None;
    let global: Vec<&Arg> = root.get_arguments().filter(|arg| arg.is_global_set()).collect();
    for word in before {
        if value_of.take().is_some() {
            continue;
        }
        if word.starts_with('-') {
            value_of = flag(command, &global, word).filter(|arg| takes_value(arg) && !word.contains('='));
        } else if let Some(below) = command.find_subcommand(word) {
            (command, places) = (below, 0);
        } else {
            places += 1;
        }
    }
    let mut found: Vec<String> = Vec::new();
    let mut directive = NO_FILES;
    if let Some(arg) = value_of {
        found = values(arg);
        let is_file = arg.get_value_parser().type_id() == std::any::TypeId::of::<std::path::PathBuf>();
        directive = if is_file { FILES } else { NO_FILES };
    } else if last.starts_with('-') {
        let own = command.get_arguments().filter(|arg| !arg.is_positional());
        found = own.chain(global).filter_map(|arg| arg.get_long()).map(|long| format!("--{long}")).collect();
        found.push("--help".to_owned());
    } else {
        let below = command.get_subcommands().filter(|below| !below.is_hide_set());
        found.extend(below.map(|below| below.get_name().to_owned()));
        found.extend(command.get_positionals().nth(places).map(values).unwrap_or_default());
    }
    found.retain(|candidate| candidate.starts_with(last));
    found.sort();
    found.dedup();
    found.push(directive.to_owned());
    found.join("\n") + "\n"
}

fn flag<'c>(command: &'c Command, global: &[&'c Arg], word: &str) -> Option<&'c Arg> {
    let name = word.trim_start_matches('-').split('=').next().unwrap_or_default();
    let is_meant = |arg: &&Arg| {
        if word.starts_with("--") {
            arg.get_long() == Some(name)
        } else {
            arg.get_short().is_some_and(|short| name.len() == 1 && name.starts_with(short))
        }
    };
    command.get_arguments().find(is_meant).or_else(|| global.iter().copied().find(|arg| is_meant(arg)))
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

fn values(arg: &Arg) -> Vec<String> {
    arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(words: &[&str]) -> Vec<String> {
        complete(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).lines().map(str::to_owned).collect()
    }

    #[test]
    fn kubectl_is_told_commands_kinds_flags_and_their_values() {
        assert_eq!(ask(&["st"]), ["status", ":4"]);
        assert_eq!(ask(&["describe", "po"]), ["pod", ":4"]);
        assert_eq!(ask(&["su"]), ["support-bundle", ":4"]);
        assert_eq!(ask(&["trace", "a1", "b1", "--protocol", ""]), ["icmp", "tcp", "udp", ":4"]);
        assert_eq!(ask(&["support-bundle", "-o", ""]), [":0"]);
        assert_eq!(ask(&["describe", "s"]), ["subnet", ":4"]);
        assert_eq!(ask(&["-n", "red", "describe", "net"]), ["networkinterface", ":4"]);
        assert_eq!(ask(&["describe", "vpc", ""]), [":4"]);
        assert_eq!(ask(&["status", "-o", ""]), ["json", "text", "yaml", ":4"]);
        assert_eq!(ask(&["describe", "--out"]), ["--output", ":4"]);
        assert_eq!(ask(&["status", "--kubec"]), ["--kubeconfig", ":4"]);
        assert_eq!(ask(&["--kubeconfig", ""]), [":0"]);
        assert_eq!(ask(&["completion", ""]), ["bash", "fish", "zsh", ":4"]);
        assert!(ask(&[]).contains(&"describe".to_owned()));
    }
}
