//go:build interop

package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sema/internal/fixture/expect"
)

// patience bounds the start of a Java program and everything a test waits for.
const patience = 60 * time.Second

// built is where Maven left the driver and its libraries; run.sh sets it for
// other versions of Redisson than the one in pom.xml.
func built() string {
	if dir := os.Getenv("SEMA_REDISSON_TARGET"); dir != "" {
		return dir
	}
	return "target"
}

// oldest is set when the driver has the oldest Redisson we are compatible with,
// which lacks some methods.
var oldest = os.Getenv("SEMA_REDISSON_TARGET") != ""

// java is a running driver; see Driver.java for the protocol.
type java struct {
	version string
	methods []string // of the three semaphores: Semaphore.acquire(int) and so on
	in      io.WriteCloser

	mu      sync.Mutex
	last    int
	pending map[string]chan string
	dead    chan struct{}
}

// errJava is what Redisson threw.
type errJava struct{ text string }

func (e errJava) Error() string { return "java: " + e.text }

// startJava starts a driver on the given topology; it ends with the test.
func startJava(t *testing.T, topology string, addresses ...string) *java {
	t.Helper()
	jar := filepath.Join(built(), "redisson-driver-1.jar")
	if _, err := os.Stat(jar); err != nil {
		t.Fatalf("%v; try: interop/redisson/run.sh, which builds it", err)
	}
	path := jar + string(os.PathListSeparator) + filepath.Join(built(), "lib", "*")
	args := append([]string{"-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", path, "interop.Driver", topology}, addresses...)
	cmd := exec.Command("java", args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	expect.OK(t, err)
	out, err := cmd.StdoutPipe()
	expect.OK(t, err)
	expect.OK(t, cmd.Start())
	j := &java{in: in, pending: map[string]chan string{}, dead: make(chan struct{})}
	ready := make(chan string, 1)
	j.pending["ready"] = ready
	go j.listen(out)
	t.Cleanup(func() {
		_ = in.Close() // at which the driver ends
		<-j.dead
		_ = cmd.Wait()
	})
	select {
	case j.version = <-ready:
		list, err := j.order(context.Background(), "methods")
		expect.OK(t, err)
		for m := range strings.SplitSeq(list, ",") {
			j.methods = append(j.methods, strings.ReplaceAll(m, ";", ", "))
		}
	case <-j.dead:
		t.Fatal("java: the driver ended while starting")
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		t.Fatal("java: the driver does not start")
	}
	return j
}

func (j *java) listen(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		tag, rest, _ := strings.Cut(lines.Text(), " ")
		j.mu.Lock()
		waiting := j.pending[tag]
		delete(j.pending, tag)
		j.mu.Unlock()
		if waiting != nil {
			waiting <- rest
		}
	}
	close(j.dead)
}

// order gives one order and waits for its answer.
func (j *java) order(ctx context.Context, words ...string) (string, error) {
	answer := make(chan string, 1)
	j.mu.Lock()
	j.last++
	tag := strconv.Itoa(j.last)
	j.pending[tag] = answer
	_, err := io.WriteString(j.in, tag+" "+strings.Join(words, " ")+"\n")
	j.mu.Unlock()
	if err != nil {
		return "", err
	}
	select {
	case text := <-answer:
		kind, value, _ := strings.Cut(text, " ")
		if kind != "ok" {
			return "", errJava{value}
		}
		return value, nil
	case <-j.dead:
		return "", errors.New("java: the driver ended")
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

var interfaces = map[string]string{"s": "RSemaphore", "e": "RPermitExpirableSemaphore"}

var javaTypes = map[byte]string{'i': "int", 'l': "long", 'd': "Duration", 'u': "TimeUnit", 't': "String", 'j': "List"}

// signature is how Redisson's API spells a method and its arguments.
func signature(kind, method string, args []string) string {
	types := make([]string, len(args))
	for i, a := range args {
		types[i] = javaTypes[a[0]]
	}
	return fmt.Sprintf("%s.%s(%s)", interfaces[kind], method, strings.Join(types, ", "))
}

// knows tells whether this Redisson has a method; the pinned one must.
func (j *java) knows(kind, method string, args ...string) bool {
	return !oldest || slices.Contains(j.methods, signature(kind, method, args))
}

// call invokes a method of Redisson and counts it in the report.
func (j *java) call(ctx context.Context, kind, name, method string, args ...string) (string, error) {
	value, err := j.order(ctx, append([]string{kind, name, method}, args...)...)
	if err == nil {
		report.called(signature(kind, method, args))
	}
	return value, err
}
