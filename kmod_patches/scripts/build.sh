#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds a patched nvidia.ko (only that module; the others are unchanged) outside of the driver's tree.
#
# usage: build.sh DRIVER KERNEL OUT
#   DRIVER  535 or 550 (Debian's, fetched), or a driver tree of yours
#   KERNEL  6.1 or 6.12 (Debian's, fetched), or a release as `uname -r` prints it
#   OUT     where nvidia.ko and Module.symvers go
# environment: GPSCHED_PLAIN=1 leaves the driver unpatched (to test the companion module)
#              GPSCHED_TEST=1 builds for the virtual machine (believes processes, loads without a GPU; see test.c)
#              GPSCHED_KMOD_CACHE, JOBS (2)
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
driver=${1:?usage: build.sh DRIVER KERNEL OUT} kernel=${2:?usage: build.sh DRIVER KERNEL OUT} out=${3:?no OUT}
cache=${GPSCHED_KMOD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpsched-kmod}
fail() {
	echo "build: $*" >&2
	exit 1
}

case $driver in
535 | 550) source=$("$here/scripts/debian-fetch.sh" driver "$driver") ;;
*) source=$driver ;;
esac
case $kernel in
6.1 | 6.12)
	root=$("$here/scripts/debian-fetch.sh" kernel "$kernel")
	output=$(echo "$root"/usr/src/linux-headers-*-amd64)
	headers=$(echo "$root"/usr/src/linux-headers-*-common)
	;;
*)
	output=/lib/modules/$kernel/build
	headers=/lib/modules/$kernel/source
	[ -d "$headers" ] || headers=$output
	[ -e "$output/Module.symvers" ] || fail "no headers of kernel $kernel; install linux-headers-$kernel"
	root=
	;;
esac

# Most of a build's time goes into the driver's tests of the kernel's headers and into files that we do not touch: the
# tree is kept, and make does what is left. One build at a time in each.
name=$(echo "$driver-$kernel${GPSCHED_TEST:+-test}${GPSCHED_PLAIN:+-plain}" | tr -c 'a-zA-Z0-9.\n-' _)
work=$cache/build/$name
mkdir -p "$work"
exec 9>"$work/lock"
flock 9
stamp=$( (cat "$source/dkms.conf" "$source/version.mk" "$output/include/generated/utsrelease.h" 2>/dev/null || true) | sha256sum)
[ "$(cat "$work/stamp" 2>/dev/null)" = "$stamp" ] || rm -rf "$work/tree"
echo "$stamp" >"$work/stamp"
if [ ! -d "$work/tree" ]; then cp -rp "$source" "$work/new" && mv "$work/new" "$work/tree"; fi
for file in nv.c nv-pci.c nvidia-sources.Kbuild; do # as they were before the last build
	pristine=$source/nvidia/$file
	[ -e "$pristine" ] || pristine=$source/kernel-open/nvidia/$file
	cp -p "$pristine" "$(find "$work/tree" -path "*/nvidia/$file" | head -1)"
done
find "$work/tree" -path '*/nvidia/gpsched/*.[ch]' -delete
# not patched: what the companion module is for
[ "${GPSCHED_PLAIN:-}" = 1 ] || "$here/scripts/patch-tree.sh" "$work/tree"
layer=$work/tree
[ ! -d "$work/tree/kernel-open" ] || layer=$work/tree/kernel-open

# 6.1.192 of Debian took over pci_resize_resource() with a fourth argument (exclude_bars), which drivers before 575 do
# not know: without this no driver of that age builds there, patched or not.
if grep -q 'pci_resize_resource.*exclude_bars' -r "$headers/include/linux/pci.h" ||
	grep -A2 'pci_resize_resource' "$headers/include/linux/pci.h" | grep -q exclude_bars; then
	sed -i 's/pci_resize_resource(pci_dev, NV_GPU_BAR1, requested_size)/pci_resize_resource(pci_dev, NV_GPU_BAR1, requested_size, 0)/' \
		"$layer/nvidia/nv-pci.c"
fi
if [ "${GPSCHED_TEST:-}" = 1 ]; then
	# The driver refuses to load without a GPU unless there is an NVSwitch: say that there is.
	sed -i 's/is_nvswitch_present = os_is_nvswitch_present();/is_nvswitch_present = NV_TRUE;/' "$layer/nvidia/nv.c"
	grep -q 'is_nvswitch_present = NV_TRUE' "$layer/nvidia/nv.c" || fail "cannot make this driver load without a GPU"
	[ "${GPSCHED_PLAIN:-}" = 1 ] || echo 'NVIDIA_CFLAGS += -DGPSCHED_TEST=1' >>"$layer/nvidia/nvidia-sources.Kbuild"
fi

if ! make -C "$layer" -j"${JOBS:-2}" modules SYSSRC="$headers" SYSOUT="$output" \
	NV_EXCLUDE_KERNEL_MODULES="nvidia-uvm nvidia-drm nvidia-modeset nvidia-peermem" >"$work/log" 2>&1; then
	grep -E 'error|Error|\*\*\*' "$work/log" | head -20 >&2
	fail "nvidia.ko of $source does not build for kernel $kernel"
fi
grep -E 'nvidia/gpsched/.*warning' "$work/log" >&2 && fail "gpsched compiles with warnings"
if [ -n "$root" ] && [ ! -e "$output/vmlinux" ] && [ "${GPSCHED_PLAIN:-}" != 1 ]; then
	"$here/scripts/module-btf.sh" "$layer/nvidia.ko" "$root"
fi
mkdir -p "$out"
cp "$layer/nvidia.ko" "$layer/Module.symvers" "$out/"
echo "build: $out/nvidia.ko ($(modinfo -F vermagic "$out/nvidia.ko" 2>/dev/null || echo "kernel $kernel"))"
