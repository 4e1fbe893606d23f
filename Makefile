# The commands of the project. They need Python 3.11 or newer and make; the rest is installed into .venv.
#
#   make run       everything, in the foreground; variables as in `manage.py up`: make run PORT=8001 CONFIG=my.yaml
#   make test      the tests, without the long ones; ARGS="tests/relay -k sse" for some of them
#   make test-slow the long ones
#   make check     formatting, types, imports between rooms, migrations, templates
#   make bench     the load kit; prints one JSON object
#   make lock      write requirements/*.txt anew from pyproject.toml; UPGRADE=1 takes newer versions
#
# PYTHON=... picks the interpreter that .venv is made with.

VENV := .venv
BIN := $(VENV)/bin/python
COMPILE = $(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes $(if $(UPGRADE),--upgrade)
ROOMS := accounts billing relay platform
# Checks read the settings and need no server: nobody listens at these addresses.
NO_SERVERS := VAR_DIR=$(VENV)/check DATABASE_URL=postgresql://nobody@127.0.0.1:1/none REDIS_URL=redis://127.0.0.1:1/0

.PHONY: run test test-slow check bench lock
.DEFAULT_GOAL := run

# A .venv whose interpreter has gone is made anew.
ifneq ($(wildcard $(VENV)/made),)
ifneq ($(shell $(BIN) -c 'print("runs")' 2>/dev/null),runs)
$(shell rm -f $(VENV)/made)
endif
endif

# `exec`: make hands SIGTERM on to its child, which must be the program itself and not a shell.
run: $(VENV)/run.stamp
	@exec $(BIN) manage.py up

test: $(VENV)/test.stamp
	@exec $(BIN) -m pytest -n 2 -m "not slow" $(ARGS)

test-slow: $(VENV)/test.stamp
	@exec $(BIN) -m pytest -m slow $(ARGS)

check: $(VENV)/test.stamp
	$(BIN) -m ruff check .
	$(BIN) -m ruff format --check .
	$(NO_SERVERS) $(BIN) -m mypy manage.py $(ROOMS)
	PYTHONPATH=.:platform $(BIN) $(VENV)/bin/lint-imports
	$(NO_SERVERS) $(BIN) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	$(BIN) -m djlint --quiet --lint templates

bench: $(VENV)/run.stamp
	@exec $(BIN) tests/bench/run.py $(ARGS)

lock: $(VENV)/made
	$(BIN) -m pip install --quiet --require-hashes -r requirements/uv.txt
	$(COMPILE) requirements/uv.in -o requirements/uv.txt
	$(COMPILE) pyproject.toml -o requirements/run.txt
	$(COMPILE) --group dev pyproject.toml -c requirements/run.txt -o requirements/test.txt

$(VENV)/made:
	@for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  "$$python" -m venv --clear $(VENV) && touch $@ && exit 0; \
	  echo "make: $$python cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; \
	  exit 1; \
	done; \
	echo "make: Python 3.11 or newer is needed$(if $(PYTHON), and $(PYTHON) is not): name one with PYTHON=..." >&2; \
	exit 1

$(VENV)/run.stamp: $(VENV)/made requirements/run.txt requirements/uv.txt requirements/install.py
	@$(BIN) requirements/install.py requirements/run.txt
	@touch $@

$(VENV)/test.stamp: $(VENV)/made requirements/test.txt requirements/uv.txt requirements/install.py
	@$(BIN) requirements/install.py requirements/test.txt
	@touch $@
