#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Builds the CNI plugin as it is shipped, static and small, in a target directory of its own, and prints its path.
set -eu

cd "$(dirname "$0")/.."
PATH=$PATH:$HOME/.cargo/bin
# With a target named, the flags are not for build scripts and macros, which cannot be static. Names of this machine's
# directories are not in the program, so that it is the same one elsewhere.
host=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-target}/plugin
separator=$(printf '\037')
flags="-Ctarget-feature=+crt-static$separator-Clink-arg=-Wl,--build-id=none"
flags="$flags$separator--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo$separator--remap-path-prefix=$PWD=/juneau"
CARGO_ENCODED_RUSTFLAGS=$flags \
    cargo build -q -p juneau-cni --profile plugin --target "$host" --target-dir "$target" "$@" >&2
case $target in /*) ;; *) target=$PWD/$target ;; esac
echo "$target/$host/plugin/juneau-cni"
