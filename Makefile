# Forwards to cargo, the lab and tools/; nothing is decided here. `make help` lists the targets.

export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/local/go/bin
CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
LAB := $(TARGET_DIR)/debug/juneau-lab
CLUSTER := $(TARGET_DIR)/debug/juneau-cluster

.PHONY: help lab lab-kubernetes cluster cluster-down conformance check down build plugin images test test-kubernetes test-long test-kernels mutants bench bench-kubernetes audit

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

lab: ## a cluster in a box: two nodes, two tenants with the same addresses (root)
	@tools/preflight.sh lab
	@$(CARGO) build -p juneau-lab -p juneau-agent
	@$(LAB) up

lab-kubernetes: ## the same on a real Kubernetes API server, which is built once (root)
	@tools/preflight.sh kubernetes
	@$(CARGO) build -p juneau-lab
	@$(LAB) up --kubernetes

cluster: ## a real Kubernetes cluster: two nodes with kubelet and containerd, Juneau from images, two tenants (root)
	@tools/preflight.sh kubernetes
	@$(CARGO) run -q -p juneau-images
	@$(CARGO) build -p juneau-cluster -p juneau-responder
	@$(CLUSTER) up

cluster-down: ## remove that cluster and everything it made (root)
	@$(CLUSTER) down

conformance: ## Kubernetes' own tests of the network against a cluster of their own (root); ARGS='--focus REGEX', --all
	@tools/preflight.sh conformance
	@$(CARGO) run -q -p juneau-images
	@$(CARGO) build -p juneau-cluster -p juneau-responder -p juneau-conformance
	@$(TARGET_DIR)/debug/juneau-conformance run $(ARGS)

check: ## who reaches whom in the running lab (root)
	@$(LAB) check

down: ## remove the lab and everything it made (root)
	@$(LAB) down

build: ## compile everything
	@tools/preflight.sh build
	$(CARGO) build --workspace --all-targets

plugin: ## the CNI plugin as it is shipped, static and small; prints its path
	@tools/plugin.sh

images: ## OCI archives of operator and agent, static and reproducible; ARGS='--repository R --tag T'
	@tools/preflight.sh build
	@$(CARGO) run -q -p juneau-images -- $(ARGS)

test: ## set up and run every test (root)
	@tools/test.sh

test-kubernetes: ## the tests that need a real Kubernetes API server, which is built once (root)
	@tools/test-kubernetes.sh

test-long: ## what takes too long for every day: long forms of tests, packages built by themselves, mutants (root)
	@tools/preflight.sh lab
	JUNEAU_LONG=1 JUNEAU_DIFFERENTIAL_SECONDS=600 $(CARGO) test -p juneau-bpf --no-fail-fast \
		--test scale --test package --test differential
	@tools/preflight.sh kubernetes
	JUNEAU_LONG=1 $(CARGO) test --workspace --no-fail-fast --test kubernetes --test kubernetes_chaos \
		--test kubernetes_faults --test kubernetes_cluster -- --include-ignored --nocapture
	@$(CARGO) test -p juneau-images --test reproducible -- --include-ignored --nocapture
	@$(MAKE) mutants

test-kernels: ## the BPF programs' tests on kernels 6.1 and 6.12 in QEMU, and on this one (root)
	@tools/preflight.sh lab
	@$(CARGO) test -q -p juneau-kernels -- --include-ignored
	@$(CARGO) run -q -p juneau-kernels -- run

mutants: ## plant faults in the data path and see that the differential test finds each (root); ARGS=names
	@tools/preflight.sh build
	@$(CARGO) run -q -p juneau-mutants -- $(ARGS)

bench: ## whole paths and programs against other data paths (root); ARGS=--quick, or names of measures
	@tools/preflight.sh build
	$(CARGO) run --release -p juneau-benches -- run $(ARGS)

bench-kubernetes: ## operator, agents, Pods and clusters on a real Kubernetes (root); ARGS=--quick, ARGS='--only PART'
	@tools/preflight.sh kubernetes
	@$(CARGO) run -q -p juneau-images
	@$(CARGO) build -p juneau-lab -p juneau-cluster -p juneau-responder
	$(CARGO) run --release -p juneau-benches -- kubernetes --lab $(LAB) --cluster $(CLUSTER) \
		--plugin "$$(tools/plugin.sh)" --ptp "$$(tools/ptp.sh)" $(ARGS)

audit: ## licences, advisories and bans of all dependencies (needs cargo-deny)
	$(CARGO) deny check
