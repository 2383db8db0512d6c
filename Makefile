.PHONY: adapt adapt-page adapt-real agree bench-peers bench-report bound bounds build check clean cross \
	demo faults faults-planted faults-report flaky fuzz generated go-versions home home-all image \
	interop lint long man pictures planted postgres check quick recording registers release release-dry release-test \
	schema servers servers-quick shares simulate site storm stress test types vulncheck

# One way to compile all that runs without the race detector, so that nothing is compiled twice: the program, the
# tests, what the linters read, and the same in another clone.
export CGO_ENABLED = 0
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)

# Six jobs share two permits, and one job is killed: a quarter of a minute, as in docs/demo.svg. Needs Go and bash.
demo recording: export PATH := $(CURDIR)/bin:$(PATH)
demo: build
	./scripts/demo/play.sh

build:
	go -C cmd/sema build -o ../../bin/sema .

# Manual pages, made from the commands and their help: man -l bin/man/sema-run.1
man:
	go -C cmd/sema run ./internal/cli/man ../../bin/man

# The modules' path, imports and documents, for a place where others can get them:
# make home MODULE=example.org/you/sema. CONTRIBUTING.md says which tags follow.
VERSION = v0.1.0
home:
	$(call lab,home) -module "$(MODULE)" -version $(VERSION)

# make check in a copy that was given a home. Many minutes.
home-all:
	SEMA_HOME_ALL=1 go -C lab test -count=1 -timeout 60m -v -run TestHome ./home

# The documents as a site, with search: site/index.html. It fails at links that lead nowhere. Needs
# pip's registry once.
site:
	./scripts/site/site.sh

# A release: CONTRIBUTING.md. release-dry leaves all of it in dist and publishes nothing;
# release-test installs and runs what is there, as root.
release:
	./scripts/release/release.sh

release-dry:
	./scripts/test-tools.sh all buildah
	./scripts/release/release.sh --snapshot

AS_ROOT = $(if $(filter 0,$(shell id -u)),,-exec 'sudo -n -E')
release-test:
	./scripts/test-tools.sh all buildah rpm man
	go -C lab test -count=1 -v $(AS_ROOT) -tags release ./release

# The image for this machine's processor, as an OCI archive.
image:
	GOOS=linux go -C cmd/sema build -o ../../bin/image/linux/$$(go env GOARCH)/sema .
	./scripts/release/image.sh bin/image dev oci-archive:bin/sema-image.tar:localhost/sema:dev

# Modules of their own, so that nobody has to have what only they need.
MODULES = cmd/sema engines/pgengine lab bench dashboard/browsertest contrib/asynq contrib/grpc contrib/otel contrib/prometheus contrib/river deploy examples interop monitoring

# A program of lab, built, and run here: paths in its flags are those of the repository.
lab = go -C lab build -o ../bin/lab-$(subst /,-,$(1)) ./$(1) && bin/lab-$(subst /,-,$(1))

TESTRUN = $(call lab,testrun)
# Modules that start other programs, or run in virtual time: the race detector sees nothing in them.
PLAIN = -plain 'lab bench dashboard/browsertest deploy interop monitoring'
# How many tests have to pass, by .ci/least-tests.
least = -least $(shell awk '$$1 == "$(1)" {print $$2}' .ci/least-tests)

# For every save: the two machines, what is pure, and memory. No server, no process, no race detector.
quick:
	$(TESTRUN) -short -vet=off -packages '$(QUICK)' .
QUICK = . ./engine ./engines/memengine ./engines/register ./internal/adapt ./internal/client ./internal/enum ./internal/ledger ./internal/loop ./internal/pack ./internal/wire ./sematest

# The product, on real servers: what a user and a contributor run. It needs redis-server beside Go. PostgreSQL's
# tests run where PostgreSQL is.
test:
	./scripts/test-tools.sh redis-server
	$(TESTRUN) -fresh $(call least,test) $(PRODUCT) . cmd/sema $(if $(POSTGRES_HERE),engines/pgengine)
