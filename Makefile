# make demo   sets everything up on a fresh machine and shows gpsched at work
# make test   sets everything up and runs the whole test suite
# make lint   style, types, layers
.PHONY: demo test lint setup native clean

# Loading BPF programs and controlling the driver need root.
AS_ROOT = $(shell [ "$$(id -u)" = 0 ] || echo sudo)
PYTHON = .venv/bin/python
NATIVE = adaptive/simgpu/native adaptive/actuator/native adaptive/agent/native adaptive/hints/native bench/programs

demo:
	@scripts/setup.sh demo
	@$(AS_ROOT) $(PYTHON) -m gpsched.cli.main demo

test:
	@scripts/setup.sh test
	@$(AS_ROOT) $(PYTHON) -m pytest

setup:
	@scripts/setup.sh test

native:
	@for folder in $(NATIVE); do $(MAKE) --no-print-directory -C $$folder || exit; done

lint:
	@scripts/lint.sh

clean:
	@for folder in $(NATIVE); do $(MAKE) --no-print-directory -C $$folder clean; done
	rm -rf build .venv .mypy_cache .ruff_cache .pytest_cache
