# A fresh machine needs Python ≥ 3.11, make and gcc; everything else is installed into .venv by these targets.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-long check docs format bench proto fuzz wheel clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

.venv/base: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fkge needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	@echo "installing the pinned dependencies into .venv (a few minutes the first time) ..."
	$(PIP) torch  # first and by itself, so that no other package chooses its build
	$(PIP) --editable .
	touch $@

extras.demo := demo
extras.test := test
extras.check := check,test
extras.bench := bench
extras.docs := docs
extras.fuzz := fuzz,node
extras.build := build
.venv/%: .venv/base
	$(PIP) --editable '.[$(extras.$*)]'
	touch $@

demo: .venv/demo  ## Six real owners improve each other's graphs; ends with the path of a report (minutes)
	$(BIN)/fkge demo --out runs/demo

test: .venv/test  ## Run the tests (minutes)
	$(BIN)/python -m pytest -m 'not long' -n 2 --dist worksteal $(if $(COVERAGE),--cov=fkge --cov-report=)
	$(if $(COVERAGE),@$(BIN)/coverage report --format=total | sed 's/.*/coverage: &% of lines/')

test-long: .venv/test  ## Run the tests that take longer
	$(BIN)/python -m pytest -m long -n 2 --dist worksteal --timeout 1200

check: .venv/check  ## Lint, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: .venv/docs  ## Build the documentation into build/site
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: .venv/check  ## Rewrite the sources in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/bench  ## Measure against PyKEEN and PyG, side by side
	$(BIN)/python -m benchmarks

proto: .venv/test  ## Write *_pb2.py anew from *.proto
	$(BIN)/python -m grpc_tools.protoc --proto_path=src --python_out=src $$(cd src && find fkge -name '*.proto')
	$(BIN)/python -m grpc_tools.protoc --proto_path=src --pyi_out=src fkge/node/frames.proto

FUZZ_SECONDS ?= 60
fuzz: .venv/fuzz  ## Feed the decoders made-up bytes, FUZZ_SECONDS each; what is found is kept in build/fuzz
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) $(FUZZ)

wheel: .venv/build  ## Build a wheel and an sdist into dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

clean:  ## Remove what these targets made
	rm -rf .venv runs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
