package server

import (
	"compress/gzip"
	"mime"
	"net/http"
	"strings"
	"sync"
)

// compress calls h, and compresses pages, lists and scripts if the client accepts gzip. It
// does not compress streams and small answers.
func compress(h http.Handler, w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || !readsGzip(r) {
		h.ServeHTTP(w, r)
		return
	}
	c := &compressor{ResponseWriter: w}
	defer c.end()
	h.ServeHTTP(c, r)
}

// readsGzip reports whether the sender of a request accepts gzip.
func readsGzip(r *http.Request) bool {
	for word := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(word), ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			return strings.Trim(strings.TrimSpace(quality), "q=0.") != "" || quality == ""
		}
	}
	return false
}

// compressible are the content types that compress well.
var compressible = map[string]bool{
	"text/html": true, "text/css": true, "text/javascript": true, "text/plain": true, "image/svg+xml": true,
	"application/json": true, "application/openmetrics-text": true,
}

const minCompressed = 1 << 10 // bytes; smaller answers are not compressed

// compressor decides at the first write.
type compressor struct {
	http.ResponseWriter
	status  int
	decided bool
	zip     *gzip.Writer
}

var zips = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails only with an invalid level
	return z
}}

// Unwrap is for http.ResponseController.
func (c *compressor) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// WriteHeader implements http.ResponseWriter. It waits for the first write.
func (c *compressor) WriteHeader(status int) {
	if status < 200 { // the final status follows
		c.ResponseWriter.WriteHeader(status)
		return
	}
	if c.status == 0 {
		c.status = status
	}
}

func (c *compressor) Write(b []byte) (int, error) {
	c.decide(len(b))
	if c.zip != nil {
		return c.zip.Write(b)
	}
	return c.ResponseWriter.Write(b)
}

// FlushError sends everything written so far, for http.ResponseController.
func (c *compressor) FlushError() error {
	c.decide(0)
	if c.zip != nil {
		if err := c.zip.Flush(); err != nil {
			return err
		}
	}
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// decide decides about compression from the header and the size of the first write.
func (c *compressor) decide(size int) {
	if c.decided {
		return
	}
	c.decided = true
	h := c.Header()
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type")) // "": none
	if compressible[kind] {
		h.Add("Vary", "Accept-Encoding")
		whole := c.status == 0 || c.status == http.StatusOK
		if whole && size >= minCompressed && h.Get("Content-Encoding") == "" {
			h.Set("Content-Encoding", "gzip")
			h.Del("Content-Length")
			c.zip = zips.Get().(*gzip.Writer)
			c.zip.Reset(c.ResponseWriter)
		}
	}
	if c.status != 0 {
		c.ResponseWriter.WriteHeader(c.status)
	}
}

// end sends the rest of the answer.
func (c *compressor) end() {
	if !c.decided && c.status == 0 {
		return // there was no answer, or the connection was upgraded
	}
	c.decide(0)
	if c.zip != nil {
		_ = c.zip.Close() // the client may be gone
		zips.Put(c.zip)
		c.zip = nil
	}
}
