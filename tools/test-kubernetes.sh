#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Every test that needs the programs of Kubernetes: those in files whose names begin with kubernetes, of all crates.
# They are ignored by `cargo test` without further words, so that it needs none of those programs.
set -eu

cd "$(dirname "$0")/.."
tools/preflight.sh kubernetes
PATH=$PATH:$HOME/.cargo/bin:/usr/local/go/bin
log=${CARGO_TARGET_DIR:-target}/test-kubernetes-output.txt
mkdir -p "$(dirname "$log")"
# All tests at once, so that dependencies are built with the features that `make test` built them with.
cargo test --workspace --test 'kubernetes*' --no-run
"${CARGO_TARGET_DIR:-target}/debug/juneau-controlplane" build --nodes

# Plain sh has no pipefail: the status comes back by a file.
status=$(mktemp)
trap 'rm -f "$status"' EXIT
{ cargo test --workspace --test 'kubernetes*' --no-fail-fast -- --include-ignored 2>&1 &&
    echo 0 >"$status" || echo $? >"$status"; } | tee "$log"
if [ "$(cat "$status")" -eq 0 ]; then
    tools/status.sh --kubernetes docs/status.md "$log" || echo 1 >"$status"
else
    echo "status: not held to what ran, because something failed above"
fi
exit "$(cat "$status")"
