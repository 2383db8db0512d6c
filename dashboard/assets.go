package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"sync"
)

//go:embed assets
var files embed.FS

// asset is a file that pages link to. It is the same for everybody.
type asset struct {
	name, kind, tag string
	body            []byte
}

// assets are made when they are first needed: most programs that have this package, such
// as sema run, serve no dashboard.
var assets = sync.OnceValue(func() []asset {
	return []asset{
		newAsset("style.css", "text/css; charset=utf-8"),
		newAsset("page.js", "text/javascript; charset=utf-8"),
		newAsset("live.js", "text/javascript; charset=utf-8"),
		newAsset("icon.svg", "image/svg+xml"),
	}
})

func newAsset(name, kind string) asset {
	body, err := files.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // the build has it
	}
	sum := sha256.Sum256(body)
	return asset{name, kind, `"` + hex.EncodeToString(sum[:8]) + `"`, body}
}

func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("Cache-Control", "no-cache") // asked for again, by its tag
	w.Header().Set("ETag", a.tag)
	if r.Header.Get("If-None-Match") == a.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(a.body) // a browser that has gone
}
