# The commands of this project; `make` alone lists them.

# The newest Python that is known to work and runs (a version manager may leave commands on PATH that do not).
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3.14 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
# How much pip says, for instance PIP_OUTPUT=--quiet.
PIP_OUTPUT ?=

VENV := .venv
BIN := $(VENV)/bin
LOCK := deploy/requirements.txt
PACKAGES := $(VENV)/.packages
INSTALLED := $(VENV)/.installed
# Nothing but what the lock names by hash is fetched: its list is complete, and builds use the locked setuptools.
PIP_INSTALL := $(BIN)/python -m pip --disable-pip-version-check --no-input install $(PIP_OUTPUT) \
	--no-deps --no-build-isolation --use-pep517 --no-compile

.DEFAULT_GOAL := help
.PHONY: help setup demo dev test test-full chaos campaign test-fast lint format types bench docs lock wheel clean

help: ## List the targets (this)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## Set up .venv, Java, Delta's jars and the archive of classes; at once when nothing changed (PYTHON=python3.12)
	@$(BIN)/python -m etl_assets.runtime setup

demo: setup ## Run the pipeline over made-up events, or over ORDERS=folder (DAYS=7 EVENTS=100000 DOMAINS=1); STACK=full, STACK=cdc: real servers
	@$(BIN)/etl-assets demo $(if $(ORDERS),--orders "$(ORDERS)") $(if $(DAYS),--days "$(DAYS)") \
		$(if $(EVENTS),--events "$(EVENTS)") $(if $(DOMAINS),--domains "$(DOMAINS)") $(if $(STACK),--stack "$(STACK)")

dev: setup ## Open the Dagster UI, with its daemons, on the instance of the demo; STACK=full, STACK=cdc: with real servers
	@$(BIN)/etl-assets dev $(if $(STACK),--stack "$(STACK)")

test: setup ## Run the tests, without the long forms of some, in PROCESSES=2 at once
	@SPARK_CODEGEN=off $(BIN)/python -m pytest -m "not full" -n "$(or $(PROCESSES),2)" --dist loadfile --no-loadscope-reorder

test-full: setup ## Run all tests, long forms and more rounds included (some hours)
	@CAMPAIGN_ROUNDS=50 CHAOS_ROUNDS=20 DECLARED_ROUNDS=20 BACKLOG_COMMITS=300 MIRRORING_SECONDS=60 \
		$(BIN)/python -m pytest -n "$(or $(PROCESSES),2)" --dist loadfile --no-loadscope-reorder

chaos: setup ## Kill runs, and fail, cut off, empty and damage domains for ROUNDS=100 rounds, from SEED
	@seed="$(or $(SEED),$$(date +%s))"; echo "seed $$seed"; CHAOS_SEED="$$seed" CHAOS_ROUNDS="$(or $(ROUNDS),100)" \
		$(BIN)/python -m pytest -q etl_assets_tests/chaos

campaign: setup ## Hostile landing files, commands and kills against a reference in plain Python for ROUNDS=100 rounds, from SEED
	@seed="$(or $(SEED),$$(date +%s))"; echo "seed $$seed"; CAMPAIGN_SEED="$$seed" CAMPAIGN_ROUNDS="$(or $(ROUNDS),100)" \
		$(BIN)/python -m pytest -q -n "$(or $(PROCESSES),2)" --dist load etl_assets_tests/campaign

test-fast: $(INSTALLED) ## Run the unit tests: no Spark, no servers
	@$(BIN)/python -m pytest etl_assets_tests/unit

lint: $(INSTALLED) ## Check style and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(INSTALLED) ## Mend style and format where that can be done by machine
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

types: $(INSTALLED) ## Check types
	@$(BIN)/ty check

bench: setup ## Run the benchmarks, or only CASE=name
	@$(BIN)/python -m benchmarks $(CASE)

docs: $(INSTALLED) ## Write the generated pages of docs/ from the code, and the benchmarks' table and plots
	@$(BIN)/python -m etl_assets.tables_documentation > docs/tables.md.new
	@mv docs/tables.md.new docs/tables.md
	@$(BIN)/python -m etl_assets.settings_documentation > docs/settings.md.new
	@mv docs/settings.md.new docs/settings.md
	@$(BIN)/python -m etl_assets.pipelines_documentation > docs/pipelines.md.new
	@mv docs/pipelines.md.new docs/pipelines.md
	@$(BIN)/python -m etl_assets.control_documentation > docs/control-plane.md.new
	@mv docs/control-plane.md.new docs/control-plane.md
	@$(BIN)/python -m etl_assets.pipelines.json_schema > docs/pipeline.schema.json.new
	@mv docs/pipeline.schema.json.new docs/pipeline.schema.json
	@$(BIN)/python -m benchmarks.performance_page

lock: $(INSTALLED) ## Lock setup.cfg's dependencies again, newer ones with UPGRADE=1
	@$(BIN)/uv pip compile deploy/requirements.in --output-file $(LOCK) $(if $(UPGRADE),--upgrade) --quiet \
		--universal --python-version 3.11 --generate-hashes --no-emit-package etl-assets --no-emit-index-url \
		--no-annotate --custom-compile-command "make lock" --system-certs

wheel: $(INSTALLED) ## Build the wheel into dist
	@rm -rf build dist/etl_assets-*.whl
	@$(BIN)/python -m pip --disable-pip-version-check --no-input wheel $(PIP_OUTPUT) --no-index --no-deps \
		--no-build-isolation --wheel-dir dist .

clean: ## Remove .venv and the caches; data in .etl-assets stays
	@rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis spark-warehouse
	@find etl_assets etl_assets_tests benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(INSTALLED): setup.cfg $(PACKAGES)
	@$(PIP_INSTALL) --editable .
	@touch $@

$(PACKAGES): $(LOCK) | $(BIN)/python
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip # a creation that was cut short
	@echo "==> installing the packages of $(LOCK), each checked by its hash (about 600 MB, 2 to 4 minutes)"
	@awk '/^[^ #]/ {wanted = /^setuptools==/} wanted' $(LOCK) > $(VENV)/build-requirements.txt
	@$(PIP_INSTALL) --require-hashes -r $(VENV)/build-requirements.txt
	@$(PIP_INSTALL) --require-hashes -r $(LOCK)
	@echo "==> compiling them (half a minute)"
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib || true
	@touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer on PATH: install one, or name it:" \
		"make setup PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -m etl_assets.runtime venv $(VENV)