POSTGRES_HERE := $(shell command -v initdb || ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null)
PRODUCT = $(if $(POSTGRES_HERE), \
	-skip '$(EXTRAS)' -left 'tests of terminals and PgBouncer: make check', \
	-skip '$(EXTRAS)|Postgres' -left 'engines/pgengine and what else needs PostgreSQL, which is not here: apt-get install postgresql; tests of terminals and PgBouncer: make check')
# They need tmux, curl or pgbouncer.
EXTRAS = PgBouncer|^TestWatch(IsDrawn|Leaves)|^TestTheLinesOfThePageRun$$

# Everything that can break, race detector on, all modules. Every package is tried, though one has failed.
check:
	./scripts/test-tools.sh
	$(TESTRUN) $(TESTS) $(call least,check) . $(MODULES)
TESTS = -race -fresh $(PLAIN)

# make check with each of the Go releases that are supported: the one that go.mod names, and the
# newest. go fetches them from the module proxy.
GO_VERSIONS = go1.26.0 go1.27.4
go-versions:
	./scripts/test-tools.sh
	@for v in $(GO_VERSIONS); do echo "$$v" && GOTOOLCHAIN=$$v $(TESTRUN) $(TESTS) . $(MODULES) || exit 1; done

# Which tests fail by chance: make check N times, every other time beside two busy
# loops for each processor.
N = 10
flaky:
	./scripts/test-tools.sh
	$(TESTRUN) $(TESTS) -timeout 20m -rounds $(N) -out flaky.json . $(MODULES)

# What takes hours.
long:
	$(MAKE) agree
	$(MAKE) simulate FOR=1h
	$(MAKE) registers SEEDS=100000
	$(MAKE) planted
	$(MAKE) storm
	$(MAKE) stress
	$(MAKE) bounds
	$(MAKE) bound
	$(MAKE) fuzz
	$(MAKE) faults HOURS=2
	$(MAKE) faults-planted
	$(MAKE) servers
	$(MAKE) go-versions
	$(MAKE) home-all
	$(MAKE) interop

# The dashboard's pictures in docs, taken by its tests at the end of an hour of virtual time. Half a minute.
pictures:
	./scripts/test-tools.sh
	cd dashboard/browsertest && SEMA_PICTURES=$(CURDIR)/docs go test -count=1 -run Pictures .

# The terminal at the top of README.md: what make demo prints, drawn as docs/demo.svg.
recording: build
	$(call lab,demo)

# The Lua beside package ledger, 20,000 random histories. Some minutes.
agree:
	./scripts/test-tools.sh
	go test -count=1 -timeout 60m -v -run TestScriptAgrees ./engines/redisengine -rapid.checks=10000

# The cancellation storm, 100,000 rounds on each engine. Some minutes.
storm:
	./scripts/test-tools.sh
	SEMA_STORM=500 go test -count=1 -timeout 60m -v -run 'TestPromises$$/8_NothingLeaks/a_wait_cancelled' ./engines/memengine ./engines/fileengine ./engines/redisengine

# As many processes as users have, idle, handing over, killed at random; and
# 1,000 kill -9 of sema run. Many minutes, on a machine that does nothing else.
stress:
	for n in 1 40 300 500 1000; do SEMA_STRESS=$$n go test -count=1 -timeout 20m -v -run TestProcessesInOrder -bench 'HandOff|Idle' -benchtime 1x ./engines/fileengine || exit 1; done
	SEMA_STRESS_KILLS=1000 go test -count=1 -timeout 20m -v -run TestStormOfKills ./engines/fileengine
	go test -count=200 -timeout 20m -run TestKilled ./engines/fileengine
	SEMA_KILLS=1000 go -C cmd/sema test -count=1 -timeout 30m -v -run 'KillMinusNineAtRandomMoments' ./internal/cli

