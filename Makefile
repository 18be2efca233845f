# Every habit of this repository is one target. `make` alone lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
PYTHON ?= python3
TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
DEBUG_BIN := $(TARGET_DIR)/debug/trellis
RELEASE_BIN := $(TARGET_DIR)/release/trellis
DEMO_BIN := $(TARGET_DIR)/demo/trellis
FAKE_ONE := $(TARGET_DIR)/debug/fake-one
# A static binary runs on any Linux, and each of its processes takes less memory. It must be built for a named target: macros of
# the compiler cannot be static.
HOST := $(shell rustc -vV | sed -n 's/^host: //p')
STATIC_LIBC := $(filter /%,$(shell cc -print-file-name=libc.a))
# A release has no paths and no times of the machine that built it: two builds are equal. Of two prefixes that fit, the last counts.
CARGO_HOME ?= $(HOME)/.cargo
PLACES := $(CURDIR)=/trellis $(CARGO_HOME)=/cargo $(TARGET_DIR)=/target
REPRODUCIBLE = SOURCE_DATE_EPOCH=0 CFLAGS="$(CFLAGS) $(PLACES:%=-ffile-prefix-map=%)" \
  RUSTFLAGS="$(RUSTFLAGS) $(PLACES:%=--remap-path-prefix=%) $(if $(STATIC_LIBC),-C target-feature=+crt-static)"

# Arguments for the suites and the measurement, e.g. make interop ARGS="-k tls", make bench ARGS=--quick
ARGS ?=
KILLS ?= 50
SEED ?=
FUZZ_TARGET ?= object_decoder
FUZZ_SECONDS ?= 600
CROSS ?= aarch64

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: demo-build ## a SuperLink and four SuperNodes with TLS train a network before your eyes (under a minute once built)
	@TRELLIS_HOME=$$(mktemp -d -t trellis-demo-XXXXXX) $(DEMO_BIN) up --demo $(ARGS)

.PHONY: demo-flower
demo-flower: demo-build ## the same with an unmodified Flower app, sent by the official `flwr run`
	@TRELLIS_BIN=$(DEMO_BIN) $(PYTHON) demo/run.py $(ARGS)

# Nothing is optimised but the training itself, and the platforms that a demo does not need are left out.
.PHONY: demo-build
demo-build:
	@[ -e $(DEMO_BIN) ] || echo "The first build takes a few minutes; cargo shows how far it is."
	$(CARGO) build --profile demo --package trellis --no-default-features

.PHONY: test
test: provision lint ## lint, all Rust tests, then the quick part of the suites against official Flower
	$(CARGO) build --workspace --bins --tests
	$(CARGO) test --workspace
	TRELLIS_BIN=$(DEBUG_BIN) $(PYTHON) tests/run.py --optional -m quick $(ARGS)

.PHONY: lint
lint: ## formatting, clippy without warnings (the fuzz targets, too), and the dependency policy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	@if command -v c++ > /dev/null; then \
	  $(CARGO) clippy --manifest-path fuzz/Cargo.toml --target-dir $(TARGET_DIR) -- -D warnings; \
	else \
	  echo "SKIP: 1 check skipped: there is no C++ compiler, the fuzz targets were not compiled"; \
	fi
	@if command -v cargo-deny > /dev/null; then \
	  $(CARGO) deny --offline check licenses bans sources; \
	  if $(CARGO) deny fetch db > /dev/null 2>&1; then \
	    $(CARGO) deny check advisories; \
	  elif [ -n "$$(ls -A "$${CARGO_HOME:-$$HOME/.cargo}/advisory-dbs" 2> /dev/null)" ]; then \
	    echo "note: the advisory database cannot be fetched, the copy of $$(date -r "$${CARGO_HOME:-$$HOME/.cargo}/advisory-dbs" +%F) is used"; \
	    $(CARGO) deny --offline check advisories; \
	  else \
	    echo "SKIP: 1 check skipped: no advisory database can be had here, dependencies were not checked for known vulnerabilities"; \
	  fi; \
	else \
	  echo "SKIP: 1 check skipped: cargo-deny is not installed, the dependency policy (deny.toml) was not checked"; \
	fi

