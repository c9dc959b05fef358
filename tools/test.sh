#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Every test of the repository: the set-up, the tests of all crates (those that need root run in namespaces of their
# own), the documentation's examples, and the promise of docs/status.md that the tests it names did run.
set -eu

cd "$(dirname "$0")/.."
tools/preflight.sh lab
PATH=$PATH:$HOME/.cargo/bin
log=${CARGO_TARGET_DIR:-target}/test-output.txt
mkdir -p "$(dirname "$log")"

# Plain sh has no pipefail: the status comes back by a file.
status=$(mktemp)
trap 'rm -f "$status"' EXIT
{ cargo test --workspace --no-fail-fast 2>&1 && echo 0 >"$status" || echo $? >"$status"; } | tee "$log"
# On the oldest kernel supported too, in a virtual machine. One that cannot be had is shown and counted as skipped.
{ "${CARGO_TARGET_DIR:-target}/debug/juneau-kernels" run --kernel 6.1 --workspace --allow-missing 2>&1 ||
    echo 1 >"$status"; } | tee -a "$log"
if [ "$(cat "$status")" -eq 0 ]; then
    tools/status.sh docs/status.md "$log" || echo 1 >"$status"
else
    echo "status: not held to what ran, because something failed above"
fi
exit "$(cat "$status")"
