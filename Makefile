# Everything that is built, checked or measured here starts from this file;
# .ci/run calls it from a fresh clone. "make help" lists the targets.
SHELL := /bin/bash
GO ?= go
LINT_VERSION := 2.15.0
KUSTOMIZE_VERSION := 5.8.2
KUBECONFORM_VERSION := 0.8.0
# How long one soak test runs, how long one target is fuzzed.
SOAK ?= 10m
FUZZTIME ?= 20s
# The longest first, so that nothing waits for it alone in the end.
PKGS ?= ./internal/flowtest ./...

# A linter of the right version that is there already is used; else it is
# compiled once (about four minutes on two cores) into a cache outside the tree.
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/milena-tools
LINT_CACHE := $(TOOLS)/golangci-lint-$(LINT_VERSION)
LINT := $(shell for l in "$$(command -v golangci-lint)" "$$($(GO) env GOPATH)/bin/golangci-lint"; do \
	[ -x "$$l" ] && [ "$$("$$l" version --short 2>/dev/null)" = "$(LINT_VERSION)" ] && echo "$$l" && exit; done; echo $(LINT_CACHE)/golangci-lint)

# Packages with tests behind the build tag kafka, and those with soak tests. Of the
# former, those that change their broker by the tag (they have files for !kafka) run
# all of their tests on real ones; of the others only the tests behind the tag run
# again.
KAFKA_FILES = $(shell grep -rlE '^//go:build .*kafka' --include='*_test.go' .)
KAFKA_WHOLE = $(sort $(dir $(shell grep -lE '^//go:build .*!kafka' $(KAFKA_FILES) | grep -v main_test)))
KAFKA_PART = $(filter-out $(KAFKA_WHOLE),$(sort $(dir $(KAFKA_FILES))))
KAFKA_TESTS = $(shell grep -hoE '^func Test[A-Z0-9][A-Za-z0-9]*' $(filter $(addsuffix %,$(KAFKA_PART)),$(KAFKA_FILES)) | cut -c6- | grep -vxE 'TestMain|TestSoak.*' | paste -sd '|')
SOAK_PKGS = $(shell grep -rlE '^func TestSoak' --include='*_test.go' . | xargs -r -n1 dirname | sort -u)
# What has its full size without the race detector only (testkit.Race).
FULL_TESTS := ^(TestRandomFilters|TestRegisteredEndpointCosts)
FULL_PKGS := ./internal/flowtest ./internal/registry

.PHONY: help build test test-kafka test-kafka-old soak lint bench bench-isolation bench-zoo fuzz generate examples check deploy-check

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

build: ## bin/milena
	$(GO) build -trimpath -o bin/milena ./cmd/milena

test: ## all tests on the embedded broker: no download but Go modules, at most 4 minutes
	$(GO) test -race -shuffle=on -timeout 15m $(PKGS)
	$(GO) test -tags synctests -shuffle=on -timeout 10m -run '^TestVirtual' ./retrytopics  # days in virtual time: kgo's locks must be durable blocks
	$(GO) test -shuffle=on -timeout 10m -run '$(FULL_TESTS)' $(FULL_PKGS)

test-kafka: ## what wants real brokers (Java and Maven; or MILENA_TEST_BROKERS=host:port,...), at most 12 minutes
	$(GO) test -tags kafka -race -shuffle=on -timeout 25m -p 2 $(KAFKA_WHOLE)
	$(GO) test -tags kafka -race -shuffle=on -timeout 25m -p 2 -run '^($(KAFKA_TESTS))$$' $(KAFKA_PART)
	$(GO) test -tags kafka -shuffle=on -timeout 10m -run '^TestRandomFilters' ./internal/flowtest

test-kafka-old: ## the promises end to end on the oldest Kafka that is supported
	MILENA_TEST_KAFKA_VERSION=3.9.1 $(GO) test -tags kafka -race -shuffle=on -timeout 25m ./internal/flowtest

soak: ## many seeds and long chaos on real brokers: SOAK=10m a test
	@[ -n "$(SOAK_PKGS)" ] || { echo "no package has a TestSoak"; exit 1; }
	MILENA_SOAK=$(SOAK) $(GO) test -tags kafka -race -count=1 -timeout 6h -p 1 -v -run '^TestSoak' $(SOAK_PKGS)

