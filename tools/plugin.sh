#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Builds the CNI plugin as it is shipped, static and small, in a target directory of its own, and prints its path.
set -eu

cd "$(dirname "$0")/.."
PATH=$PATH:$HOME/.cargo/bin
# With a target named, the flags are not for build scripts and macros, which cannot be static.
host=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-target}/plugin
RUSTFLAGS='-C target-feature=+crt-static' \
    cargo build -q -p juneau-cni --profile plugin --target "$host" --target-dir "$target" "$@" >&2
case $target in /*) ;; *) target=$PWD/$target ;; esac
echo "$target/$host/plugin/juneau-cni"
