#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Checks what a build, the tests or the lab need before any of them starts, and installs the Debian packages that are
# missing. It is a shell script because Rust itself may be what is missing.
#
#   tools/preflight.sh build   what compiling needs; any user
#   tools/preflight.sh lab     also what the lab and the tests need: root, the kernel, captures
#   tools/preflight.sh kubernetes   also what runs and builds a Kubernetes API server: etcd, Go
#   tools/preflight.sh conformance  also what Kubernetes' own tests run in their Pods
#
# NO_INSTALL=1 lists what is missing and installs nothing. Exit status 1 when something is missing at the end.
set -u

mode=${1:-build}
case $mode in
    build | lab | kubernetes) programs="kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet" ;;
    conformance) programs="kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet e2e.test ginkgo agnhost" ;;
    *)
        echo "usage: $0 build|lab|kubernetes|conformance" >&2
        exit 2
        ;;
esac

rust_minimum=1.91
kernel_minimum=6.1
disk_minimum_mib=4096
go_disk_minimum_mib=6144

failed=0
packages=
root_dir=$(cd "$(dirname "$0")/.." && pwd)

# problem WHAT REMEDY
problem() {
    printf 'preflight: %s\n           %s\n' "$1" "$2" >&2
    failed=1
}

# at_least VERSION MINIMUM, both MAJOR.MINOR[...]
at_least() {
    have_major=${1%%.*}
    have_rest=${1#*.}
    have_minor=${have_rest%%[!0-9]*}
    [ "$have_major" -gt "${2%%.*}" ] || { [ "$have_major" -eq "${2%%.*}" ] && [ "${have_minor:-0}" -ge "${2#*.}" ]; }
}

# need PACKAGE TEST...: remembers the package when the test fails
need() {
    package=$1
    shift
    "$@" >/dev/null 2>&1 || packages="$packages $package"
}

command_exists() { command -v "$1"; }
header_exists() { echo "#include <$1>" | cc -E -o /dev/null -; }
clang_has_bpf() { clang -print-targets | grep -q '^ *bpf '; }

find_packages() {
    packages=
    need gcc command_exists cc
    need libc6-dev header_exists stdio.h
    need make command_exists make
    need pkg-config command_exists pkg-config
    need clang clang_has_bpf
    need libelf-dev header_exists libelf.h
    need zlib1g-dev header_exists zlib.h
    if [ "$mode" != build ]; then
        need iproute2 command_exists ip
        need iputils-ping command_exists ping
        need tcpdump command_exists tcpdump
        need bpftool command_exists bpftool
        need ethtool command_exists ethtool
    fi
    if [ "$mode" = kubernetes ] || [ "$mode" = conformance ]; then
        need etcd-server etcd_exists
        need util-linux command_exists setpriv
    fi
    if [ "$mode" = conformance ]; then
        need bash command_exists bash
        need curl command_exists curl
        need wget command_exists wget
        need netcat-openbsd command_exists nc.openbsd
        need bind9-dnsutils command_exists dig
    fi
}

# KUBEBUILDER_ASSETS names a folder with programs that win over all others.
etcd_exists() { [ -x "${KUBEBUILDER_ASSETS:-}/etcd" ] || command -v etcd; }

# Whether a program of Kubernetes is given, or was built into the cache already.
kubernetes_has() {
    version=$(awk '$1 == "k8s.io/kubernetes" { print $2 } $2 == "k8s.io/kubernetes" { print $3 }' \
        "$root_dir/tools/kubernetes/go.mod" | head -n 1)
    [ -x "${KUBEBUILDER_ASSETS:-}/$1" ] ||
        [ -x "${XDG_CACHE_HOME:-$HOME/.cache}/juneau/kubernetes/$version/bin/$1" ]
}

PATH=$PATH:/usr/sbin:/sbin:/usr/local/go/bin

# The machine.
if [ "$mode" != build ]; then
    [ "$(id -u)" -eq 0 ] || problem "not root: the lab makes network namespaces and loads BPF programs" \
        "run it as root, for example with sudo; building and 'cargo test -p juneau-core' need no root"
    kernel=$(uname -r)
    at_least "$kernel" "$kernel_minimum" || problem "kernel $kernel is older than $kernel_minimum" \
        "boot a newer kernel; Debian 12 has 6.1, and 6.12 in its security suite"
    [ -r /sys/kernel/btf/vmlinux ] || problem "the kernel has no BTF (/sys/kernel/btf/vmlinux)" \
        "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y; distribution kernels have it"
    grep -qw cgroup2 /proc/filesystems || problem "the kernel has no cgroup v2" \
        "boot a kernel built with CONFIG_CGROUPS=y and CONFIG_CGROUP_BPF=y"
fi
free_mib=$(df -Pm "$root_dir" | awk 'NR == 2 { print $4 }')
if [ "${free_mib:-0}" -lt "$disk_minimum_mib" ] && [ ! -d "$root_dir/target/debug" ]; then
    problem "only $free_mib MiB are free for $root_dir/target, a build takes up to $disk_minimum_mib" \
        "free some space, or set CARGO_TARGET_DIR to a place that has it"
fi

# Rust.
if ! command -v cargo >/dev/null 2>&1 && [ -x "$HOME/.cargo/bin/cargo" ]; then
    PATH=$HOME/.cargo/bin:$PATH
fi
if rust=$(rustc --version 2>/dev/null) && command -v cargo >/dev/null 2>&1; then
    rust=${rust#rustc }
    at_least "$rust" "$rust_minimum" || problem "Rust ${rust%% *} is older than $rust_minimum" \
        "run: rustup update stable"
else
    problem "Rust is missing (at least $rust_minimum)" \
        "run: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . \"\$HOME/.cargo/env\""
fi

# Go, unless all that it builds is there.
if [ "$mode" = kubernetes ] || [ "$mode" = conformance ]; then
    for program in $programs; do
        kubernetes_has "$program" && continue
        command -v go >/dev/null 2>&1 || problem "Go is missing, and with it $program (at least Go 1.21)" \
            "get it from https://go.dev/dl, or set KUBEBUILDER_ASSETS to a folder that holds the programs"
        free_mib=$(df -Pm "${HOME:-/}" | awk 'NR == 2 { print $4 }')
        [ "${free_mib:-0}" -ge "$go_disk_minimum_mib" ] || problem \
            "only $free_mib MiB are free for Go's caches in ${HOME:-/}, building Kubernetes takes $go_disk_minimum_mib" \
            "free some space, or set GOCACHE and GOMODCACHE to places that have it"
        break
    done
fi

# Packages.
find_packages
if [ -n "$packages" ]; then
    if [ "${NO_INSTALL:-0}" != 0 ]; then
        problem "missing packages:$packages" "run: apt-get install --no-install-recommends$packages"
    elif [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        problem "missing packages (Debian's names):$packages" \
            "install them; on Debian, as root: apt-get install --no-install-recommends$packages"
    else
        echo "preflight: installing$packages"
        wanted=$packages
        export DEBIAN_FRONTEND=noninteractive
        # The package lists may be absent or old: fetch them only when the first try fails.
        # shellcheck disable=SC2086 # one word per package is meant
        apt-get install -qq -y --no-install-recommends $wanted >/dev/null 2>&1 ||
            { apt-get update -qq && apt-get install -qq -y --no-install-recommends $wanted >/dev/null; }
        find_packages
        [ -z "$packages" ] || problem "still missing after the installation:$packages" \
            "see what apt-get said above"
    fi
fi

[ "$failed" -eq 0 ] || exit 1
echo "preflight: ready ($mode)"
