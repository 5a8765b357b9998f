# Everything a developer does, by one word. Only root can run nodes and most tests.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PATH := $(PATH):/usr/local/go/bin
export PATH

TAGS := netgo osusergo seccomp runc_nocriu
GOTEST := go test -tags "$(TAGS)" -timeout 10m

.PHONY: help setup build cross deb image release run quick test test-all test-vm test-root lint sim power bench conformance original charts pages size licenses clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup:
	@scripts/setup.sh build

build: setup ## bin/ledge, static, for this machine; GOARCH=arm64 or arm (GOARM=7) for another
	@scripts/build.sh bin/ledge

cross: setup ## bin/ledge-linux-{amd64,arm64,armv7}
	@GOARCH=amd64 scripts/build.sh bin/ledge-linux-amd64
	@GOARCH=arm64 scripts/build.sh bin/ledge-linux-arm64
	@GOARCH=arm GOARM=7 scripts/build.sh bin/ledge-linux-armv7

deb: build cross ## bin/ledge_VERSION_{amd64,arm64,armhf}.deb
	@packaging/deb/build.sh amd64 bin/ledge-linux-amd64 bin
	@packaging/deb/build.sh arm64 bin/ledge-linux-arm64 bin
	@packaging/deb/build.sh armhf bin/ledge-linux-armv7 bin

image: ## a card for BOARD=generic-amd64, generic-arm64 or rpi, FLAVOUR=debian or appliance: bin/ledge-BOARD-FLAVOUR-VERSION.img.xz, checksum, bmap, SBOM
	@scripts/setup.sh build board
	@GOARCH=$(if $(filter generic-amd64,$(BOARD)),amd64,arm64) scripts/build.sh bin/ledge-linux-$(if $(filter generic-amd64,$(BOARD)),amd64,arm64)
	$(if $(filter appliance,$(FLAVOUR)),,@scripts/build.sh bin/ledge)
	@go run ./packaging/image -board '$(BOARD)' -flavour $(or $(FLAVOUR),debian)

release: ## all that people download of VERSION=v1.2.3, in bin/release/v1.2.3; KEY=minisign.key signs it
	@scripts/setup.sh build cross images board
	@packaging/release/build.sh '$(VERSION)' $(KEY)

run: setup ## build, start a throw-away node with a sample pod; Ctrl-C removes it
	@exec scripts/run.sh

quick: ## the loop of a minute: format, house rules, vet, and the tests that need neither root nor network
	@exec scripts/quick.sh

test: ## what CI runs: everything but the long runs
	@exec scripts/test.sh

test-all: ## the same with the long runs; writes docs/measured/test-all.txt; ONLY=regexp runs some steps
	@exec scripts/test.sh all

test-vm: build ## the root tests and the systemd units in a guest with cgroup v2
	@scripts/setup.sh vm
	@go run ./lab/vm test $$(scripts/packages.sh guest)

test-root: build ## the root tests on this machine
	@LEDGE_BIN=$(CURDIR)/bin/ledge $(GOTEST) -count=1 $$(scripts/packages.sh root)

lint: setup ## gofmt, vet, staticcheck, house rules
	@exec scripts/lint.sh

sim: setup ## the simulated boards and fleets; LEDGE_HOURS=n for how long, LEDGE_LONG=1 for a hundred, LEDGE_SEED=n repeats a run
	@$(GOTEST) -count=1 -v -timeout 8h ./internal/sim/...

power: build ## end a node in a guest by its button, a reboot and CUTS=100 power cuts, on DISKS=2 at a time; bin/power.json; SEED=n repeats a run
	@scripts/setup.sh vm
	@go run ./lab/vm power -cuts $(or $(CUTS),100) -disks $(or $(DISKS),2) -keep bin/power -early -lie -ends button,reboot,poweroff -timeout 15m $(if $(SEED),-seed $(SEED)) -o bin/power.json

pressure: build ## pods that take all there is of something, in a guest of MEMORY=256 MB; bin/pressure.json; HOGS=leak5,cache chooses
	@scripts/setup.sh vm
	@go run ./lab/vm pressure -memory $(or $(MEMORY),256) -timeout 45m $(if $(HOGS),-hogs $(HOGS)) -o bin/pressure.json

bench: build ## measure against other runtimes; tables, and bin/bench*.json; PAGE=docs/bench.md puts the tables there
	@go run ./lab/bench -o bin/bench.json -page '$(PAGE)'
	@go run ./lab/bench -only claims -section claims -o bin/bench-claims.json -page '$(if $(PAGE),docs/measured/volumes.md)'
	@go run ./lab/bench/pull -o bin/bench-pull.json -page '$(PAGE)'
	@go run ./lab/bench/fleet -o bin/bench-fleet.json -page '$(PAGE)'
	@go run ./lab/bench/fleet -workloads -o bin/bench-workloads.json -page '$(PAGE)' # where make original has built the other side
	@go run ./lab/bench/fleet -bytes 1000,5000 -o bin/bench-bytes.json -page '$(if $(PAGE),docs/measured/bytes.md)' # there too
	@go run ./lab/bench/services -o bin/bench-services.json -page '$(if $(PAGE),docs/measured/services.md)' # beside nginx, where that is in PATH
	@go run ./lab/bench/pressure -page '$(PAGE)' # as make test-all measured it last

conformance: build ## Kubernetes' own tests; FOCUS=regexp GROUP=ABD PROCS=4 KEEP=1 narrow, see lab/conformance
	@scripts/setup.sh vm
	@go run ./lab/conformance -focus '$(FOCUS)' -group '$(GROUP)' -procs $(or $(PROCS),4) $(if $(KEEP),-keep) $(if $(E2E_KUBECONFIG),-kubeconfig $(E2E_KUBECONFIG))

original: build ## hold the API and the agent against Kubernetes' own control plane, which is built once (minutes)
	@LEDGE_ORIGINAL=1 LEDGE_BIN=$(CURDIR)/bin/ledge $(GOTEST) -count=1 -v -timeout 60m -run 'OfTheOriginal$$' ./api/rest ./e2e

charts: setup ## what ledge takes of the rendered charts in CHARTS=directory; docs/measured/charts.md
	@go run -tags "$(TAGS)" ./lab/charts -dir '$(CHARTS)' -page docs/measured/charts.md

size: setup ## what each module and each room of ours costs in the binary; docs/measured/size.txt
	@STRIP= scripts/build.sh bin/ledge-symbols >/dev/null
	@go run ./scripts/size bin/ledge-symbols >docs/measured/size.txt && rm bin/ledge-symbols && head -n 40 docs/measured/size.txt

pages: ## write the pages of the manual that are made from the code: configuration, /ledge/v1
	@LEDGE_BIN=none $(GOTEST) -count=1 -run '^TestPage' ./api/board ./cli -update

licenses: setup ## write NOTICE from what is linked
	@go run ./packaging/licenses >NOTICE.new && mv NOTICE.new NOTICE && wc -l NOTICE

clean: ## what make made here; the cache of guests and foreign libraries stays
	rm -rf bin
	@echo "cache: $${LEDGE_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/ledge}"
