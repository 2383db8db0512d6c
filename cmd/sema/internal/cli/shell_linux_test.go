package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sema"
	"sema/internal/fixture/expect"
)

// Each scene is played in a real shell on a real terminal, with the bare
// command, under flock and under sema run: nobody can tell them apart.
var scenes = map[string]func(t *testing.T, x *terminal, wrapper string){
	// Issue: "^C in `for i in 1 2 3; do sema run x -- sleep 5; done`: the loop
	// goes on".
	"interrupt ends a loop": func(_ *testing.T, x *terminal, wrapper string) {
		x.kind("for i in 1 2 3; do " + wrapper + `sh -c 'echo st""art $1; exec sleep 100' sh $i; done; echo co""de $?.` + "\n")
		x.shows("start 1")
		x.kind("\x03")
		x.kind(`echo a""live` + "\n")
		x.shows("alive")
		x.never("start 2", "code")
	},
	// Issue: the same, "or in a script".
	"interrupt ends a script of bash": func(t *testing.T, x *terminal, wrapper string) { breakScript(t, x, "bash", wrapper) },
	"interrupt ends a script of sh":   func(t *testing.T, x *terminal, wrapper string) { breakScript(t, x, "sh", wrapper) },
	"interrupt heeded by the command": func(_ *testing.T, x *terminal, wrapper string) {
		x.kind("for i in 1 2; do " + wrapper + `bash -c 'trap "echo ca""ught; exit 0" INT; echo st""art $0; while :; do sleep 0.05; done' $i; done; echo co""de $?.` + "\n")
		x.shows("start 1")
		x.kind("\x03")
		x.shows("start 2")
		x.kind("\x03")
		x.shows("code 0.")
	},
	"quit": func(_ *testing.T, x *terminal, wrapper string) {
		x.kind("ulimit -c 0\n")
		x.kind(wrapper + `sh -c 'echo st""art; exec sleep 100'; echo co""de $?.` + "\n")
		x.shows("start")
		x.kind("\x1c")
		x.shows("code 131.")
		x.never("goroutine")
	},
	// Issue: "`sema run v -- cat &`, then `fg`: dead terminal".
	"background and fg": func(t *testing.T, x *terminal, wrapper string) {
		x.kind(wrapper + `sh -c 'echo pid $$.; exec cat'` + " &\n")
		command := x.pid("pid ")
		stopped(t, command) // it wants to read
		// The shell watches the wrapper, which may stop a moment later.
		x.kind(`until jobs %1 | grep -q Stopped; do sleep 0.01; done; echo wa""nts` + "\n")
		x.shows("wants")
		x.forget()
		x.kind("fg\n")
		x.shows("exec cat'\r\n") // as the shell announces it
		x.kind("words\n")
		x.shows("words\r\nwords")
		x.kind("\x04")
		x.kind(`echo co""de $?.` + "\n")
		x.shows("code 0.")
	},
	// Issue: "or ^Z, `bg`, `fg`: … permit held, TERM does nothing".
	"suspend and bg and fg": func(t *testing.T, x *terminal, wrapper string) {
		x.kind(wrapper + `sh -c 'echo pid $$.; exec cat'` + "\n")
		command := x.pid("pid ")
		x.kind("one\n")
		x.shows("one\r\none")
		for range 2 {
			x.kind("\x1a")
			x.shows("Stopped")
			stopped(t, command)
			x.kind("bg\n")
			// It wants to read, and is stopped again.
			x.kind(`until jobs %1 | grep -q Stopped; do sleep 0.01; done; echo wa""nts` + "\n")
			x.shows("wants")
			stopped(t, command)
			x.forget()
			x.kind("fg\n")
			x.shows("exec cat'\r\n")
			x.kind("two\n")
			x.shows("two\r\ntwo")
		}
		x.kind("\x1a")
		x.shows("Stopped")
		stopped(t, command)
		x.kind("kill %1; kill -CONT %1\n")
		expect.Until(t, "the end of the command", func() bool { return state(command) == 0 })
		x.kind(`echo a""live` + "\n")
		x.shows("alive")
	},
	"kill a job": func(_ *testing.T, x *terminal, wrapper string) {
		x.kind(wrapper + `bash -c 'trap "echo te""rm; exit 7" TERM; echo pid $$.; while :; do sleep 0.05; done'` + " &\n")
		x.pid("pid ")
		x.kind("kill -TERM %1; wait %1; " + `echo co""de $?.` + "\n")
		x.shows("term")
		x.shows("code ")
	},
	"closing the terminal": func(t *testing.T, x *terminal, wrapper string) {
		x.kind(wrapper + `sh -c 'echo pid $$.; exec sleep 100'` + "\n")
		command := x.pid("pid ")
		_ = x.master.Close()
		expect.Until(t, "the end of the command", func() bool { return state(command) == 0 })
	},
	"closing the terminal under nohup": func(t *testing.T, x *terminal, wrapper string) {
		fifo := filepath.Join(t.TempDir(), "fifo")
		expect.OK(t, syscall.Mkfifo(fifo, 0o600))
		book := filepath.Join(t.TempDir(), "book")
		x.kind("nohup " + wrapper + `sh -c 'echo pid $$. >&3; read x <"$0"; echo "$x" >"$1"' ` + fifo + " " + book + " 3>&1 >/dev/null 2>&1 &\n")
		x.pid("pid ")
		shell := x.cmd.Process.Pid
		_ = x.master.Close()
		_ = x.cmd.Wait()
		if state(shell) != 0 {
			t.Fatal("the shell lives")
		}
		expect.OK(t, os.WriteFile(fifo, []byte("alive\n"), 0o600))
		expect.Until(t, "what the command writes at its end", func() bool {
			text, _ := os.ReadFile(book) // not there yet
			return string(text) == "alive\n"
		})
	},
	"timeout": func(_ *testing.T, x *terminal, wrapper string) {
		x.kind("timeout 0.2 " + wrapper + `sleep 100; echo co""de $?.` + "\n")
		x.shows("code 124.")
		x.kind("timeout -s KILL 0.2 " + wrapper + `sleep 100; echo co""de $?.` + "\n")
		x.shows("code 137.")
	},
	"setsid": func(_ *testing.T, x *terminal, wrapper string) {
		x.kind("setsid -w " + wrapper + `sh -c 'echo st""art; exit 3'; echo co""de $?.` + "\n")
		x.shows("code 3.")
	},
	"xargs": func(_ *testing.T, x *terminal, wrapper string) {
		x.kind("seq 6 | xargs -P3 -I{} " + wrapper + `sh -c 'echo st""art-{}'; echo co""de $?.` + "\n")
		x.shows("code 0.")
		for i := 1; i <= 6; i++ {
			x.shows(fmt.Sprintf("start-%d", i))
		}
	},
	"a pipe that closes": func(_ *testing.T, x *terminal, wrapper string) {
		x.kind(wrapper + `yes | head -n 1; echo co""de ${PIPESTATUS[*]}.` + "\n")
		x.shows("code 141 0.")
	},
	"both ends of a pipe": func(_ *testing.T, x *terminal, wrapper string) {
		x.kind("seq 5 | " + wrapper + `sort -r | head -n 1; echo co""de ${PIPESTATUS[*]}.` + "\n")
		x.shows("5\r\ncode 0 0 0.")
	},
	"interrupt in a pipeline": func(_ *testing.T, x *terminal, wrapper string) {
		x.kind(wrapper + `sh -c 'echo st""art; exec sleep 100' | cat; echo co""de $?.` + "\n")
		x.shows("start")
		x.kind("\x03")
		x.kind(`echo a""live` + "\n")
		x.shows("alive")
	},
	"a command that is killed": func(_ *testing.T, x *terminal, wrapper string) {
		x.kind(wrapper + `sh -c 'kill -KILL $$'; echo co""de $?.` + "\n")
		x.shows("code 137.")
		x.kind(wrapper + `sh -c 'kill -USR1 $$'; echo co""de $?.` + "\n")
		x.shows("code 138.")
	},
	"reading a password": func(_ *testing.T, x *terminal, wrapper string) {
		x.kind(wrapper + `bash -c 'read -rsp "pa""ss: " x </dev/tty; echo "got ${x:0:2}"'` + "\n")
		x.shows("pass: ")
		x.kind("hush\n")
		x.shows("got hu")
		x.never("hush")
	},
}

