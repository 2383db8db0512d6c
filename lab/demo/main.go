// Command demo plays scripts/demo/play.sh and draws docs/demo.svg: a terminal in which the
// same text appears at the same times. A viewer that shows no animation, or whose user wants
// none, sees the end, with all lines. Run it at the root of the repository, with sema on the
// path: make recording.
package main

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"text/template"
	"time"
)

//go:embed demo.svg.tmpl
var page string

var svg = template.Must(template.New("demo").Parse(page))

func main() {
	script := flag.String("script", "scripts/demo/play.sh", "script to play")
	picture := flag.String("svg", "docs/demo.svg", "picture to write")
	flag.Parse()
	if err := record(*script, *picture); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// record plays a script, and shows what it prints, too.
func record(script, picture string) error {
	cmd := exec.Command(script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	writes, err := listen(io.TeeReader(out, os.Stdout))
	if failed := cmd.Wait(); err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	drawn, err := draw(writes)
	if err != nil {
		return err
	}
	return os.WriteFile(picture, drawn, 0o644)
}

// write is a text that was printed at a time after the first one.
type write struct {
	at   time.Duration
	text string
}

// listen reads until the end, which is the last write, an empty one.
func listen(r io.Reader) ([]write, error) {
	var writes []write
	var began time.Time
	buffer := make([]byte, 1<<16)
	for {
		n, err := r.Read(buffer)
		if began.IsZero() {
			began = time.Now()
		}
		at := time.Since(began)
		if n > 0 {
			writes = append(writes, write{at, string(buffer[:n])})
		}
		if err == io.EOF {
			return append(writes, write{at: at}), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// The shapes of the picture, as its template wants them.
type (
	piece struct {
		Keyframe string // "": it is there from the begin
		Text     string
	}
	line struct {
		Y      int
		Typed  bool
		Pieces []piece
	}
	keyframe struct{ Name, Percent string }
	picture  struct {
		Width, Height int
		Seconds       string
		Keyframes     []keyframe
		Lines         []line
	}
)

// Sizes in pixels. A letter gets more room than any usual font needs.
const (
	letter, margin = 8.6, 16
	top, height    = 50, 19
)

// The prompt of the script, which begins a typed line.
const prompt, afterPrompt = "\x1b[1;32m$", "\x1b[0m"

// draw makes a picture of the printed text. Two writes that are less than a frame apart
// appear together.
func draw(writes []write) ([]byte, error) {
	const frame = 20 * time.Millisecond
	end := writes[len(writes)-1].at
	p := picture{Width: 2 * margin, Seconds: fmt.Sprintf("%.1f", end.Seconds())}
	var shown time.Duration
	name, fresh := "", true
	for _, w := range writes {
		if w.at-shown >= frame && strings.TrimSpace(w.text) != "" {
			shown = w.at
			name = fmt.Sprintf("k%d", len(p.Keyframes))
			p.Keyframes = append(p.Keyframes, keyframe{name, fmt.Sprintf("%.2f", 100*shown.Seconds()/end.Seconds())})
		}
		for text := range strings.Lines(w.text) {
			if fresh {
				p.Lines = append(p.Lines, line{Y: top + height*len(p.Lines)})
			}
			l := &p.Lines[len(p.Lines)-1]
			text, fresh = strings.CutSuffix(text, "\n")
			if rest, ok := strings.CutPrefix(text, prompt); ok {
				l.Typed = true
				l.Pieces = append(l.Pieces, piece{name, "$"})
				text = rest
			}
			if text = strings.TrimPrefix(text, afterPrompt); text != "" {
				l.Pieces = append(l.Pieces, piece{name, text})
			}
		}
	}
	for _, l := range p.Lines {
		n := 0
		for _, piece := range l.Pieces {
			n += len(piece.Text)
		}
		p.Width = max(p.Width, 2*margin+int(letter*float64(n)))
	}
	p.Height = top + height*len(p.Lines)
	var b bytes.Buffer
	err := svg.Execute(&b, p)
	return b.Bytes(), err
}
