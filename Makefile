# `make help` lists the commands. Each first sets up what it needs; after the first run it needs no network.

# Everything is named relative to this folder: its own path may hold spaces.
VENV := .venv
PY := $(VENV)/bin/python
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
# An environment belongs to one interpreter and one place; what is installed in it, to one pyproject.toml.
PLACE := $(shell { "$(PYTHON)" -VV; pwd -P; } 2>&1 | cksum | cut -d' ' -f1)
READY := $(VENV)/ready-$(PLACE)-$(shell cksum < pyproject.toml | cut -d' ' -f1)
READY_DEV := $(READY)-dev
READY_FUZZ := $(READY)-fuzz
# Programs that run in the environment find its commands, and get none of this make's own settings.
IN := env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES PATH="$(CURDIR)/$(VENV)/bin:$$PATH"

.DEFAULT_GOAL := help
.PHONY: help setup crashcheck test test-slow fuzz validate-ext4 lint bench bench-guard bench-recall bench-papers clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## /  make \1|/p' Makefile | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

setup: $(READY) ## make .venv with crashcheck in it, and a clang if the system has none

crashcheck: $(READY) ## find the bug of the bundled example; CONFIG=path/to/crashcheck.toml runs your own program
ifdef CONFIG
	@$(IN) crashcheck run -c "$(CONFIG)" $(ARGS)
else
	@$(IN) $(PY) examples/demonstrate.py
endif

test: $(READY_DEV) ## the tests, about 10 minutes on two cores; PYTEST_ARGS="-k name" picks some
	$(IN) $(PY) -m pytest -n auto --dist worksteal $(PYTEST_ARGS)

test-slow: $(READY_DEV) ## the tests that build other people's programs (tests/real/README.md); properties, ten times as long
	$(IN) $(PY) -m pytest -m slow $(PYTEST_ARGS)
	$(IN) CRASHCHECK_EXAMPLES=10 $(PY) -m pytest -n auto -m hypothesis $(PYTEST_ARGS)

fuzz: $(READY_FUZZ) ## damaged documents for each parser; FUZZ_ARGS="--seconds 600 trace" searches one for ten minutes
	$(IN) PYTHONPATH=tests $(PY) -m fuzz $(FUZZ_ARGS)

validate-ext4: $(READY_DEV) ## boot Debian's kernel in QEMU, and compare the models of ext4 with what real crashes leave
	$(IN) PYTHONPATH=tests:tests/real $(PY) -m kernel $(VALIDATE_ARGS)

lint: $(READY_DEV) ## ruff, mypy --strict, the words of documents and templates, the C under gcc and clang with -Werror
	$(IN) ruff check .
	$(IN) mypy
	@$(IN) $(PY) docs/phrases.py
	@flags="$$($(PY) -c 'from crashcheck.runtime.build import FLAGS; print(*FLAGS)')" || exit 1; checked=; \
	for cc in gcc "$$($(PY) -c 'from crashcheck.analyzer.compile.driver.toolchain import find_compiler as f; print("" if f().zig else f().path)')"; do \
		[ -n "$$cc" ] && command -v "$$cc" >/dev/null || continue; checked="$$checked $$cc"; \
		for file in runtime/*/*.c runtime/*/*/*.c; do \
			for shared in "" -DCC_SHARED; do \
				"$$cc" $$flags $$shared -Iruntime/include -Wall -Wextra -Werror -fsyntax-only "$$file" || exit 1; \
			done; \
		done; \
	done; [ -n "$$checked" ] && echo "The C of runtime/ is clean under:$$checked"

bench: $(READY_DEV) ## measure build, recording and checking; writes build/bench/speed.json
	$(IN) $(PY) -m bench

bench-guard: $(READY_DEV) ## what guarded programs tolerate and cost, in an hour; writes build/bench/guard.json
	$(IN) $(PY) -m bench guard $(GUARD_ARGS)

bench-recall: $(READY_DEV) ## which planted bugs each strategy finds, after how many crash states; writes build/bench/recall.json
	$(IN) $(PY) -m bench.recall $(RECALL_ARGS)

bench-papers: $(READY_DEV) ## the papers' tables on planted bugs; writes build/bench/papers.json and docs/evaluation.md
	$(IN) $(PY) -m bench.papers $(PAPERS_ARGS)

clean: ## remove the environment and everything built
	rm -rf $(VENV) build dist src/crashcheck.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
	for folder in examples/*/; do $(MAKE) -s -C "$$folder" clean; rm -rf "$$folder/.crashcheck"; done

$(READY): | $(VENV)/made-$(PLACE)
	@PY='$(PY)' EXTRAS='' .ci/install
	@touch '$@'

$(READY_DEV): $(READY)
	@PY='$(PY)' EXTRAS='[dev]' .ci/install
	@touch '$@'

$(READY_FUZZ): $(READY_DEV)
	@PY='$(PY)' EXTRAS='[dev,fuzz]' .ci/install
	@touch '$@'

$(VENV)/made-$(PLACE):
	@PYTHON='$(PYTHON)' VENV='$(VENV)' .ci/venv
	@touch '$@'
