# One way to compile all that runs without the race detector, so that nothing is compiled twice: the program, the
# tests, what the linters read, and the same in another clone.
export CGO_ENABLED = 0
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)

.PHONY: help agree bench build check clean count cross demo faults faults-report fuzz home image interop lint long pictures planted \
	quick release release-dry release-test servers simulate site stress test types vulncheck

help: ## these targets; CONTRIBUTING.md says what each proves
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / {printf "make %-14s %s\n", $$1, $$2}' Makefile

build: ## bin/sema, and its manual pages in bin/man
	go -C cmd/sema build -ldflags '-s -w' -o ../../bin/sema .
	go -C cmd/sema run ./internal/cli/man ../../bin/man

demo: export PATH := $(CURDIR)/bin:$(PATH)
demo: build ## six jobs share two permits, and one is killed: docs/demo.svg
	./scripts/demo.sh

# Modules of their own, so that nobody has to have what only they need. The race detector sees nothing in PLAIN: they start
# other programs, or run in virtual time.
MODULES = $(RACED) $(PLAIN)
RACED = cmd/sema engines/pgengine contrib/asynq contrib/grpc contrib/otel contrib/prometheus contrib/river examples
PLAIN = lab bench interop

GOTESTSUM = bin/gotestsum --format pkgname
bin/gotestsum:
	GOBIN=$(CURDIR)/bin go install gotest.tools/gotestsum@v1.13.0

quick: ## for every save: the machines, what is pure, and memory; no server, no process
	go test -short -vet=off . ./engine ./engines/memengine ./engines/register ./internal/adapt ./internal/client ./internal/enum \
		./internal/ledger ./internal/loop ./internal/pack ./internal/wire ./sematest

# What PostgreSQL, tmux, curl or PgBouncer are needed for is left to make check, where they are not here.
test: bin/gotestsum ## the product, on real servers
	./scripts/test-tools.sh redis-server
	$(GOTESTSUM) --raw-command -- ./scripts/tests.sh '. cmd/sema $(HERE)' '' -count=1 -skip '$(SKIP)'
	@echo 'not tried here: what needs $(LEFT)PgBouncer, tmux or curl; make check does'
SKIP = PgBouncer|^TestWatch(IsDrawn|Leaves)|^TestTheLinesOfThePageRun$$
ifeq ($(shell command -v initdb || ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null),)
SKIP := $(SKIP)|Postgres
LEFT = PostgreSQL, $()
else
HERE = engines/pgengine
endif

check: bin/gotestsum ## everything that can break: all modules, the race detector on
	./scripts/test-tools.sh
	$(GOTESTSUM) --raw-command -- ./scripts/tests.sh '. $(MODULES)' '. $(RACED)' -count=1

STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
lint: ## gofmt, vet, staticcheck, actionlint
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo 'gofmt: these files want formatting'; exit 1; }
	cd interop && go vet -tags interop ./...
	go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 .github/workflows/*.yml
	@for m in . $(MODULES); do (cd $$m && go vet ./... && $(STATICCHECK) ./...) || exit 1; done

# What is compiled here is not run: without optimization it takes a third less.
cross: export GOFLAGS += '-gcflags=all=-N -l'
cross: ## code and tests compile for every system that is supported
	@for to in linux/386 linux/arm64 darwin/arm64 freebsd/amd64 windows/amd64; do \
		GOOS=$${to%/*} GOARCH=$${to#*/} go vet ./... || exit 1; echo "compiles for $$to"; done
	@for to in darwin/arm64 windows/amd64; do for m in $(filter-out bench interop,$(MODULES)); do \
		(cd $$m && GOOS=$${to%/*} GOARCH=$${to#*/} go vet ./...) || exit 1; echo "$$m compiles for $$to"; done; done

vulncheck: ## no known vulnerability in what is called
	./scripts/vulncheck.sh "go run golang.org/x/vuln/cmd/govulncheck@v1.3.0"

interop: ## the originals in Python and Java, and what we say of others; the API beside tools of others
	./scripts/test-tools.sh
	./interop/classic/run.sh
	./interop/redisson/run.sh
	./interop/others/run.sh
	./interop/openapi/run.sh

types: ## the types of the clients for Python and JavaScript, by mypy and tsc, also without DOM
	bin=$$(interop/venv.sh clients/python/types.txt) && cd clients/python && "$$bin/mypy"
	cd clients/js && npx --yes --package typescript@5.9.3 --call 'tsc && tsc --noEmit --strict --lib es2022 index.d.ts'

# A program of lab, built, and run here: paths in its flags are those of the repository.
lab = go -C lab build -o ../bin/lab-$(subst /,-,$(1)) ./$(1) && bin/lab-$(subst /,-,$(1))