// breakScript types ^C while a script runs a loop of commands.
func breakScript(t *testing.T, x *terminal, shell, wrapper string) {
	script := filepath.Join(t.TempDir(), "script")
	text := "for i in 1 2 3; do " + wrapper + `sh -c 'echo start $1; exec sleep 100' sh $i; done; echo the""end` + "\n"
	expect.OK(t, os.WriteFile(script, []byte(text), 0o600))
	x.kind(shell + " " + script + `; echo co""de $?.` + "\n")
	x.shows("start 1")
	x.kind("\x03")
	x.kind(`echo a""live` + "\n")
	x.shows("alive")
	x.never("start 2", "theend")
}

func TestShell(t *testing.T) {
	for name, play := range scenes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, wrapper := range []string{"", "flock " + filepath.Join(t.TempDir(), "lock") + " ", "sema run v -- "} {
				tool, _, _ := strings.Cut(wrapper, " ")
				if tool == "" {
					tool = "bare"
				}
				if tool == "flock" && name == "interrupt heeded by the command" {
					continue // flock dies of it before the command ends
				}
				t.Run(tool, func(t *testing.T) {
					if tool != "bare" {
						if _, err := exec.LookPath(tool); err != nil {
							t.Fatal(err)
						}
					}
					url := fileURL(t)
					x := onTerminal(t, url, "bash", "--norc", "--noprofile", "--noediting", "-i")
					x.kind("PS1=; PS2=\n")
					play(t, x, wrapper)
					_ = x.master.Close()
					_ = x.cmd.Process.Signal(syscall.SIGHUP)
					// And nothing is left: no process, no permit.
					look(t, url, "v").until("the end of it", func(st sema.State) bool { return len(st.Holders) == 0 })
				})
			}
		})
	}
}
