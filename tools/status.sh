#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Holds docs/status.md to what ran: every test that a row names must be among the passed ones of cargo's output. No two
# rows have one id.
#
#   tools/status.sh docs/status.md target/test-output.txt
#   tools/status.sh --kubernetes docs/status.md target/test-kubernetes-output.txt
#
# Tests in a file whose name begins with kubernetes need the programs of Kubernetes. `make test` runs none of them, and
# `make test-kubernetes` no others: each is held to its own, and the other one's are counted.
#
# A row names its tests in backticks in the last column, each as `crate::path::of::test`; or a benchmark, which is not
# checked here, as "bench NAME"; or "make test-kernels", "make test-long" or "make mutants", the same; or says "not yet"
# and until when. The first part is the package as cargo prints it (with underscores); for an integration test the file
# follows: `juneau_lab::up::table_is_green` is the test `table_is_green` in juneau-lab/tests/up.rs, and
# `juneau_core::id::tests::round_trip` is a unit test of juneau-core. `kernels::6.1` is that row of the table of kernels.
set -eu

kubernetes=0
if [ "${1:-}" = --kubernetes ]; then
    kubernetes=1
    shift
fi
[ $# -eq 2 ] || {
    echo "usage: $0 [--kubernetes] STATUS.md CARGO-TEST-OUTPUT" >&2
    exit 2
}

awk -F'|' -v kubernetes="$kubernetes" '
    # First file: what ran. "Running unittests src/lib.rs (target/debug/deps/juneau_core-0123)" starts a binary;
    # integration tests are "Running tests/up.rs (...)"; their package is not printed, so it is left open.
    FNR == NR {
        if ($0 ~ /^ *Running unittests /) {
            prefix = $0
            sub(/.*\/deps\//, "", prefix)
            sub(/-[0-9a-f]+\).*/, "", prefix)
            prefix = prefix "::"
        } else if ($0 ~ /^ *Running tests\//) {
            prefix = $0
            sub(/.*Running tests\//, "", prefix)
            sub(/\.rs \(.*/, "", prefix)
            sub(/\/main$/, "", prefix)
            prefix = "*::" prefix "::"
        } else if ($0 ~ /^ *Doc-tests /) {
            prefix = "doc::"
        } else if (match($0, /(^|[^a-z_])test .* \.\.\. /) && $0 !~ / \.\.\. (ignored|FAILED)/) {
            # A program that a test started may write to its log before the name, or between the name and "ok". Nothing
            # failed, as this is asked only then; so what ran has passed.
            name = substr($0, RSTART)
            sub(/^.?test /, "", name)
            sub(/ \.\.\. .*/, "", name)
            sub(/ - should panic/, "", name)
            passed[prefix name] = 1
        } else if ($0 ~ /^[0-9]+\.[0-9]+ +[^ ]+ +[0-9]+ +0 +[0-9]+ +[0-9.]+/) {
            # A row of the table of kernels without a failure.
            split($0, words, " ")
            passed["kernels::" words[1]] = 1
        }
        next
    }
    # Second file: the rows. Only tables of three columns count, below their header.
    /^\|/ && NF >= 5 && $2 !~ /^ *(id|-+) *$/ {
        rows++
        if ($2 in row) {
            printf "status: there are two rows%s\n", $2
            bad = 1
        }
        row[$2] = 1
        cell = $(NF - 1)
        if (cell ~ /not yet/) { open_rows++; next }
        if (cell !~ /`/ && cell ~ /^ *(bench |make (test-kernels|test-long|mutants) *$)/) { next }
        if (cell !~ /`/) {
            printf "status: row%s names no test and does not say \"not yet\"\n", $2
            bad = 1
        }
        while (match(cell, /`[^`]+`/)) {
            test = substr(cell, RSTART + 1, RLENGTH - 2)
            cell = substr(cell, RSTART + RLENGTH)
            if ((test ~ /^[a-z_]+::kubernetes/) != kubernetes) { others++; continue }
            held++
            wild = test
            sub(/^[a-z_]+::/, "*::", wild)
            if (!(test in passed) && !(wild in passed)) {
                printf "status: row%sclaims %s, which did not run or did not pass\n", $2, test
                bad = 1
            }
        }
    }
    END {
        if (!rows) { print "status: no rows found"; bad = 1 }
        printf "status: %d rows, %d shown by tests, %d not yet", rows, rows - open_rows, open_rows
        printf "; %d tests held to this run, %d belong to make %s\n", held, others, kubernetes ? "test" : "test-kubernetes"
        exit bad
    }
' "$2" "$1"