.PHONY: interop
interop: release ## unmodified Flower 1.25 to 1.42 around our SuperLink and our SuperNode, mixed, in every mode (many minutes)
	@$(PYTHON) tests/provision.py --usual > /dev/null || [ $$? -eq 75 ]
	TRELLIS_BIN=$(RELEASE_BIN) $(PYTHON) tests/run.py interop node network security train strategy models --matrix $(TARGET_DIR)/interop-matrix.json $(ARGS)

.PHONY: attacks
attacks: release ## what attackers try, with and without an identity, and that honest callers do not notice
	TRELLIS_BIN=$(RELEASE_BIN) $(PYTHON) tests/run.py attacks $(ARGS)

.PHONY: interop-table
interop-table: ## put what the last whole `make interop` saw into docs/compatibility.md
	$(PYTHON) tests/matrix_table.py $(TARGET_DIR)/interop-matrix.json --update docs/compatibility.md

.PHONY: monitoring
monitoring: release ## alert rules, dashboards and events, with Debian's Prometheus and a real training
	TRELLIS_BIN=$(RELEASE_BIN) $(PYTHON) tests/run.py monitoring $(ARGS)

.PHONY: tracking
tracking: release ## metrics and models in the real TensorBoard and MLflow, also when MLflow is killed (installs both from PyPI once)
	TRELLIS_BIN=$(RELEASE_BIN) $(PYTHON) tests/run.py tracking $(ARGS)

.PHONY: sso
sso: release ## single sign-on with a real identity provider: page in Chromium, API, command line, `flwr login` (builds Dex from its Go module once)
	@$(PYTHON) tests/provision_kube.py dex > /dev/null || [ $$? -eq 75 ]
	TRELLIS_BIN=$(RELEASE_BIN) $(PYTHON) tests/run.py sso $(ARGS)

.PHONY: browser
browser: release ## the page in Chromium against a real server: every page, live runs, roles, keyboard, accessibility (UPDATE_SCREENSHOTS=1: the pictures of the docs anew)
	TRELLIS_BIN=$(RELEASE_BIN) $(PYTHON) tests/run.py browser $(ARGS)

.PHONY: web
web: ## build the page anew into web/dist, which is checked in (needs Node and an npm registry; cargo build needs neither)
	cd web && npm ci && npm run check && npm run build

.PHONY: soak
soak: release ## kill the SuperLink at every crash point and at KILLS random moments; kill nodes and every part of the platform, cut links, fill disks; 10,000 seeds of the planner (SEED=n repeats a session)
	$(CARGO) test --release --package trellis-plan -- --ignored soak
	TRELLIS_BIN=$(RELEASE_BIN) $(PYTHON) tests/run.py crash faults control_plane --kills $(KILLS) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: appliance
appliance: release ## the agent under a real systemd, its firewall and its WireGuard gateway, in containers and network namespaces (root)
	TRELLIS_BIN=$(RELEASE_BIN) $(PYTHON) tests/run.py appliance $(ARGS)

.PHONY: zones
zones: release fake-one ## three OpenNebula clouds behind NAT in network namespaces, WireGuard between them (root; about ten minutes)
	FAKE_ONE_BIN=$(FAKE_ONE) TRELLIS_BIN=$(RELEASE_BIN) $(PYTHON) tests/run.py zones $(ARGS)

.PHONY: vm-test
vm-test: release fake-one ## build the appliances, boot them in QEMU, train, reset the coordinator in a run (root; VM_EVIDENCE=file keeps what was seen)
	FAKE_ONE_BIN=$(FAKE_ONE) TRELLIS_BIN=$(RELEASE_BIN) $(PYTHON) tests/run.py vm $(ARGS)

.PHONY: kube
kube: release kube-parts ## runs on pods that the operator's objects became: official Flower and Trellis, TLS, kills, scaling, upgrades (root)
	@$(PYTHON) tests/provision_kube.py adapter > /dev/null || [ $$? -eq 75 ]
	TRELLIS_BIN=$(RELEASE_BIN) $(PYTHON) tests/run.py kube $(ARGS)

.PHONY: kube-parts
kube-parts: provision
	$(CARGO) build --package trellis-fake-kubelet --package trellis-testing

.PHONY: kube-e2e
kube-e2e: release kube-parts ## real pods: containerd and a kubelet run the operator and a federation (root; builds a kubelet once)
	@$(PYTHON) tests/provision_kube.py control-plane node > /dev/null
	TRELLIS_BIN=$(RELEASE_BIN) $(PYTHON) tests/run.py kube_e2e $(ARGS)

