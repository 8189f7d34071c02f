#!/usr/bin/env bash
# Builds the Debian package from what is committed, and has lintian look at it.
# Usage: build-deb.sh DIRECTORY      (the package lies there afterwards)
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/gpsched" "$out"
git archive HEAD | tar -x -C "$work/gpsched"
cp -r "$work/gpsched/packaging/debian" "$work/gpsched/debian"
(cd "$work/gpsched" && dpkg-buildpackage --build=binary --unsigned-changes --unsigned-source)
cp "$work"/gpsched_*.deb "$work"/gpsched_*.changes "$out/"
lintian --fail-on error --display-level '>=warning' "$out"/gpsched_*.deb
