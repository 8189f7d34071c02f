#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Puts gpsched into a driver tree: checks, patches, copies gpsched/, checks again. All or nothing.
# usage: patch-tree.sh TREE
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
tree=${1:?usage: patch-tree.sh TREE}

python3 "$here/check.py" "$tree"
if [ -d "$tree/kernel-open/nvidia" ]; then
	folder=$tree/kernel-open
else
	folder=$tree
fi
# -p2 from inside the layer, not through a linked folder; -F0: no guessing.
apply() { patch -d "$folder" -p2 -F0 -s -f --no-backup-if-mismatch -r - "$@" <"$here/patches/gpsched-hooks.patch"; }
apply --dry-run >/dev/null || {
	echo "patch-tree: the hooks do not apply to $folder; nothing was changed" >&2
	exit 1
}
undo() {
	apply -R || true
	rm -rf "$folder/nvidia/gpsched"
	echo "patch-tree: $folder is as it was" >&2
}
trap undo ERR
apply
mkdir -p "$folder/nvidia/gpsched"
cp "$here"/gpsched/*.[ch] "$folder/nvidia/gpsched/"
rm -f "$folder/nvidia/gpsched/companion.c"
python3 "$here/check.py" --patched "$tree"
