#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Builds cnitool, the CNI specification's own driver, from the Go module in tools/cni, once for each version into the
# user's cache, and prints its path.
set -eu

cd "$(dirname "$0")/cni"
PATH=$PATH:/usr/local/go/bin
version=$(sed -n 's,.*github.com/containernetworking/cni \(v[^ ]*\).*,\1,p' go.mod)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/juneau/cni/$version
mkdir -p "$folder"
# One process builds, others wait for it; a file that is there is whole.
exec 9>"$folder/lock"
flock 9
if ! [ -x "$folder/cnitool" ]; then
    command -v go >/dev/null || {
        echo "cnitool: there is no go: install Go 1.24 or newer (https://go.dev/dl)" >&2
        exit 1
    }
    CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -trimpath -o "$folder/unfinished" \
        github.com/containernetworking/cni/cnitool >&2
    mv "$folder/unfinished" "$folder/cnitool"
fi
echo "$folder/cnitool"