.PHONY: images
images: release ## container images FROM scratch, and what is promised of them (podman; root)
	TRELLIS_BIN=$(RELEASE_BIN) $(PYTHON) tests/run.py packaging $(ARGS)

.PHONY: fake-one
fake-one:
	$(CARGO) build --package trellis-fake-one

.PHONY: bench
bench: release ## measure SuperLinks, whole rounds and aggregation beside the originals, and the control plane (ARGS="--part rounds"; about an hour in all)
	PYTHON=$(PYTHON) bench/run.sh $(ARGS)

.PHONY: fuzz
fuzz: ## feed garbage to a decoder for FUZZ_SECONDS (600); FUZZ_TARGET: object_decoder, headers and frames (read before the sender is known), context (of a VM), join (files of --join), document (Federations)
	@command -v cargo-fuzz > /dev/null || { echo "cargo-fuzz is missing; install it with: cargo install --locked cargo-fuzz"; exit 1; }
	mkdir -p fuzz/corpus/$(FUZZ_TARGET) && tar -xzf fuzz/corpus/$(FUZZ_TARGET).tar.gz -C fuzz/corpus/$(FUZZ_TARGET)
	RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $(FUZZ_TARGET) -- -max_total_time=$(FUZZ_SECONDS)

.PHONY: fuzz-corpus
fuzz-corpus: ## minimise the inputs that `make fuzz` found for FUZZ_TARGET, and keep them in the tree
	RUSTC_BOOTSTRAP=1 $(CARGO) fuzz cmin $(FUZZ_TARGET)
	tar --sort=name --owner=0 --group=0 --mtime=@0 -C fuzz/corpus/$(FUZZ_TARGET) -cf - . | gzip -9n > fuzz/corpus/$(FUZZ_TARGET).tar.gz

.PHONY: release
release: ## build the binary as it is shipped: static where the C library can be linked so
ifneq ($(STATIC_LIBC),)
	$(REPRODUCIBLE) $(CARGO) build --release --package trellis --target $(HOST)
	@mkdir -p $(dir $(RELEASE_BIN)) && ln -f $(TARGET_DIR)/$(HOST)/release/trellis $(RELEASE_BIN)
else
	@echo "note: there is no static C library here (libc.a): the binary will need the one of the machine it runs on"
	$(REPRODUCIBLE) $(CARGO) build --release --package trellis
endif

.PHONY: wheel
wheel: release ## dist/trellis_fl-*.whl: the Python package with the release binary, for pip
	$(PYTHON) python/sdk/build_wheel.py --program $(RELEASE_BIN) --out dist

.PHONY: dist
dist: release ## everything that is published, in dist/: archives, .deb, .rpm, wheels, images, chart, bill of materials, provenance, checksums (CROSS=aarch64: for these machines too, where Rust and gcc can)
	@nfpm=$$($(PYTHON) tests/provision_kube.py nfpm); \
	programs=$$($(foreach machine,$(filter-out $(firstword $(subst -, ,$(HOST))),$(CROSS)),$(REPRODUCIBLE) deploy/dist/cross.sh $(machine) || [ $$? -eq 75 ];)); \
	$(PYTHON) deploy/dist/dist.py $$(printf -- '--program %s ' $(RELEASE_BIN) $$programs) --nfpm $$nfpm/nfpm --out dist

.PHONY: dist-test
dist-test: kube-parts ## install what `make dist` made in clean systems, train, upgrade, uninstall; build once more and compare (root; ARGS="-k 'not rebuild'": without that)
	@$(PYTHON) tests/provision_kube.py helm nfpm > /dev/null
	TRELLIS_BIN=$(RELEASE_BIN) $(PYTHON) tests/run.py dist $(ARGS)

.PHONY: provision
provision: ## install the official Flowers and the Kubernetes control plane that `make test` needs into the test cache, where that is possible
	@$(PYTHON) tests/provision.py 1.25 1.39 1.42 > /dev/null || [ $$? -eq 75 ]
	@$(PYTHON) tests/provision_kube.py control-plane helm dex > /dev/null || [ $$? -eq 75 ]
