//! `juneau-cni`: the CNI plugin.

use std::process::ExitCode;

fn main() -> ExitCode {
    juneau_cni::main(std::env::args_os())
}
