# make run and make test are the only two commands one needs; `make help` lists the others.
PYTHON ?= python3
VENV_PYTHON := .venv/bin/python
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run test test-long bench lint format lock set-up set-up-dev clean

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | while IFS='|' read -r name text; do printf '%-16s %s\n' "$$name" "$$text"; done

run: set-up ## chat: set up what is missing, then open the window
	@$(VENV_PYTHON) -m desktop $(ARGS)

test: set-up-dev ## every test but the long ones (ARGS="tests/inference -x" narrows it)
	@$(VENV_PYTHON) -m pytest -m "not long" $(ARGS)

test-long: set-up-dev ## the long tests
	@$(VENV_PYTHON) -m pytest -m long $(ARGS)

bench: set-up-dev ## the benchmarks, with what they measured printed
	@if [ -d tests/benchmarks ]; then $(VENV_PYTHON) -m pytest -s tests/benchmarks $(ARGS); else echo "There are no benchmarks yet."; fi

lint: set-up-dev ## formatting, lint, types and import directions
	@$(VENV_PYTHON) -m ruff check .
	@$(VENV_PYTHON) -m ruff format --check .
	@$(VENV_PYTHON) -m mypy
	@.venv/bin/lint-imports

format: set-up-dev ## format the code and fix what ruff can fix
	@$(VENV_PYTHON) -m ruff check --fix .
	@$(VENV_PYTHON) -m ruff format .

# llama-cpp-python stays out: pip would build its libraries for this CPU (installers/pinned_package.py pins it).
LOCK = .venv/bin/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-package llama-cpp-python --custom-compile-command "make lock" $(LOCK_ARGS)

lock: set-up-dev ## lock what pyproject.toml asks for (LOCK_ARGS=--upgrade takes newer versions)
	@$(VENV_PYTHON) -m pip install --quiet 'uv>=0.8,<1'
	@$(LOCK) --output-file requirements.lock
	@$(LOCK) --group dev --constraint requirements.lock --output-file requirements-dev.lock

set-up: python-found ## what `make run` needs, without running
	@$(PYTHON) -m installers.set_up

set-up-dev: python-found ## what `make test` and `make lint` need
	@$(PYTHON) -m installers.set_up --dev

.PHONY: python-found
python-found:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is missing: sudo apt install python3 python3-venv"; exit 1; }

clean: ## remove .venv and what tools left here; chats and the user's cache stay
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
