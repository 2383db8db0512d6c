package metrics

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// contentType is the media type of the text that WriteText writes.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

// Source is where figures come from: a [Recorder], a [Watch], [Process], or a server of package
// server.
type Source interface {
	// Families are the figures of this moment. Those that cannot be had before
	// ctx ends are left out. It is safe for concurrent use.
	Families(ctx context.Context) []Family
}

// Handler serves the figures of all sources in Prometheus' text format, to GET
// and HEAD. It is for the address from which Prometheus scrapes. The caller sees
// to it that nobody else may read it.
func Handler(sources ...Source) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "metrics: want GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		var text bytes.Buffer
		_ = WriteText(r.Context(), &text, sources...) // into memory
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Length", strconv.Itoa(text.Len()))
		_, _ = w.Write(text.Bytes()) // the client may have gone
	})
}

// WriteText writes the figures of all sources in Prometheus' text format,
// version 0.0.4. Two sources must not have series of the same metric with the
// same labels. The error is w's.
func WriteText(ctx context.Context, w io.Writer, sources ...Source) error {
	all := All()
	for _, s := range sources {
		for _, f := range s.Families(ctx) {
			i := slices.IndexFunc(all, func(known Family) bool { return known.Name == f.Name })
			if i < 0 { // a source's own
				i = len(all)
				all = append(all, Family{Name: f.Name, Unit: f.Unit, Help: f.Help, Kind: f.Kind})
			}
			all[i].Series = append(all[i].Series, f.Series...)
		}
	}
	var text []byte
	for _, f := range all {
		if len(f.Series) > 0 {
			text = appendFamily(text, f)
		}
	}
	_, err := w.Write(text)
	return err
}

func appendFamily(text []byte, f Family) []byte {
	name := f.PrometheusName()
	text = append(text, "# HELP "+name+" "+f.Help+"\n# TYPE "+name+" "+[]string{"gauge", "counter", "histogram"}[f.Kind]+"\n"...)
	for _, s := range f.Series {
		labels := labelsOf(s)
		if f.Kind != Histogram {
			text = appendLine(text, name, "", labels, "", s.Value)
			continue
		}
		sum := uint64(0)
		for i, count := range s.Spread.Counts {
			sum += count
			bound := "+Inf"
			if i < len(s.Spread.Bounds) {
				bound = strconv.FormatFloat(s.Spread.Bounds[i], 'g', -1, 64)
			}
			text = appendLine(text, name, "_bucket", labels, bound, float64(sum))
		}
		text = appendLine(text, name, "_sum", labels, "", s.Spread.Sum)
		text = appendLine(text, name, "_count", labels, "", float64(sum))
	}
	return text
}

// escapes are those of a label's value.
var escapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// labelsOf is the labels of a series, as between the braces.
func labelsOf(s Series) string {
	var text strings.Builder
	for i, l := range s.Labels {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(l.PrometheusName() + `="` + escapes.Replace(l.Value) + `"`)
	}
	return text.String()
}

// appendLine appends a line. bound is that of a bucket, or "".
func appendLine(text []byte, name, part, labels, bound string, value float64) []byte {
	text = append(append(text, name...), part...)
	if bound != "" {
		if labels != "" {
			labels += ","
		}
		labels += `le="` + bound + `"`
	}
	if labels != "" {
		text = append(append(append(text, '{'), labels...), '}')
	}
	text = append(text, ' ')
	text = strconv.AppendFloat(text, value, 'g', -1, 64)
	return append(text, '\n')
}
