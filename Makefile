# make setup | test | check | pytest | demo | bench | format | clean
#
#   PYTHON=python3.12       the interpreter that a new virtual environment is made from
#   VENV=/opt/env           another virtual environment; a torch it already has is kept
#   USE_CURRENT_ENV=1       no virtual environment: use $(PYTHON) with every package it has
#   EXTRAS=test             do without the linters (default: dev)
#   PYTEST_ARGS="tests/gpu --require=cuda,nvcc"

PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= dev
PYTEST_ARGS ?= tests
CXX_SOURCES = $(shell find csrc include -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \))

ifeq ($(USE_CURRENT_ENV),1)
  PY := $(PYTHON)
  KEEP := --all
  READY := current-environment
else
  PY := $(abspath $(VENV))/bin/python
  KEEP := torch
  READY := $(VENV)/.kernlib-$(EXTRAS)
  export PATH := $(abspath $(VENV))/bin:$(PATH)
endif
# What checks the version: the environment's own interpreter once there is one.
BASE = $(if $(wildcard $(PY)),$(PY),$(PYTHON))
CLANG_FORMAT = $(PY) -c 'from clang_format import clang_format; clang_format()'

.PHONY: setup test check pytest demo bench format clean preconditions current-environment
.DEFAULT_GOAL := test

setup: $(READY)

test: check pytest

check: setup
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(CLANG_FORMAT) --dry-run -Werror $(CXX_SOURCES)
	$(PY) tools/readme_tables.py --check

pytest: setup
	$(PY) -m pytest $(PYTEST_ARGS)

demo: setup
	$(PY) tools/demo.py

bench: setup
	set -e; for script in tools/bench_*.py; do echo "== $$script"; $(PY) $$script; done

format: setup
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .
	$(CLANG_FORMAT) -i $(CXX_SOURCES)
	$(PY) tools/readme_tables.py

# Build products of this tree; the virtual environment and the kernel workspace stay.
clean:
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find kernlib tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

preconditions:
	@command -v $(BASE) >/dev/null || \
	  { echo "kernlib: no $(BASE) here; name a Python 3.10 or later with PYTHON=" >&2; exit 1; }
	@$(BASE) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "kernlib: $(BASE) ($$($(BASE) -V 2>&1 | head -n 1)) is not usable; name a Python 3.10 or later with PYTHON=" >&2; exit 1; }
	@command -v g++ >/dev/null || \
	  { echo "kernlib: g++ is missing; install it (Debian, Ubuntu: apt install g++)" >&2; exit 1; }

# Constraints keep the torch that is there; without isolation the build takes nothing from elsewhere.
define install
@mkdir -p build
@echo "installing kernlib[$(EXTRAS)] for $(PY); kept if there: $(KEEP:--all=every package)"
@$(PY) tools/pins.py $(KEEP) > build/pins.txt
@$(PY) -m pip install --quiet -c build/pins.txt hatchling editables
@$(PY) -m pip install --quiet -c build/pins.txt --no-build-isolation --editable '.[$(EXTRAS)]'
endef

current-environment: preconditions
	$(install)

$(VENV)/.kernlib-$(EXTRAS): constraints.txt pyproject.toml tools/pins.py | preconditions
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(install)
	@touch $@
