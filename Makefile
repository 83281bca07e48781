# make check   what a change must pass before it is shown: no server, under a minute
# make test    everything: sets up the servers it needs by itself
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO ?= go
# Each entry is a module of the workspace, as ./dir.
MODULES := $(patsubst %,./%,$(filter-out .,$(file < modules.txt)))
# The packages of all modules, as patterns that do not reach into tools/.
PACKAGES := ./... $(addsuffix /...,$(MODULES))
# The servers that the tests need; test/env/env starts them.
SERVERS ?= postgres15 postgres18 mysql9 mariadb10 kafka4 connect4 redis7 pgbouncer1 duckdb1

# Lint tools are built once for each state of their own module.
TOOLS := .cache/tools/$(firstword $(shell cat tools/go.mod tools/go.sum | cksum))
GOFUMPT := $(TOOLS)/gofumpt
GOLANGCI := $(TOOLS)/golangci-lint
# Prints the Go files that git keeps or would keep, without those just deleted.
GOFILES := git ls-files --cached --others --exclude-standard '*.go' | while read -r file; do if [ -e "$$file" ]; then echo "$$file"; fi; done

.PHONY: help
help: ## print this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## /\1\t/p' Makefile | while IFS=$$'\t' read -r name text; do printf '  %-14s %s\n' "$$name" "$$text"; done

.PHONY: check
check: format-check vet lint house short ## format, vet, linters, house rules, quick tests; no server

# Tests of databases and brokers wait most of the time, so more of them run at a
# time than there are cores: packages side by side, and the cases within each.
# Those that drive whole systems, and judge who was late, come one by one.
ALONE := test/chaos test/trial
.PHONY: test
test: ## all tests of all modules, with real servers, the core under the race detector
	@servers=$$(test/env/env up $(SERVERS)); eval "$$servers"; \
	export WAYBILL_TEST_REQUIRED=1; \
	$(GO) test -race -timeout 10m ./...; \
	$(GO) test -p 2 -parallel 4 -timeout 20m $$($(GO) list $(addsuffix /...,$(MODULES)) | grep -v $(ALONE:%=-e '/%$$')); \
	$(GO) test -p 1 -timeout 20m $(ALONE:%=./%)

.PHONY: bench
bench: ## benchmarks of all modules, on servers started anew; BENCH=pattern chooses
	@test/env/env down $(SERVERS); servers=$$(WAYBILL_ENV_DURABLE=1 test/env/env up $(SERVERS)); eval "$$servers"; \
	$(GO) test -run '^$$' -bench '$(or $(BENCH),.)' -benchmem -timeout 30m $(PACKAGES)

.PHONY: demo
demo: ## orders, a broker and a consumer through crashes and an outage, then the proof
	$(GO) run ./cmd/waybill demo

.PHONY: release-check
release-check: ## tag the last commit in a clone and use its modules as users do
	@internal/release/release check

.PHONY: sql
sql: ## write docs/sql, the catalogue of every statement, from the stores' sources
	@$(GO) test -count 1 -timeout 2m -run '^TestCatalogue$$' ./internal/lint -update

.PHONY: docs
docs: ## write docs/cli.md, cli-json.md, config.md and metrics.md from the sources
	@$(GO) test -count 1 -timeout 2m -run 'Reference$$' ./cmd/waybill -update
	@$(GO) test -count 1 -timeout 2m -run 'Reference$$' ./telemetry/promwaybill -update

.PHONY: fmt
fmt: $(GOFUMPT) ## format all Go code
	@$(GOFILES) | xargs $(GOFUMPT) -w

.PHONY: tidy
tidy: ## go mod tidy in each module
	@for dir in . $(MODULES) tools; do echo "tidy $$dir"; (cd $$dir && GOWORK=off $(GO) mod tidy); done

.PHONY: down
down: ## stop the servers that make test started
	test/env/env down

.PHONY: clean
clean: ## remove built tools and binaries; servers' data stays
	rm -rf bin .cache/tools

.PHONY: format-check
format-check: $(GOFUMPT)
	@bad=$$($(GOFILES) | xargs $(GOFUMPT) -l); \
	if [ -n "$$bad" ]; then printf 'not formatted, run make fmt:\n%s\n' "$$bad"; exit 1; fi

.PHONY: vet
vet:
	$(GO) vet $(PACKAGES)

.PHONY: lint
lint: $(GOLANGCI) ## golangci-lint over all modules
	@$(GOLANGCI) run --allow-parallel-runners $(PACKAGES)

.PHONY: house
house: ## the rules that only this repository has, docs included
	$(GO) test -count 1 -timeout 2m ./internal/lint

.PHONY: short
short:
	$(GO) test -short -timeout 5m ./...

$(GOFUMPT):
	@mkdir -p $(TOOLS)
	GOWORK=off $(GO) build -C tools -o ../$(TOOLS)/ mvdan.cc/gofumpt

$(GOLANGCI):
	@mkdir -p $(TOOLS)
	GOWORK=off $(GO) build -C tools -o ../$(TOOLS)/ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
