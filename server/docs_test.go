//go:build unix

package server_test

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/stall"
	"sema/server"
)

// program finds a program that the test needs. The test runs in parallel, because it mostly
// waits for the program.
func program(t *testing.T, name, install string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it needs", name)
	}
	t.Parallel()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("no %s: apt-get install %s", name, install)
	}
	return path
}

// run runs a script, which must succeed, and returns its output.
func run(t testing.TB, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Minute
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	return out.String()
}

// The commands of the documentation page work, block after block.
func TestTheLinesOfThePageRun(t *testing.T) {
	bash := program(t, "bash", "bash")
	_, err := exec.LookPath("curl")
	expect.OK(t, err)
	page, err := os.ReadFile("../docs/api.md")
	expect.OK(t, err)
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) < 4 {
		t.Fatalf("%d blocks", len(blocks))
	}
	stall.Run(t, func(c *stall.Case) { // one block watches for two seconds
		h := open(c, server.Options{})
		out := ""
		for i, b := range blocks {
			if i == 2 { // this block shows holders
				h.want(204, "PUT", "/v1/semaphores/downloads/limit", `{"limit":3}`)
			}
			out += run(c, []string{"url=" + h.url + "/v1/semaphores", "json=Content-Type: application/json"}, bash, "-euc", string(b[1]))
			expect.Until(c, "the release of the block's permits", func() bool { return h.state("downloads").Used == 0 })
		}
		expect.Has(c, out, `"id":"job-17"`, `the work, with: {"event":"granted"`, `"semaphores":[{"name":"downloads"`, "event: began")
	})
}
