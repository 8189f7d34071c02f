#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs and fetches what the tests in the virtual machine need. Root, Debian, amd64; a second run does nothing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${GPSCHED_KMOD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpsched-kmod}
# QEMU and busybox run the machine, pahole makes the modules' BTF, gcc-12 is the compiler of both kernels' headers.
packages="qemu-system-x86 busybox-static pahole gcc-12 make patch clang libbpf1 libbpf-dev libelf-dev zstd xz-utils binutils"

missing=
for package in $packages; do
	dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
if [ -n "$missing" ]; then
	[ "$(id -u)" = 0 ] || { echo "vm-deps: as root install:$missing" >&2; exit 1; }
	export DEBIAN_FRONTEND=noninteractive
	# shellcheck disable=SC2086 # a list
	apt-get install -y -q --no-install-recommends $missing >/dev/null 2>&1 ||
		{ apt-get update -q >/dev/null && apt-get install -y -q --no-install-recommends $missing >/dev/null; }
fi
for kernel in ${KERNELS:-6.1 6.12}; do
	folder=$("$here/debian-fetch.sh" kernel "$kernel")
	[ -e "$folder/vmlinux" ] || "$here/extract-vmlinux.py" "$folder"/boot/vmlinuz-* "$folder/vmlinux"
done
for driver in ${DRIVERS:-535 550}; do
	"$here/debian-fetch.sh" driver "$driver" >/dev/null
done
make -s -C "$here/.." bpf
echo "vm-deps: ready ($(du -sh "$cache" 2>/dev/null | cut -f1) in the cache)"
