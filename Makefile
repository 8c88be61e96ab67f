# make demo        probe this machine, search for three minutes, train with what was found
# make test        the test suite, but for what takes long
# make test-long   what takes long
# make test-hosts  tests on several hosts, brought up on this machine: needs root, sshd, ip, tc
# make check       format, lint, types, tests: what CI runs; on several hosts where TESTBED is set
#
# Needs Python >= 3.11 and nothing else: no root, no MPI, no compiler. Uses uv where it is found.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
BUDGET ?= 3m
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

# mpirun refuses root unless it is told. Whoever runs a demo as root is in a container, most likely;
# the option shows in what make prints.
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] && echo --allow-run-as-root)

# Tests of training steps run one after another. A third process uses the cores while others wait.
AT_ONCE := --numprocesses 3

.PHONY: demo test test-long test-hosts check format clean

demo: $(VENV)/ready
	$(BIN)/ddlplan probe
	$(BIN)/ddlplan tune --use-case simplebig --budget $(BUDGET)
	$(BIN)/ddlplan plans best --use-case simplebig
	$(BIN)/ddlplan launch --use-case simplebig --epochs 1 $(AS_ROOT)

test: $(VENV)/ready-dev
	env -u TESTBED $(BIN)/pytest $(AT_ONCE) -m "not long"

test-long: $(VENV)/ready-dev
	env -u TESTBED $(BIN)/pytest $(AT_ONCE) -m "long and not hosts"

test-hosts: $(VENV)/ready-dev
	TESTBED=$${TESTBED:-1} $(BIN)/pytest --numprocesses 2 -m hosts --durations 10

check: $(VENV)/ready-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy bench/*.py
	$(MAKE) --no-print-directory test
	$(BIN)/pytest --numprocesses 4 --durations 10 -m "long or hosts"  # which wait much of the time

format: $(VENV)/ready-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV)

# The stamp is written last: a set-up that was interrupted is done again.
$(VENV)/ready: pyproject.toml
	$(call install,.[serve])
	touch $@

$(VENV)/ready-dev: pyproject.toml
	$(call install,.[dev])
	touch $@ $(VENV)/ready

define install
	@if command -v uv >/dev/null; then \
		uv venv --quiet --allow-existing --python '>=3.11' $(VENV) && \
		uv pip install --quiet --compile-bytecode --python $(BIN)/python --editable '$(1)'; \
	elif [ -n "$(PYTHON)" ]; then \
		echo "setting up $(VENV): a few minutes and about 6 GB, once"; \
		$(PYTHON) -m venv $(VENV) || { \
			echo "error: $(PYTHON) has no venv: install python3-venv, or uv" >&2; exit 2; }; \
		$(BIN)/python -m pip install --quiet --editable '$(1)'; \
	else \
		echo "error: Python >= 3.11 is needed: install it, or name it by PYTHON=" >&2; exit 2; \
	fi
endef
