# Every target sets up what it needs: `make demo` and `make test` work in a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help demo test test-slow bench lint format types docs all clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

help:
	@echo "make demo       a study of real data (NHEFS): released, verified, audited; a minute"
	@echo "make test       the default tests, on every core"
	@echo "make test-slow  the slow tests as well"
	@echo "make bench      timings side by side, a quarter of an hour"
	@echo "make lint       ruff check and ruff format --check; make format mends"
	@echo "make types      mypy --strict over both package folders"
	@echo "make docs       the pages, in docs/_build/html"
	@echo "make clean      remove the virtual environment and everything built"
	@echo "PYTHON=python3.12 make test   chooses the interpreter (3.11, 3.12 or 3.13)"

demo: $(VENV)/.demo
	$(BIN)/dp2erm demo

# One process of tests per core, so the linear algebra of each keeps to one thread.
# Bytecode is kept, because many tests start the command in a process of its own.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal

test: $(VENV)/.dev
	$(PYTEST)

test-slow: $(VENV)/.dev
	$(PYTEST) -m "slow or not slow"

bench: $(VENV)/.bench
	$(BIN)/python docs/benchmarks/run.py --page docs/benchmarks/index.md --figure docs/_static/seconds_against_n.svg

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev
	$(BIN)/mypy --strict dp2erm_cvx problems

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -E -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

all: $(VENV)/.all

clean:
	rm -rf $(VENV) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "$(PYTHON) is missing or is not Python 3.11, 3.12 or 3.13: try make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "$(PYTHON) cannot create a virtual environment: install its venv module" >&2; exit 1; }
	@$(PIP) install --upgrade "pip>=24"
	@touch $@

$(VENV)/.demo: EXTRAS := data,plots,reports,secure
$(VENV)/.dev: EXTRAS := data,plots,reports,secure,distributed,dev
$(VENV)/.docs: EXTRAS := data,plots,reports,secure,docs
$(VENV)/.bench: EXTRAS := data,plots,secure,bench
$(VENV)/.all: EXTRAS := all
$(VENV)/.ci: EXTRAS := data,plots,reports,secure,distributed,dev,docs
# Without --no-compile all of 12,000 files are compiled, a minute, of which a run imports a fifth.
$(VENV)/.demo $(VENV)/.dev $(VENV)/.docs $(VENV)/.bench $(VENV)/.all $(VENV)/.ci: pyproject.toml $(VENV)/.created
	@echo "installing dp2erm-cvx[$(EXTRAS)]"
	@$(PIP) install --no-compile --editable ".[$(EXTRAS)]"
	@touch $@
