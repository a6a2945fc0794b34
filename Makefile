# Each target sets up what it needs in a virtual environment inside the clone.
PYTHON ?= python3
VENV ?= .venv

BIN := $(VENV)/bin
# An editable install: only new requirements make it out of date.
INSTALLED := $(VENV)/.installed
INSTALLED_LINT := $(VENV)/.installed-lint
INSTALLED_BENCH := $(VENV)/.installed-bench

.PHONY: demo test lint bench bench-synthetic bench-accuracy bench-recipe bench-tuning clean

demo: $(INSTALLED)
	MPLBACKEND=Agg $(BIN)/python examples/plot_quickstart.py

test: $(INSTALLED)
	MPLBACKEND=Agg $(BIN)/python -m pytest

lint: $(INSTALLED_LINT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python .ci/check_docstrings.py

bench: $(INSTALLED_BENCH)
	$(BIN)/python -m benchmarks.bench_speed

bench-synthetic: $(INSTALLED_BENCH)
	$(BIN)/python -m benchmarks.bench_synthetic

bench-accuracy: $(INSTALLED_BENCH)
	$(BIN)/python -m benchmarks.bench_accuracy --jobs 2

bench-recipe: $(INSTALLED_BENCH)
	$(BIN)/python -m benchmarks.bench_recipe

bench-tuning: $(INSTALLED_BENCH)
	$(BIN)/python -m benchmarks.bench_tuning

clean:
	rm -rf $(VENV) build dist examples/_output .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[test,plot]"
	touch $@

$(INSTALLED_LINT): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --editable ".[lint]"
	touch $@

$(INSTALLED_BENCH): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	touch $@
