# Every target sets up what it needs; nothing outside .venv is touched, except that root on Debian and
# Ubuntu gets the packages PRIMME compiles against. Another interpreter: make PYTHON=python3.12 test
PYTHON ?=
BIN = .venv/bin

.PHONY: help setup demo quick test lowest newest docs generated bench campaign mutants size lint type fix primme browser clean

help: ## print this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1	\2/p' Makefile

setup: ## make .venv with the project, its development tools and PRIMME
	@PYTHON="$(PYTHON)" .ci/setup

demo: ## learn metrics on small data and show what they changed; sets up only what that needs
	@PYTHON="$(PYTHON)" .ci/setup --demo
	@$(BIN)/python -m metricforge demo

quick: setup ## a part of the tests, in less than a minute
	$(BIN)/python -m pytest --quick -n 2 --dist loadgroup -q tests

test: lint type ## all checks: ruff, mypy, pytest
	$(BIN)/python -m pytest -n 2 --dist loadgroup

VERSIONS = tests/files tests/tables tests/distributed tests/kernels tests/neighbors/test_index.py tests/reports/test_plotting.py tests/rows/test_checking.py \
	tests/rows/test_keys.py tests/cli/test_program.py tests/methods/test_lpdesign.py \
	tests/test_adapters.py tests/test_validation.py tests/test_learning.py
lowest: ## a part of the tests with the lowest versions that pyproject.toml declares, in .venv-lowest
	@PYTHON="$(PYTHON)" .ci/setup --lowest
	.venv-lowest/bin/python -m pytest -n 2 --dist loadgroup -q $(VERSIONS)

newest: ## the same with the newest Python and the newest versions, in .venv-newest
	@PYTHON="$(PYTHON)" .ci/setup --newest
	.venv-newest/bin/python -m pytest -n 2 --dist loadgroup -q $(VERSIONS)

docs: setup ## the documentation, into docs/_build/html; a warning is an error
	$(BIN)/python -m sphinx -W --keep-going -q docs docs/_build/html

generated: setup ## rewrite the pages that are generated from results; a difference to what is committed is an error
	$(BIN)/python -m benchmarks.run --readme
	$(BIN)/metricforge reproduce --check --fix
	git diff --exit-code --stat -- docs/results benchmarks

BASE ?= HEAD~1
bench: setup ## CPU time of everyday calls on HEAD and on BASE=COMMIT, interleaved; ratios above 1.1 are marked
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	cd benchmarks && ../$(BIN)/asv machine --yes >/dev/null
	cd benchmarks && ../$(BIN)/asv continuous --interleave-rounds --factor 1.1 --show-stderr $(BASE) HEAD

SEED ?= 1
campaign: setup ## attack the library with N hostile API calls and files, and fewer of other kinds: SEED=1 N=10000
	cd tests && ../$(BIN)/python -m campaign --seed $(SEED) --cases $(or $(N),10000)

mutants: setup ## change N lines of numerical code, one at a time; list the changes that no test notices: SEED=1 N=120
	$(BIN)/python tests/mutants.py --seed $(SEED) --number $(or $(N),120)

size: setup ## lines, files, names that occur twice, constants, and how far a fit goes through the library
	cd tests && ../$(BIN)/python size.py

lint: setup ## ruff: rules and format; codespell
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m codespell_lib

type: setup ## mypy, strict
	$(BIN)/python -m mypy

fix: setup ## let ruff repair and format
	$(BIN)/python -m ruff check --fix --exit-zero .
	$(BIN)/python -m ruff format .

primme: ## try to build PRIMME again
	@PYTHON="$(PYTHON)" .ci/setup --primme

browser: ## install chromium (Debian, as root), for the test that opens the report in one
	@PYTHON="$(PYTHON)" .ci/setup --browser

clean: ## remove .venv and everything generated
	rm -rf .venv .venv-lowest .venv-newest build dist demo docs/_build docs/api docs/auto_gallery .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
