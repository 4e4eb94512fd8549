# Every target sets up .venv first; that takes no time when nothing changed.
BIN := .venv/bin
# The interpreter for .venv and the installer (uv or pip) can be chosen: PYTHON=… INSTALLER=…

.PHONY: setup demo test test-full lint readme clean

setup:
	@sh tools/setup.sh

demo: setup
	$(BIN)/portkern matrix ops=basic targets=demo workloads=ci run=demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pylint portkern backends/*/*.py

# By what rule a test is full: tests/tiers.py. Properties are tried in both, in full on more examples.
test: lint
	HYPOTHESIS_PROFILE=quick $(BIN)/pytest -n 2 -m "not full"

test-full: setup
	HYPOTHESIS_PROFILE=full $(BIN)/pytest -n 2 -m "full or hypothesis"

readme: setup
	$(BIN)/python -m tools.readme

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find portkern backends targets conf tests -name __pycache__ -type d -prune -exec rm -rf {} +
