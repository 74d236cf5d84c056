#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A Python wheel of library and command: pip install it, then `hakmem run -- python3 app.py`, without a compiler.
#
#   tools/wheel.sh [FOLDER]      builds it into FOLDER, which is new or empty (build-test/wheel, made anew), and tries
#                                it in a new environment
#
# Needs what a build needs, and python3-venv, -setuptools, -wheel. The wheel works on every system whose glibc has the
# newest symbol that the library calls: 2.34 if built on Debian 12.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/usage.sh"
usage "" "$@"

readonly ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly OUT=$(realpath -m -- "${1:-$ROOT/build-test/wheel}")
readonly PYTHON=/usr/bin/python3

build() {
    local version glibc stage=$OUT/stage
    [ $# -gt 0 ] || rm -rf "$OUT"
    mkdir -p "$OUT"
    [ -z "$(ls -A "$OUT")" ] || { echo "wheel.sh: $OUT is not empty: name a new folder" >&2; exit 2; }
    meson setup "$OUT/build" "$ROOT" -Dtests=false -Dbench=false -Dman=false --prefix "$OUT/prefix" --libdir lib
    meson install -C "$OUT/build" --quiet
    cp -r "$ROOT/tools/hakmem" "$stage"
    install -D -t "$stage/hakmem_workbench/lib" -m 644 "$OUT/prefix/lib/libhakmem.so.0" "$ROOT/LICENSE"
    install -t "$stage/hakmem_workbench/lib" -m 755 "$OUT"/prefix/lib/hakmem/*
    strip --strip-unneeded "$stage"/hakmem_workbench/lib/*hakmem*
    version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$ROOT/meson.build")
    # The measuring commands need more than the library.
    "$PYTHON" - "$stage/pyproject.toml" "$version" <<'EOF'
import re, sys
path, version = sys.argv[1:]
text = open(path).read()
text = text.replace('name = "hakmem-workbench"', f'name = "hakmem"\nversion = "{version}"') \
    .replace('dynamic = ["version"]\n', "")
text = re.sub(r'\[tool.setuptools.dynamic\]\n.*\n', "", text)
text = re.sub(r"dependencies = (\[[^]]*\])", r"dependencies = []", text, count=1) \
    .replace('test = ["pytest>=7"]',
             f'test = ["pytest>=7"]\nmeasure = {re.search(r"dependencies = (.[^]]*.)", text)[1]}')
text = text.replace('"py.typed"]', '"py.typed", "lib/*"]')
open(path, "w").write(text)
EOF
    glibc=$(objdump -T "$stage"/hakmem_workbench/lib/*hakmem* | grep -oP 'GLIBC_\K[0-9]+\.[0-9]+' | sort -V | tail -1)
    printf '[bdist_wheel]\npython_tag = py3\nplat_name = manylinux_%s_%s\n' \
        "${glibc/./_}" "$(uname -m)" >"$stage/setup.cfg"
    "$PYTHON" -m venv --system-site-packages "$OUT/builder"
    "$OUT/builder/bin/pip" wheel -q --no-index --no-deps --no-build-isolation -w "$OUT" "$stage"
}

# Runs in an environment without the checkout and without a compiler.
try() {
    local home=$OUT/environment path
    "$PYTHON" -m venv "$home"
    "$home/bin/pip" install -q --no-index "$OUT"/hakmem-*.whl
    ln -sf "$home/bin/python3" "$home/bin/python"
    path=$home/bin
    cd /
    env -i PATH="$path" HAKMEM_VERBOSE=1 hakmem run -- python -c 'print("ran")' >"$OUT/said" 2>&1
    grep -qx ran "$OUT/said" && grep -q '^hakmem: version' "$OUT/said"
    env -i PATH="$path" hakmem run -- python -c 'import hakmem; assert hakmem.trim() + hakmem.read("live") > 0'
    env -i PATH="$path" hakmem verify -- python -c 0 | grep -F "$home/lib" | grep -q 'library .*the one of this wheel'
    "$home/bin/pip" uninstall -q -y hakmem
    [ -z "$(find "$home" -name '*hakmem*')" ]
}

build "$@"
try
echo "wheel.sh: $(ls "$OUT"/*.whl)"
