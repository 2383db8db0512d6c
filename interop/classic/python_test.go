//go:build interop

package classic

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

const interopEnv, pythonEnv = "SEMA_INTEROP", "SEMA_INTEROP_PYTHON"

func TestMain(m *testing.M) {
	if os.Getenv(interopEnv) != "1" {
		fmt.Printf("interop/classic: nothing was run; try: interop/classic/run.sh (it sets %s=1)\n", interopEnv)
		os.Exit(0)
	}
	out, err := exec.Command(pythonBinary(), "-c", "import redis; print(redis.__version__)").CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "interop/classic: %s with redis-py cannot be had: %v; try: interop/classic/run.sh\n%s", pythonBinary(), err, out)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func pythonBinary() string {
	if p := os.Getenv(pythonEnv); p != "" {
		return p
	}
	return "python3"
}

// python is a child process that runs book.py.
type python struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	version string // of redis-py
}

func startPython(t *testing.T, srv *redistest.Server) *python {
	t.Helper()
	cmd := exec.Command(pythonBinary(), "book.py", strconv.Itoa(srv.Port()))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	expect.OK(t, err)
	out, err := cmd.StdoutPipe()
	expect.OK(t, err)
	expect.OK(t, cmd.Start())
	p := &python{cmd: cmd, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(func() { _, _ = in.Close(), cmd.Wait() })
	var version string
	expect.OK(t, p.read(&version))
	p.version = version
	return p
}

// call runs one function of book.py and decodes what it returned.
func (p *python) call(value any, name string, args ...any) error {
	request, err := json.Marshal(map[string]any{"call": name, "args": args})
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(request, '\n')); err != nil {
		return err
	}
	return p.read(value)
}

func (p *python) read(value any) error {
	if !p.out.Scan() {
		return fmt.Errorf("python ended: %w", io.ErrUnexpectedEOF)
	}
	var answer struct {
		Value json.RawMessage
		Error string
	}
	if err := json.Unmarshal(p.out.Bytes(), &answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return fmt.Errorf("python: %s", answer.Error)
	}
	return json.Unmarshal(answer.Value, value)
}
