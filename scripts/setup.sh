#!/usr/bin/env bash
# Makes a fresh Debian 12, Ubuntu 22.04 or 24.04 machine ready: system packages, kernel headers, virtual environment, native builds.
# Every step first looks whether it is done, so a second run takes seconds.
# Usage: setup.sh [demo|test]   (test adds what only the tests need)
set -euo pipefail
cd "$(dirname "$0")/.."

purpose=${1:-demo}
packages=(python3-bpfcc python3-venv gcc make pkg-config fuse3 libfuse3-dev libbpf-dev)
slurm_packages=(slurm-wlm slurmdbd mariadb-server munge) # a real Slurm for tests/cluster/test_slurm.py
deb_packages=(build-essential debhelper lintian) # the Debian package for tests/cli/test_deb.py
test_packages=("${slurm_packages[@]}" "${deb_packages[@]}")
python_minimum=3.11

say() { printf '==> %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"
	elif command -v sudo >/dev/null; then sudo "$@"
	else fail "root is needed for: $*"; fi
}

installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'; }

install_packages() {
	command -v apt-get >/dev/null || fail "apt-get not found: install by hand: $* (Debian and Ubuntu are supported)"
	local missing=()
	for package in "$@"; do installed "$package" || missing+=("$package"); done
	[ ${#missing[@]} -eq 0 ] && return
	say "installing ${missing[*]}"
	as_root apt-get update -qq
	# A machine that has just started may be upgrading itself: wait for it.
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends \
		"${missing[@]}" >/dev/null
}

# bcc needs headers of any version near enough; those of the running kernel are best, but not every kernel has a package.
kernel_headers() {
	[ -e "/lib/modules/$(uname -r)/build/include" ] && return
	compgen -G '/usr/src/linux-headers-*' >/dev/null && return
	local exact="linux-headers-$(uname -r)" generic=linux-headers-amd64
	grep -q '^ID=ubuntu' /etc/os-release && generic=linux-headers-generic
	as_root apt-get update -qq
	if apt-cache show "$exact" >/dev/null 2>&1; then install_packages "$exact"; else install_packages "$generic"; fi
}

# bcc's Python package lies in the system's dist-packages, which every system Python 3 shares; so the environment must be of a system Python.
system_python() {
	local candidate
	for candidate in /usr/bin/python3 /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11; do
		if [ -x "$candidate" ] && "$candidate" -c "import sys; sys.exit(sys.version_info < (${python_minimum/./, }))"; then
			echo "$candidate"; return
		fi
	done
}

virtual_environment() {
	local python; python=$(system_python)
	if [ -z "$python" ]; then # Ubuntu 22.04: its own is 3.10
		install_packages "python$python_minimum" "python$python_minimum-venv"
		python=$(system_python)
	fi
	[ -n "$python" ] || fail "no Python $python_minimum or newer in /usr/bin"
	local wanted; wanted="$(cksum <pyproject.toml) $("$python" -V)"
	[ "$(cat .venv/wanted 2>/dev/null)" = "$wanted" ] && return
	say "making the virtual environment (.venv) with $("$python" -V)"
	[ -x .venv/bin/python ] || "$python" -m venv --system-site-packages .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	echo "$wanted" >.venv/wanted
}

say "system packages"
install_packages "${packages[@]}"
[ "$purpose" = test ] && [ ${#test_packages[@]} -gt 0 ] && install_packages "${test_packages[@]}"
say "kernel headers"; kernel_headers
say "virtual environment"; virtual_environment
say "native programs"; make --no-print-directory native
say "ready"