# SEED=17 SEEDS=1 TRACE=-trace replays one.
simulate: FOR = 1m
simulate: ## the machines, and engines over one row, in virtual time: FOR=1h or SEEDS=100000
	$(call lab,simulate/run) $(if $(SEEDS),-seeds $(SEEDS),-for $(FOR)) $(if $(SEED),-seed $(SEED)) $(TRACE)
	go -C lab test -count=1 -timeout 0 -v -run TestSeeds ./registers -seeds $(or $(SEEDS),10000) $(if $(SEED),-seed $(SEED))

agree: ## the Lua beside package ledger, 20,000 random histories
	./scripts/test-tools.sh
	go test -count=1 -timeout 60m -v -run TestScriptAgrees ./engines/redisengine -rapid.checks=10000

# How many seeds each planted bug takes, into docs/data. A quarter of an hour with STARTS=9.
STARTS = 2
planted: ## how many seeds the simulator takes for each planted bug, into docs/data
	go -C lab test -count=1 -timeout 60m ./simulate -run TestPlantedBugsAreFound -starts $(STARTS) -table ../../docs/data/planted-bugs.md
	go -C lab test -count=1 -timeout 60m ./registers -run TestPlantedBugsAreFound -seldom

# What was played is appended to faults.json. GROUND=sentinel FAULT=mixed SEED=17 plays one round; PLANTED=all has workers
# with a bug, each of which the judge has to catch.
faults: ## real processes on real servers, both broken: HOURS=4, or PLANTED=all
	./scripts/test-tools.sh
	$(call lab,faults/run) -out faults.json -parallel $(or $(PARALLEL),2) -for $(or $(HOURS:%=%h),$(PLANTED:%=1h),5m) $(if $(SEED),-seed $(SEED) $(if $(HOURS),,-rounds 1)) \
		$(if $(PLANTED),-grounds standalone -planted $(PLANTED),$(if $(GROUND),-grounds "$(GROUND)") $(if $(FAULT),-fault "$(FAULT)"))

faults-report: ## docs/data/faults.md, from what make faults wrote
	$(call lab,faults/report) -out docs/data/faults.md faults.json

stress: ## storms, kill -9, bounds, herds: PART=bounds for one
	./scripts/test-tools.sh
	./scripts/stress.sh $(PART)

fuzz: ## what others send, a minute for each reader of it
	for f in FuzzAcquire FuzzTokenFile; do go test ./server -run xxx -fuzz "$$f\$$" -fuzztime 1m || exit 1; done
	for f in FuzzReadStep FuzzReadReply; do go test ./internal/wire -run xxx -fuzz "$$f\$$" -fuzztime 1m || exit 1; done

SERVERS = redis-7.0 redis-8.0 valkey-8.0 valkey-8.1
servers: bin/gotestsum ## the tests that need a Redis, on each server that users have: SERVERS=valkey-8.1
	./scripts/test-tools.sh
	./scripts/servers.sh $(SERVERS)

long: ## each of these that takes hours, one after the other
	$(MAKE) agree
	$(MAKE) simulate FOR=1h SEEDS=
	$(MAKE) planted
	$(MAKE) stress
	$(MAKE) fuzz
	$(MAKE) faults HOURS=2
	$(MAKE) faults PLANTED=all
	$(MAKE) servers
	$(MAKE) interop

# BENCH='-beside HEAD~1 -scene alone -for 30s' compares with a commit instead, on standard output.
bench: ## sema beside others, into docs/data/bench.md, on a machine that does nothing else
	./scripts/test-tools.sh
	cd bench && go run . $(or $(BENCH),-out ../docs/data/bench.md)

pictures: ## the dashboard's pictures in docs
	./scripts/test-tools.sh
	SEMA_PICTURES=$(CURDIR)/docs go -C lab test -count=1 -run Pictures ./browser

count: ## lines, files and targets, each beside its budget
	@./scripts/count.sh

home: ## another path for the modules: MODULE=example.org/you/sema VERSION=v0.1.0
	./scripts/home.sh "$(MODULE)" $(VERSION)

site: ## the documents with search: site/index.html
	./scripts/site/site.sh

image: ## the image for this machine's processor, as an OCI archive
	GOOS=linux go -C cmd/sema build -o ../../bin/image/linux/$$(go env GOARCH)/sema .
	./scripts/release/image.sh bin/image dev oci-archive:bin/sema-image.tar:localhost/sema:dev

release: ## a release, as CONTRIBUTING.md says
	./scripts/release/release.sh

release-dry: ## all of it in dist; publishes nothing
	./scripts/test-tools.sh all buildah
	./scripts/release/release.sh --snapshot

release-test: ## installs and runs what is in dist, as root
	./scripts/test-tools.sh all buildah rpm man
	$(if $(filter 0,$(shell id -u)),,sudo -n -E) ./scripts/release/test.sh

clean: ## removes what was made
	rm -rf bin dist site
