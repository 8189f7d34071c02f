# make demo   sets everything up on a fresh machine and shows gpsched at work
# make test   sets everything up and runs the whole test suite
# make lint   style, types, layers
.PHONY: demo test lint setup native clean

PYTHON = .venv/bin/python
NATIVE = adaptive/simgpu/native adaptive/actuator/native adaptive/agent/native adaptive/hints/native bench/programs

demo:
	@scripts/setup.sh demo
	@$(PYTHON) -m gpsched.cli.main demo

test:
	@scripts/setup.sh test
	@$(PYTHON) -m pytest

setup:
	@scripts/setup.sh test

native:
	@for folder in $(NATIVE); do $(MAKE) --no-print-directory -C $$folder || exit; done

lint:
	@scripts/lint.sh

clean:
	@for folder in $(NATIVE); do $(MAKE) --no-print-directory -C $$folder clean; done
	rm -rf build .venv .mypy_cache .ruff_cache .pytest_cache
