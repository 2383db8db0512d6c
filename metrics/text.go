package metrics

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// ContentType is the media type of what [WriteText] writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Handler serves the figures of all sources in Prometheus' text format, to GET
// and HEAD. It is for the address from which Prometheus scrapes: who may read
// it is for the caller to see to.
func Handler(sources ...Source) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "metrics: want GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		var text bytes.Buffer
		_ = WriteText(r.Context(), &text, sources...) // into memory
		w.Header().Set("Content-Type", ContentType)
		w.Header().Set("Content-Length", strconv.Itoa(text.Len()))
		_, _ = w.Write(text.Bytes()) // whoever asked may have gone
	})
}

// WriteText writes the figures of all sources in Prometheus' text format,
// version 0.0.4. Two sources must not have series of the same metric with the
// same labels. The error is w's.
func WriteText(ctx context.Context, w io.Writer, sources ...Source) error {
	byName := map[string][]Series{}
	for _, s := range sources {
		for _, f := range s.Families(ctx) {
			byName[f.Name] = append(byName[f.Name], f.Series...)
		}
	}
	var text []byte
	for _, f := range about {
		if f.Series = byName[f.Name]; len(f.Series) > 0 {
			text = f.appendText(text)
		}
	}
	_, err := w.Write(text)
	return err
}

func (f Family) appendText(text []byte) []byte {
	name := f.PrometheusName()
	text = append(text, "# HELP "+name+" "+f.Help+"\n# TYPE "+name+" "+[]string{"gauge", "counter", "histogram"}[f.Kind]+"\n"...)
	for _, s := range f.Series {
		if f.Kind != Histogram {
			text = appendLine(text, name, s.Labels, s.Value)
			continue
		}
		sum := uint64(0)
		for i, count := range s.Spread.Counts {
			sum += count
			bound := "+Inf"
			if i < len(s.Spread.Bounds) {
				bound = number(s.Spread.Bounds[i])
			}
			text = appendLine(text, name+"_bucket", append(s.Labels[:len(s.Labels):len(s.Labels)], Label{"le", bound}), float64(sum))
		}
		text = appendLine(text, name+"_sum", s.Labels, s.Spread.Sum)
		text = appendLine(text, name+"_count", s.Labels, float64(sum))
	}
	return text
}

// escapes are those of a label's value.
var escapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func appendLine(text []byte, name string, labels []Label, value float64) []byte {
	text = append(text, name...)
	for i, l := range labels {
		text = append(text, "{,"[min(i, 1)])
		text = append(text, l.PrometheusName()+`="`+escapes.Replace(l.Value)+`"`...)
	}
	if len(labels) > 0 {
		text = append(text, '}')
	}
	return append(text, " "+number(value)+"\n"...)
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
