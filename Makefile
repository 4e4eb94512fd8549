# Every target sets up .venv first; that takes no time when nothing changed.
BIN := .venv/bin
# The interpreter for .venv and the installer (uv or pip) can be chosen: PYTHON=… INSTALLER=…

.PHONY: setup demo demo-all test test-full test-commit test-all lint types style readme docs clean

setup:
	@sh tools/setup.sh

demo: OPS := [softmax,rmsnorm,matmul,attention]
demo-all: OPS := basic
demo demo-all: setup
	$(BIN)/portkern matrix ops=$(OPS) targets=demo workloads=ci run=$@

# Two at a time: types take one processor about as long as all else.
TWO := +@$(MAKE) --no-print-directory -j 2 --output-sync

lint: setup
	$(TWO) types style

types:
	$(BIN)/mypy

style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tools.english
	$(BIN)/pylint portkern backends/*/*.py

# Whatever the environment says: else each worker of pytest compiles all tests anew, and each process
# that a test starts all of portkern.
test test-full test-commit test-all: export PYTHONDONTWRITEBYTECODE :=

# By what rule a test is full, and which of them a commit draws: tests/tiers.py. Properties are tried in
# both tiers, in full on more examples. test-all: without the draw.
# Three workers: much of the tests' time is waiting for processes that they start.
PYTEST := $(BIN)/pytest -n 3 --dist worksteal

test: lint
	HYPOTHESIS_PROFILE=quick $(PYTEST) -m "not full"

test-full: DRAW := --drawn
test-all: DRAW := --strict-writes
test-full test-all: setup
	HYPOTHESIS_PROFILE=full $(PYTEST) --durations=25 -m "full or hypothesis" $(DRAW)

# What CI runs: lint and both tiers, in one session: each property once, and no worker waits for a
# tier's end.
test-commit: lint
	HYPOTHESIS_PROFILE=full $(PYTEST) --durations=25 --drawn

readme: setup
	$(BIN)/python -m tools.readme

# Pages in build/site, with the reference from docstrings; a broken link ends it.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find portkern backends targets conf tests -name __pycache__ -type d -prune -exec rm -rf {} +
