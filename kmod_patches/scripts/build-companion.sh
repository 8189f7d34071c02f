#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds gpsched_companion.ko for a driver that stays as it is.
# usage: build-companion.sh KERNEL NVIDIA.ko OUT
#   KERNEL     6.1 or 6.12 (Debian's, fetched), or a release as `uname -r` prints it
#   NVIDIA.ko  the installed driver module, e.g. `modinfo -n nvidia`
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
kernel=${1:?no KERNEL} driver=${2:?no NVIDIA.ko} out=${3:?no OUT}
case $kernel in
6.1 | 6.12)
	root=$("$here/scripts/debian-fetch.sh" kernel "$kernel")
	output=$(echo "$root"/usr/src/linux-headers-*-amd64)
	;;
*)
	root=
	output=/lib/modules/$kernel/build
	[ -e "$output/Module.symvers" ] || {
		echo "build-companion: no headers of kernel $kernel; install linux-headers-$kernel" >&2
		exit 1
	}
	;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/gpsched" "$out"
cp "$here/companion/Kbuild" "$work/Kbuild"
cp "$here"/gpsched/*.[ch] "$work/gpsched/"
"$here/scripts/symvers.py" "$driver" >"$work/nvidia.symvers"
make -C "$output" M="$work" -j"${JOBS:-2}" modules GPSCHED_TEST="${GPSCHED_TEST:-}" \
	KBUILD_EXTRA_SYMBOLS="$work/nvidia.symvers" >"$work/log" 2>&1 || {
	grep -E 'error|\*\*\*|undefined' "$work/log" | head -20 >&2
	echo "build-companion: does not build for kernel $kernel" >&2
	exit 1
}
if grep -E 'warning:' "$work/log" | grep -v 'compiler differs' | head -20 | grep . >&2; then
	echo "build-companion: gpsched compiles with warnings" >&2
	exit 1
fi
if [ -n "$root" ] && [ ! -e "$output/vmlinux" ]; then
	"$here/scripts/module-btf.sh" "$work/gpsched_companion.ko" "$root"
fi
cp "$work/gpsched_companion.ko" "$out/"
echo "build-companion: $out/gpsched_companion.ko"
