#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the kernel that finds what Debian's cannot: KASAN, lockdep, sleeping in atomic context, kmemleak, debug objects.
# From Debian's own kernel source, everything built in that the tests' machine needs. Root (installs flex, bison, bc), some
# 30 minutes of processor time and 8 GB; a second run does nothing.
# usage: debug-kernel.sh      -> prints the folder that holds the kernel's files
# environment: GPSCHED_KMOD_CACHE (default: $XDG_CACHE_HOME/gpsched-kmod), JOBS (2)
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
cache=${GPSCHED_KMOD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpsched-kmod}
target=$cache/kernel/debug
source=$target/source

if [ ! -e "$target/vmlinux" ]; then
	for tool in flex bison bc; do
		command -v $tool >/dev/null || apt-get install -y -q --no-install-recommends $tool >&2
	done
	mkdir -p "$target/lib/modules/none" # nothing is a module
	if [ ! -e "$source/Makefile" ]; then
		archive=$("$here/scripts/debian-fetch.sh" source 6.12)
		mkdir -p "$source"
		tar -xf "$archive"/usr/src/linux-source-6.12.tar.xz -C "$source" --strip-components=1
	fi
	cp "$here/debug.config" "$source/kernel/configs/gpsched.config"
	{
		make -s -C "$source" CC=gcc-12 tinyconfig gpsched.config
		make -s -C "$source" -j"${JOBS:-2}" CC=gcc-12 vmlinux modules
	} >"$target/log" 2>&1 || {
		tail -5 "$target/log" >&2
		echo "debug-kernel: the kernel does not build; the whole log: $target/log" >&2
		exit 1
	}
	for option in KASAN PROVE_LOCKING DEBUG_ATOMIC_SLEEP DEBUG_KMEMLEAK DEBUG_INFO_BTF_MODULES; do
		grep -q "^CONFIG_$option=y" "$source/.config" || {
			echo "debug-kernel: CONFIG_$option did not take; debug.config is too old for this source" >&2
			exit 1
		}
	done
	cp "$source/vmlinux" "$target/vmlinux"
fi
echo "$target"
