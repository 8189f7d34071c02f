#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fetches what the virtual-machine tests build from: Debian's packages of NVIDIA's open kernel modules and of
# the kernels, unpacked under the cache folder, never installed.
#
# Why a private apt root: the packages live in components and suites (contrib, trixie, backports) that a machine
# must not start to prefer for its own upgrades. The mirror is the one this machine's apt already uses.
#
# usage: debian-fetch.sh driver 535|550      -> prints the unpacked source folder
#        debian-fetch.sh kernel 6.1|6.12     -> prints the folder that holds the kernel's files
# environment: GPSCHED_KMOD_CACHE (default: $XDG_CACHE_HOME/gpsched-kmod)
set -euo pipefail

cache=${GPSCHED_KMOD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpsched-kmod}
root=$cache/apt

# No reader below stops early (awk's exit, head): with pipefail the writer's SIGPIPE would end the script now and then.
fail() {
	echo "debian-fetch: $*" >&2
	exit 1
}

mirror() { # mirror SUITE-PATTERN: the address of the first apt source whose suite matches
	apt-get indextargets --format '$(SITE) $(RELEASE)' | awk -v suite="$1" '$2 ~ suite && !found++ { print $1 }'
}

prepare_apt() {
	command -v apt-get >/dev/null || fail "needs apt: the tests build from Debian's packages"
	local debian security keys=/usr/share/keyrings/debian-archive-keyring.gpg
	debian=$(mirror '^(bookworm|trixie|stable)$')
	[ -n "$debian" ] || fail "no Debian mirror among apt's sources (apt-get indextargets lists none)"
	security=$(mirror '-security$')
	mkdir -p "$root"/{lists/partial,archives/partial,sources,preferences,trusted}
	cat >"$root/sources/gpsched.sources" <<-END
		Types: deb
		URIs: $debian
		Suites: bookworm bookworm-backports trixie
		Components: main contrib
		Architectures: amd64
		Signed-By: $keys
	END
	[ -z "$security" ] || cat >>"$root/sources/gpsched.sources" <<-END

		Types: deb
		URIs: $security
		Suites: bookworm-security
		Components: main
		Architectures: amd64
		Signed-By: $keys
	END
	: >"$root/status"
}

apt_() { # apt-get or apt-cache, apart from the system's own state
	local tool=$1
	shift
	"$tool" -q -o Dir::State="$root" -o Dir::State::lists="$root/lists" -o Dir::State::status="$root/status" \
		-o Dir::Cache="$root" -o Dir::Cache::archives="$root/archives" \
		-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$root/sources" \
		-o Dir::Etc::preferencesparts="$root/preferences" -o APT::Architecture=amd64 \
		-o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=3 \
		-o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false "$@"
}

update_lists() {
	[ -n "$(find "$root/lists" -name '*Packages*' -mmin -1440 2>/dev/null | head -1)" ] && return
	apt_ apt-get update >&2 || fail "apt could not read the package lists (network?)"
}

newest() { # newest PACKAGE VERSION-PATTERN: the version to take
	apt_ apt-cache madison "$1" | awk -F' *\\| *' -v want="$2" '$2 ~ want && !found++ { print $2 }'
}

unpack() { # unpack TARGET PACKAGE=VERSION...: download and extract, whole or not at all
	local target=$1 work
	shift
	work=$(mktemp -d "$cache/unpack.XXXXXX")
	(cd "$work" && apt_ apt-get download "$@" >&2) || { rm -rf "$work"; fail "cannot download $*"; }
	for deb in "$work"/*.deb; do
		dpkg-deb -x "$deb" "$work/root"
	done
	# The headers name each other by the path that they would be installed at.
	find "$work/root" -path '*/usr/src/linux-headers-*/Makefile' -exec \
		sed -i "s#^include /usr/src/#include $target/usr/src/#" {} +
	rm -rf "$target"
	mkdir -p "$(dirname "$target")"
	mv "$work/root" "$target"
	rm -rf "$work"
}

driver() {
	local branch=$1 target=$cache/driver/$1 version
	if [ ! -d "$target/usr/src" ]; then
		prepare_apt && update_lists
		version=$(newest nvidia-open-kernel-dkms "^$branch[.]")
		[ -n "$version" ] || fail "no nvidia-open-kernel-dkms $branch.* in Debian"
		unpack "$target" "nvidia-open-kernel-dkms=$version"
		# The RM's object carries 200 MB of debug information that nothing here reads.
		find "$target" -name '*.o_binary' -exec strip -g {} +
	fi
	echo "$target"/usr/src/*
}

kernel() {
	local series=$1 target=$cache/kernel/$1 version abi kbuild
	if [ ! -d "$target/boot" ]; then
		prepare_apt && update_lists
		version=$(newest linux-headers-amd64 "^$series[.].*$([ "$series" = 6.1 ] || echo bpo)")
		[ -n "$version" ] || fail "no linux-headers-amd64 $series in Debian"
		abi=$(apt_ apt-cache show "linux-headers-amd64=$version" | sed -n 's/^Depends:.*linux-headers-\([^ ,]*\).*/\1/p' | sort -u | tail -1)
		kbuild=$(apt_ apt-cache show "linux-headers-$abi=$version" | sed -n 's/^Depends:.*\(linux-kbuild-[^ ,]*\).*/\1/p' | sort -u | tail -1)
		[ -n "$abi" ] && [ -n "$kbuild" ] || fail "cannot read the dependencies of linux-headers-amd64 $version"
		unpack "$target" "linux-headers-$abi=$version" "linux-headers-${abi%-amd64}-common=$version" \
			"$kbuild=$version" "$(image_package "$abi" "$version")"
	fi
	echo "$target"
}

image_package() { # the unsigned image is not always published; the signed one is the same code
	local version
	version=$(newest "linux-image-$1" .)
	[ -n "$version" ] && echo "linux-image-$1=$version" || echo "linux-image-$1-unsigned=$2"
}

mkdir -p "$cache"
case "${1:-} ${2:-}" in
"driver 535" | "driver 550" | "kernel 6.1" | "kernel 6.12") "$1" "$2" ;;
*) fail "usage: debian-fetch.sh driver 535|550 | kernel 6.1|6.12" ;;
esac