# The longest step with 100,000 that wait and 100,000 that hold, on Redis. A minute.
bounds:
	./scripts/test-tools.sh
	SEMA_BOUNDS=100000 go test -count=1 -timeout 20m -v -run 'TestStepsAreBounded|TestStepsBesideManyClients' ./engines/redisengine

# How often keys that share a semaphore pass each other, among real processes, in 100
# worlds by chance. Some minutes.
bound:
	./scripts/test-tools.sh
	go -C lab test -count=1 -timeout 60m -v -run TestNoKeyIsPassed ./shares -worlds 100

# What tenants wait for and hold, by shares and otherwise, and docs/shares.md of that.
# Half an hour. The words are in lab/shares/run/shares.md.tmpl: make shares SHARES=-draw.
shares:
	./scripts/test-tools.sh
	$(call lab,shares/run) $(SHARES)

# PostgreSQL beside what one would write by hand, in turns, and docs/data/postgres.md of that. A quarter of an hour. The words are in
# lab/postgres/data.md.tmpl: make postgres POSTGRES=-draw, and after make faults POSTGRES='-faults faults.json'.
postgres:
	./scripts/test-tools.sh
	$(call lab,postgres) $(POSTGRES)

# What others send: a minute for each reader of it.
fuzz:
	for f in FuzzAcquire FuzzTokenFile; do go test ./server -run xxx -fuzz "$$f\$$" -fuzztime 1m || exit 1; done
	for f in FuzzReadStep FuzzReadReply; do go test ./internal/wire -run xxx -fuzz "$$f\$$" -fuzztime 1m || exit 1; done

# The two machines in virtual time, for as long as asked: make simulate FOR=1h; or
# so many seeds: SEEDS=100000. SEED=17 SEEDS=1 TRACE=-trace replays one.
FOR = 1m
simulate:
	$(call lab,simulate/run) $(if $(SEEDS),-seeds $(SEEDS),-for $(FOR)) $(if $(SEED),-seed $(SEED)) $(TRACE)

# Many processes' engines on one row, in virtual time: make registers SEEDS=10000; SEED=17 SEEDS=1 plays one.
registers:
	go -C lab test -count=1 -timeout 0 -v -run TestSeeds ./registers -seeds $(or $(SEEDS),10000) $(if $(SEED),-seed $(SEED))

# The limit that adapts, on each kind of server: the figures of docs/data/adaptive.md.
ADAPT_SEEDS = 1000
adapt:
	$(call lab,adaptive/run) -seeds $(ADAPT_SEEDS) -out lab/adaptive
	go -C lab test -count=1 -timeout 60m -run TestOthers ./adaptive/others -seeds 3 -out ../others.json
	$(MAKE) adapt-page

# Real processes on Redis, and a server that refuses: ten minutes.
adapt-real:
	./scripts/test-tools.sh
	$(call lab,adaptive/real) -out lab/adaptive/real.json
	$(MAKE) adapt-page

# docs/data/adaptive.md and its pictures, from what these two wrote.
adapt-page:
	$(call lab,adaptive/page)

# Real processes on real servers, both broken: some minutes over all grounds, or
# make faults HOURS=4, with PARALLEL=3 rounds at once. What was played is appended
# to $(FAULTS). make faults GROUND=sentinel FAULT=mixed SEED=17 plays one round.
FAULTS = faults.json
PARALLEL = 2
faults: FOR = 5m
faults:
	./scripts/test-tools.sh
	$(call lab,faults/run) -out $(FAULTS) -parallel $(PARALLEL) -for $(if $(HOURS),$(HOURS)h,$(FOR)) \
		$(if $(GROUND),-grounds "$(GROUND)") $(if $(FAULT),-fault "$(FAULT)") $(if $(SEED),-seed $(SEED) $(if $(HOURS),,-rounds 1))

# Workers with a bug: the judge has to catch each. Some minutes.
faults-planted:
	./scripts/test-tools.sh
	$(call lab,faults/run) -out $(FAULTS) -parallel $(PARALLEL) -for 1h -grounds standalone -planted all -seed $(or $(SEED),1)

