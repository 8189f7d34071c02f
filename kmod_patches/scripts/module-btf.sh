#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Gives a module the BTF that its build could not: headers of 6.1 come without vmlinux. Without BTF the module works, but
# BPF programs cannot call it.
# usage: module-btf.sh MODULE.ko KERNEL-FOLDER (as debian-fetch.sh prints it)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
module=$1 kernel=$2
[ -e "$kernel/vmlinux" ] || "$here/extract-vmlinux.py" "$kernel"/boot/vmlinuz-* "$kernel/vmlinux"
resolve=$(ls "$kernel"/usr/lib/linux-kbuild-*/tools/bpf/resolve_btfids/resolve_btfids 2>/dev/null || true)
if [ -z "$resolve" ]; then # Debian ships it from 6.12 on; the tool does not depend on the kernel
	newer=$("$here/debian-fetch.sh" kernel 6.12)
	resolve=$(ls "$newer"/usr/lib/linux-kbuild-*/tools/bpf/resolve_btfids/resolve_btfids)
fi
# What the kernel itself passes to pahole; the driver's C++ is left out.
LLVM_OBJCOPY=objcopy pahole -J --btf_base "$kernel/vmlinux" --skip_encoding_btf_inconsistent_proto --btf_gen_optimized \
	--skip_encoding_btf_enum64 --lang_exclude=rust,c++,c++11 "$module" 2>/dev/null ||
	LLVM_OBJCOPY=objcopy pahole -J --btf_base "$kernel/vmlinux" --skip_encoding_btf_enum64 "$module"
"$resolve" -b "$kernel/vmlinux" "$module"
