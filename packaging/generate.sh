#!/usr/bin/env bash
# Makes what a package holds besides the program: man page, completions, default configuration. All come from the program itself.
# Usage: generate.sh PYTHON DIRECTORY     (PYTHON has gpsched and argparse-manpage)
set -euo pipefail
python=$1 out=$2
mkdir -p "$out"
# The width is fixed so that the pages are the same wherever they are made.
export COLUMNS=100 NO_COLOR=1
"$python" -c 'import sys; from argparse_manpage.cli import main; sys.argv[0] = "argparse-manpage"; main()' \
	--module gpsched.cli.main --function build_parser --format single-commands-section \
	--project-name gpsched --prog gpsched --manual-section 1 --manual-title "gpsched manual" \
	--description "lets latency-critical services and best-effort jobs share NVIDIA GPUs" --output "$out/gpsched.1"
for shell in bash zsh; do "$python" -m gpsched.cli.main completion "$shell" >"$out/gpsched.$shell"; done
"$python" -m gpsched.cli.main config --default >"$out/config.toml"