# docs/data/faults.md, from what these two wrote.
faults-report:
	$(call lab,faults/report) -out docs/data/faults.md $(FAULTS)

# How many seeds each planted bug takes, into docs/data. A quarter of an hour with STARTS=9.
STARTS = 2
planted:
	go -C lab test -count=1 -timeout 60m ./simulate -run TestPlantedBugsAreFound -starts $(STARTS) -table ../../docs/data/planted-bugs.md
	go -C lab test -count=1 -timeout 60m ./registers -run TestPlantedBugsAreFound -seldom

# The suites that need a Redis, on each of the servers that users have; the tables
# are in docs/data/servers.md. Half an hour. One of them: make servers SERVERS=valkey-8.1.
# They are fetched with apt, and not installed.
SERVERS = redis-7.0 redis-8.0 valkey-8.0 valkey-8.1
servers:
	./scripts/test-tools.sh
	$(call lab,suites) -table docs/data/servers.md $(SERVERS)

# A part of them on one server that is not the machine's own.
QUICK_SERVER = valkey-8.0
servers-quick:
	$(call lab,suites) -quick $(QUICK_SERVER)

STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
ACTIONLINT = go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 .github/workflows/*.yml
GOVULNCHECK = go run golang.org/x/vuln/cmd/govulncheck@v1.3.0

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo 'gofmt: these files want formatting'; exit 1; }
	go vet ./...
	cd lab && go vet -tags release ./release
	cd interop && go vet -tags interop ./...
	$(STATICCHECK) ./...
	$(ACTIONLINT)
	@for m in $(MODULES); do (cd $$m && go vet ./... && $(STATICCHECK) ./...) || exit 1; done

# Code and tests compile for every system that is supported.
# What is compiled here is not run: without optimization it takes a third less.
cross: export GOFLAGS += '-gcflags=all=-N -l'
cross:
	@for to in linux/386 linux/arm64 darwin/arm64 freebsd/amd64 windows/amd64; do \
		GOOS=$${to%/*} GOARCH=$${to#*/} go vet ./... || exit 1; echo "compiles for $$to"; done
	@for to in darwin/arm64 windows/amd64; do for m in $(filter-out bench interop,$(MODULES)); do \
		(cd $$m && GOOS=$${to%/*} GOARCH=$${to#*/} go vet ./...) || exit 1; echo "$$m compiles for $$to"; done; done

vulncheck:
	./scripts/vulncheck.sh "$(GOVULNCHECK)"

# The API's description beside tools of others: 4,000 requests of schemathesis, and
# a client that openapi-python-client makes. Needs Python, and pip's registry once.
schema:
	./interop/openapi/run.sh -run Schemathesis

generated:
	./interop/openapi/run.sh -run Generated

# The types of the clients for Python and JavaScript, by mypy and tsc: needs pip's and
# npm's registries once.
types:
	bin=$$(interop/venv.sh clients/python/types.txt) && cd clients/python && "$$bin/mypy"
	cd clients/js && npx --yes --package typescript@5.9.3 tsc

# Our classic and redisson packages beside the originals' own languages, and what
# we say of npm's redis-semaphore: needs Python, Java with Maven, and Node.js.
interop:
	./scripts/test-tools.sh
	./interop/classic/run.sh
	./interop/redisson/run.sh
	./interop/others/run.sh
	./interop/openapi/run.sh

clean:
	rm -rf bin dist site

# The same work on sema and on what you would pick instead: all scenarios, on a
# machine that does nothing else. Less of it: make bench-peers PEERS='--rounds 1
# --scenario 64-of-8'. Node and Java, where they are, take part.
PEERS = --rounds 5 --round 2s --warmup 3s

bench-peers:
	./scripts/test-tools.sh
	cd bench && go run . run $(PEERS) --out results.json

# docs/bench.md, its charts and docs/data/bench.md, from what bench-peers wrote down.
bench-report:
	cd bench && go run . report results.json ../docs
