#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The Rust crate in bindings/rust.
#
#   tools/rust.sh            tests it with each feature, packages it, and tests the package where no Python is
#   tools/rust.sh bench [OPERATIONS [ROUNDS]]    nanoseconds for an operation, beside other allocators' crates
#   tools/rust.sh vendor     makes the folder of sources that a package has; `cargo publish` needs it
#
# Needs cargo, and what it gets from a registry: the crate cc; for bench the other allocators and cmake.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/usage.sh"
usage "" "$@"

cd "$(dirname "${BASH_SOURCE[0]}")/../bindings/rust"
readonly FEATURES=("" cache-list header header-small hardened override allocator-api2 "header hardened"
    "cache-list override")
readonly ALLOCATORS=(system hakmem mimalloc jemalloc snmalloc rpmalloc)

vendor() {
    local header name ranges=()
    rm -rf vendor
    mkdir vendor
    cp -r ../../src ../../meson_options.txt vendor
    for name in $(sed -n "s/^option('frontends'.*value: \[\(.*\)\],/\1/p" ../../meson_options.txt | tr -d "',"); do
        ranges+=("$(sed -n "s/^size_ranges += '\(.*\)'/\1/p" "../../src/frontends/$name/meson.build")")
    done
    for header in false true small; do
        python3 ../../src/core/base/sizeclass.py "$header" 21 "vendor/sizeclass-$header.h" "${ranges[@]}"
    done
}

test_all() {
    local features version package bin
    version=$(sed -n "s/^  version: '\(.*\)',/\1/p" ../../meson.build)
    grep -qx "version = \"$version\"" Cargo.toml ||
        { echo "rust.sh: Cargo.toml has not version $version" >&2; return 1; }
    rm -rf vendor
    for features in "${FEATURES[@]}"; do
        cargo test --quiet --features "$features"
    done
    vendor
    cargo package --quiet --allow-dirty
    package=$PWD/target/package/hakmem-$version
    # A user's environment: no checkout, and no Python.
    bin=$(mktemp -d)
    printf '#!/bin/sh\nexit 1\n' >"$bin/python3"
    chmod +x "$bin/python3"
    PATH=$bin:$PATH cargo test --quiet --manifest-path "$package/Cargo.toml" --target-dir target --features header
    rm -rf vendor "$bin"
}

bench() {
    local name
    for name in "${ALLOCATORS[@]}"; do
        cargo build --quiet --release --manifest-path bench/Cargo.toml --features "${name/system/}"
        echo "$name" "$(bench/target/release/hakmem-bench "$@" | tr '\n' ' ')"
    done | column -t
}

case ${1:-test} in
    test) test_all ;;
    bench) bench "${@:2}" ;;
    vendor) vendor ;;
    *) echo "rust.sh: test, bench or vendor" >&2; exit 2 ;;
esac
