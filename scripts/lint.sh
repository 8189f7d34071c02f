#!/usr/bin/env bash
# Style, types and layers of the whole repository; stops at the first tool that complains.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
[ -x $bin/ruff ] || { echo "lint: run 'make setup' first" >&2; exit 1; }

# mypy wants a folder that is named like the package: the rooms are top-level folders of the namespace gpsched.
mkdir -p build/types && ln -sfn "$PWD" build/types/gpsched

$bin/ruff check .
$bin/ruff format --check .
rooms=(gpsched.adaptive gpsched.bench gpsched.cli gpsched.tuner)
MYPYPATH=build/types $bin/mypy "${rooms[@]/#/--package=}"
git ls-files '*.c' '*.h' | xargs $bin/clang-format --dry-run -Werror
$bin/lint-imports