lint: $(LINT) ## golangci-lint with the layers of docs/design.md, and no sleeping tests
	$(LINT) run ./...
	@asleep="$$(grep -rl 'time\.Sleep(' --include='*_test.go' . | xargs -r grep -L 'testing/synctest')"; \
	[ -z "$$asleep" ] || { echo "time.Sleep outside a synctest bubble (wait for an event, or testkit.Eventually):"; echo "$$asleep"; exit 1; }
	@! grep -n '^replace' go.mod || { echo "replace in go.mod breaks go install"; exit 1; }

$(LINT_CACHE)/golangci-lint:
	GOBIN=$(LINT_CACHE) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(LINT_VERSION)

# The schemas are kept in the tree (deploy/kubernetes/schemas/extract writes them), so
# that this needs no network but for the tools, which are compiled once.
KUSTOMIZE := $(TOOLS)/kustomize-$(KUSTOMIZE_VERSION)/kustomize
KUBECONFORM := $(TOOLS)/kubeconform-$(KUBECONFORM_VERSION)/kubeconform
deploy-check: $(KUSTOMIZE) $(KUBECONFORM) ## manifests against the schemas of their kinds; alerts and their unit tests (needs promtool)
	@set -euo pipefail; for dir in deploy/kubernetes/base deploy/kubernetes/overlays/*; do echo "$$dir"; \
		$(KUSTOMIZE) build "$$dir" | $(KUBECONFORM) -strict -summary -schema-location 'deploy/kubernetes/schemas/{{.ResourceKind}}{{.KindSuffix}}.json' -; done
	promtool check rules deploy/prometheus/alerts.yml
	promtool test rules deploy/prometheus/*_test.yml

$(KUSTOMIZE):
	GOBIN=$(@D) $(GO) install sigs.k8s.io/kustomize/kustomize/v5@v$(KUSTOMIZE_VERSION)

$(KUBECONFORM):
	GOBIN=$(@D) $(GO) install github.com/yannh/kubeconform/cmd/kubeconform@v$(KUBECONFORM_VERSION)

bench: ## deliveries per second of the whole way, beside a bare http.Transport in the same run
	$(GO) test -run '^$$' -bench Throughput -benchtime 1x -count 1 -timeout 30m ./internal/bench

bench-isolation: ## what bad endpoints add to the dispatch delay of good ones (R2)
	$(GO) test -run '^$$' -bench Isolation -benchtime 1x -count 1 -timeout 30m ./internal/bench

bench-zoo: ## 200 receivers that misbehave, each in another way, beside 200 good ones
	$(GO) test -run '^$$' -bench Zoo -benchtime 1x -count 1 -timeout 30m ./internal/bench

fuzz: ## every fuzz target for FUZZTIME=20s
	@set -euo pipefail; for pkg in $$(grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u); do \
		for target in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$pkg/*_test.go | cut -c6-); do \
			echo "$$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; done; done

generate: ## write what is made from the code: docs/configuration.md, golden help texts
	$(GO) test $$(grep -rlE 'flag\.Bool\("update"|page\.IsCurrent\(' --include='*_test.go' . | xargs -n1 dirname | sort -u) -update

# The examples are modules of their own, as a user's program is; a workspace
# outside the tree stands in for the published version.
examples: ## the example programs, into bin
	@set -euo pipefail; tmp="$$(mktemp -d)"; trap 'rm -rf "$$tmp"' EXIT; root="$$PWD"; \
	for mod in $$(find examples -name go.mod 2>/dev/null); do dir="$$(dirname "$$mod")"; \
		rm -f "$$tmp"/go.work*; (cd "$$tmp" && $(GO) work init "$$root" "$$root/$$dir" && \
			$(GO) work edit -replace "github.com/milena-project/milena@v0.0.0=$$root"); \
		echo "build $$dir"; (cd "$$dir" && GOWORK="$$tmp/go.work" $(GO) vet ./... && \
			GOWORK="$$tmp/go.work" $(GO) build -o "$$root/bin/" ./...); done

check: lint test examples ## what must hold before a change lands; stale generated files fail their tests
