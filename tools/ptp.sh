#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Builds the CNI plugins ptp and host-local, with which `make bench-kubernetes` compares, from the Go module in tools/ptp,
# once for each version into the user's cache, and prints the folder that holds them.
set -eu

cd "$(dirname "$0")/ptp"
PATH=$PATH:/usr/local/go/bin
version=$(sed -n 's,.*github.com/containernetworking/plugins \(v[^ ]*\).*,\1,p' go.mod)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/juneau/cni-plugins/$version
mkdir -p "$folder"
# One process builds, others wait for it; a file that is there is whole.
exec 9>"$folder/lock"
flock 9
for plugin in main/ptp ipam/host-local; do
    name=${plugin#*/}
    [ -x "$folder/$name" ] && continue
    command -v go >/dev/null || {
        echo "ptp: there is no go: install Go 1.24 or newer (https://go.dev/dl)" >&2
        exit 1
    }
    CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -trimpath -ldflags '-s -w' -o "$folder/unfinished" \
        "github.com/containernetworking/plugins/plugins/$plugin" >&2
    mv "$folder/unfinished" "$folder/$name"
done
echo "$folder"
