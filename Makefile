# Everything a user needs: `make demo` and `make test`. Each sets up what it needs, given Python 3.11+ and git; all but
# the demos need Node 20+ too.

PYTHON ?= python3
BIN := .venv/bin
TS := clients/typescript
TICKETS := examples/tickets/typescript
DASHBOARD := clients/dashboard
SERVICE_CLIENT := clients/service-typescript
SERVICE_SCHEMA := $(SERVICE_CLIENT)/src/generated/schema.ts
TS_SOURCES := $(shell find $(TS)/src $(TS)/scripts protocol/schema -type f 2>/dev/null)

# Install this package with its EXTRAS by uv; by pip, whose error is shown, if uv cannot be installed or cannot reach an
# index that only pip's configuration names. Importing the modules in IMPORTED then compiles their byte code, as a sandbox
# cannot write any; most of the rest is never imported.
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt
IMPORTED := gepa_client.run.driver, rpc_server.cli.serve
define INSTALL
@$(PIP) uv 2>/dev/null && \
$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[$(EXTRAS)]' 2>/dev/null || \
$(PIP) --editable '.[$(EXTRAS)]'
@env -u PYTHONDONTWRITEBYTECODE LITELLM_LOCAL_MODEL_COST_MAP=True $(BIN)/python -c 'import $(IMPORTED)'
endef

NPM_CI := npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --no-progress --loglevel=error

# What is installed for Python, TypeScript and the dashboard does not depend on each other, and waits for the network.
# A make that a make runs gets its number of jobs from that.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += --jobs=3
endif

.DELETE_ON_ERROR:
.PHONY: help demo demo-typescript demo-sandbox demo-service example docs test faults conformance bench setup python git node bubblewrap clean
.DEFAULT:
	@echo "no target '$@'; make help names them" >&2; exit 1

help:
	@echo "make demo         optimize the tickets example, in TypeScript too if Node is there; needs no key"
	@echo "                  (ARGS=... goes to evolverpc optimize: make demo ARGS='--reflection-lm openai/gpt-5')"
	@echo "make demo-sandbox the same example over 20 sandboxes (bubblewrap), and that the result is the same"
	@echo "make demo-service the service: connect a repository, optimize it over HTTP, promote the result; needs no key"
	@echo "                  (ARGS=--keep leaves it running, and prints its key)"
	@echo "make example      the starter of an agent framework, by the name in ARGS=NAME; needs no key; without ARGS: the names"
	@echo "make test         every check there is: format, lint, types, tests of both languages, packages, examples"
	@echo "                  (ARGS=lint runs one of them)"
	@echo "make docs         the documentation as a site, in site/"
	@echo "make faults       make test, then 30 rounds of every accident: killed processes, bad networks, full disks, jumping clocks"
	@echo "                  (ARGS='-k mongodb' runs some; FAULT_ROUNDS=5 makes it short)"
	@echo "make conformance  the conformance suite against four servers"
	@echo "make bench        the benchmarks (20 minutes); each ends with a line of JSON; rewrites docs/benchmarks.md"
	@echo "                  (ARGS=long_tail runs one of them)"
	@echo "make setup        install everything for development, run nothing"
	@echo "make clean        remove what the others made"

demo: .venv/.installed demo-typescript
	@$(BIN)/python examples/tickets/demo.py $(ARGS)

# Without Node, or if the TypeScript package cannot be built, the demo runs in Python alone and states why.
demo-typescript:
	@! $(MAKE) --silent node 2>/dev/null || $(MAKE) --silent --no-print-directory $(TICKETS)/node_modules/.built || true

demo-sandbox: bubblewrap .venv/.installed-sandbox
	@$(BIN)/python examples/tickets/demo_sandbox.py $(ARGS)

demo-service: .venv/.installed-service
	@$(BIN)/python examples/service/demo.py $(ARGS)

example: .venv/.installed-sandbox
	@$(BIN)/python examples/frameworks/run.py $(ARGS)

test: .venv/.installed-dev $(TS)/dist/.built $(DASHBOARD)/node_modules/.installed $(SERVICE_SCHEMA)
	@$(BIN)/python scripts/gates.py $(ARGS)

docs: .venv/.installed-dev
	@$(BIN)/python scripts/site.py $(ARGS)

faults: .venv/.installed-dev $(TS)/dist/.built $(DASHBOARD)/node_modules/.installed $(if $(ARGS),,test)
	@PATH="$(CURDIR)/$(BIN):$$PATH" FAULT_ROUNDS=$${FAULT_ROUNDS:-30} $(BIN)/python -m pytest -m 'faults or repeated or long' -n auto --dist worksteal $(ARGS)
	@$(if $(ARGS),,NIGHTLY=1 npm --prefix $(DASHBOARD) test)

conformance: .venv/.installed $(TS)/dist/.built
	@$(BIN)/python scripts/conformance.py $(ARGS)

bench: .venv/.installed-dev .venv/peers/.installed $(TS)/dist/.built
	@$(BIN)/python benchmarks/report.py $(ARGS)

setup: .venv/.installed-dev $(TS)/dist/.built $(DASHBOARD)/node_modules/.installed $(SERVICE_SCHEMA)
	@echo "Set up. Next: make demo, or make test"

python:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed: no '$(PYTHON)' on PATH; try: make demo PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c '' 2>/dev/null || { echo "Python 3.11 or newer is needed: '$(PYTHON)' does not run; try: make demo PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: '$(PYTHON)' is $$($(PYTHON) -V 2>&1); try: make demo PYTHON=python3.11" >&2; exit 1; }

git:
	@command -v git >/dev/null || { echo "git is needed: no 'git' on PATH" >&2; exit 1; }

node:
	@command -v node >/dev/null || { echo "Node 20 or newer is needed: no 'node' on PATH" >&2; exit 1; }
	@node -e 'process.exit(+(process.versions.node.split(".")[0] < 20))' || { echo "Node 20 or newer is needed; this is $$(node --version)" >&2; exit 1; }
	@command -v npm >/dev/null || { echo "npm is needed: it comes with Node" >&2; exit 1; }

bubblewrap:
	@command -v bwrap >/dev/null || { echo "bubblewrap is needed: no 'bwrap' on PATH; on Debian and Ubuntu: apt install bubblewrap" >&2; exit 1; }

.venv/bin/python: | python git
	@echo "Making a Python environment in .venv (2 to 10 seconds)"
	@$(PYTHON) -m venv .venv || { echo "could not make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

.venv/.installed: EXTRAS := server,client
.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing the server and the client in .venv (10 to 30 seconds)"
	$(INSTALL)
	@touch $@

.venv/.installed-dev: EXTRAS := dev
.venv/.installed-dev: IMPORTED := claude_agent_sdk, gepa_client.run.driver, rpc_server.cli.serve
.venv/.installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing what the tests need (about half a minute)"
	$(INSTALL)
	@touch $@ .venv/.installed .venv/.installed-sandbox .venv/.installed-service

.venv/.installed-sandbox: EXTRAS := server,client,sandbox
.venv/.installed-sandbox: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing the server, the client and what sandboxes need (about half a minute)"
	$(INSTALL)
	@touch $@ .venv/.installed

.venv/.installed-service: EXTRAS := server,service
.venv/.installed-service: IMPORTED := gepa_client.run.driver, litellm, rpc_server.cli.serve
.venv/.installed-service: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing the server, the client and the service (about half a minute)"
	$(INSTALL)
	@touch $@ .venv/.installed .venv/.installed-sandbox

# Beside the environment, without what it requires (datasets, instructor, ...): only its adapter is used, which needs
# gepa, requests and pydantic.
.venv/peers/.installed: benchmarks/peers.txt | .venv/.installed-dev
	@echo "Installing the peer that the benchmarks compare with"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --upgrade --target .venv/peers --requirement benchmarks/peers.txt
	@touch $@

$(TS)/node_modules/.installed: $(TS)/package.json $(TS)/package-lock.json | node
	@echo "Installing the TypeScript package's tools (up to a minute)"
	@cd $(TS) && $(NPM_CI) >/dev/null
	@touch $@

$(TS)/dist/.built: $(TS)/node_modules/.installed $(TS_SOURCES)
	@echo "Building the TypeScript package (2 to 5 seconds)"
	@cd $(TS) && npm run --silent build
	@touch $@

# For the demo the example's own compiler builds the package, whose other tools (for its tests) are not installed.
$(TICKETS)/node_modules/.installed: $(TICKETS)/package.json $(TICKETS)/package-lock.json | node
	@echo "Installing the TypeScript compiler for the demo (5 to 20 seconds)"
	@cd $(TICKETS) && $(NPM_CI) >/dev/null
	@touch $@

$(TICKETS)/node_modules/.built: $(TICKETS)/node_modules/.installed $(TS_SOURCES)
	@echo "Building the TypeScript package (2 to 5 seconds)"
	@cd $(TS) && node scripts/build.mjs ../../$(TICKETS)/node_modules
	@touch $@

# The built page is committed in gepa_client/page/dist, so only those who test or change it need its tools.
$(DASHBOARD)/node_modules/.installed: $(DASHBOARD)/package.json $(DASHBOARD)/package-lock.json | node
	@echo "Installing the dashboard's tools (up to a minute)"
	@cd $(DASHBOARD) && $(NPM_CI) >/dev/null
	@touch $@

$(SERVICE_CLIENT)/node_modules/.installed: $(SERVICE_CLIENT)/package.json $(SERVICE_CLIENT)/package-lock.json | node
	@echo "Installing the tools of the service's client (up to a minute)"
	@cd $(SERVICE_CLIENT) && $(NPM_CI) >/dev/null
	@touch $@

# The types of the service's client, which the dashboard's page of the service imports too.
$(SERVICE_SCHEMA): docs/openapi.json $(SERVICE_CLIENT)/node_modules/.installed
	@cd $(SERVICE_CLIENT) && npm run --silent generate >/dev/null

clean:
	rm -rf .venv runs site dist build $(TS)/node_modules $(TS)/dist $(DASHBOARD)/node_modules $(SERVICE_CLIENT)/node_modules $(SERVICE_CLIENT)/dist $(dir $(SERVICE_SCHEMA)) examples/tickets/typescript/node_modules examples/tickets/typescript/dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
