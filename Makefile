# `make eval` and `make test` start from a fresh clone with python3, make and a C compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := atrex_core $(wildcard backends/atrex_*) $(wildcard dsl_detectors/atrex_*) \
            $(wildcard hardware_profiles/atrex_*) $(wildcard problems/atrex_*)
PYTEST_ARGS ?=

.PHONY: eval test check format lock clean

eval: $(VENV)/.ready ## evaluate the bundled kernels: timed on the CPU, then on a virtual GPU
	$(BIN)/atrex-eval --backend numba
	$(BIN)/atrex-eval --backend triton

test: $(VENV)/.ready ## run every test that this machine can run
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check: $(VENV)/.ready ## format, lint, two type checkers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(PACKAGES)
	$(BIN)/basedpyright

format: $(VENV)/.ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(VENV)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

lock: ## resolve again, in an environment of its own (docs/decisions/0002-lock-file.md)
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet torch==2.13.0 triton==3.7.1
	build/lock/bin/python -m pip install --quiet --editable '.[dev]'
	{ sed '/^[^#]/,$$d' requirements.lock; \
	  build/lock/bin/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' | grep -v '^nvidia-\|^cuda-'; \
	} > build/requirements.lock
	mv build/requirements.lock requirements.lock

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache
