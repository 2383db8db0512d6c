.PHONY: demo build man test storm stress lint cross vulncheck interop clean bench-peers bench-report

# Eight jobs, three at a time: what sema is for. Needs Go only.
demo: build
	./examples/eight-jobs.sh

build:
	CGO_ENABLED=0 go build -o bin/sema ./cmd/sema

# Manual pages, made from the commands and their help: man -l bin/man/sema-run.1
man:
	go run ./internal/cli/man bin/man

# All tests, race detector on; real Redis servers are started as children.
test:
	./scripts/test-tools.sh
	go test -race -timeout 10m ./...
	cd bench && go vet ./... && go test ./...

# The cancellation storm, 100,000 rounds on each engine. Some minutes.
storm:
	./scripts/test-tools.sh
	SEMA_STORM=500 go test -count=1 -timeout 60m -v -run 'TestPromises$$/8_NothingLeaks/a_wait_cancelled' ./engine/memengine ./engine/fileengine ./engine/redisengine

# What takes minutes: 1,000 kill -9 of sema run at random moments.
stress:
	SEMA_KILLS=1000 go test -count=1 -timeout 30m -v -run 'KillMinusNineAtRandomMoments' ./internal/cli

STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK = go run golang.org/x/vuln/cmd/govulncheck@v1.3.0

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo 'gofmt: these files want formatting'; exit 1; }
	go vet ./...
	go vet -tags interop ./interop/...
	$(STATICCHECK) ./...
	cd bench && $(STATICCHECK) ./...

# Builds for every system that is supported.
cross:
	@for os in linux darwin windows; do for arch in amd64 arm64; do \
		GOOS=$$os GOARCH=$$arch go build ./... || exit 1; echo "builds for $$os/$$arch"; done; done

vulncheck:
	$(GOVULNCHECK) ./...

# Our classic and redisson packages beside the originals' own languages: needs
# Python, and Java with Maven.
interop:
	./scripts/test-tools.sh
	./interop/classic/run.sh
	./interop/redisson/run.sh

clean:
	rm -rf bin

# The same work on sema and on what you would pick instead: all scenarios, on a
# machine that does nothing else. Less of it: make bench-peers PEERS='--rounds 1
# --scenario 64-of-8'. Node and Java, where they are, take part.
PEERS = --rounds 5 --round 2s --warmup 3s

bench-peers:
	./scripts/test-tools.sh
	cd bench && go run . run $(PEERS) --out results.json

# docs/bench.md and its charts, from what bench-peers wrote down.
bench-report:
	cd bench && go run . report results.json --docs ../docs
