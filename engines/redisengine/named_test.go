package redisengine

import (
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"

	"sema/engine"
)

// A tail may contain anything.
func TestTail(t *testing.T) {
	for _, c := range []struct {
		tail string
		who  engine.Client
	}{
		{},
		{tail: "p1.1"},
		{tail: "p1.1\x00"},
		{tail: "\x00\x00"},
		{tail: "p1.1\x00p2.1\x00{"},
		{tail: "p1.1\x00\x00" + `{"host":"h","pid":1,"caller":"c","lease":7}`, who: engine.Client{Host: "h", PID: 1, Caller: "c", Lease: 7}},
	} {
		for key, entry := range map[string]string{"": "q", "acme": "Qacme\x00"} {
			if is, who := behind(entry+c.tail, 1); is.Text() != key || who != c.who {
				t.Errorf("%q: %+v, %+v; want %q, %+v", entry+c.tail, is, who, key, c.who)
			}
		}
	}
}

func TestLongDescriptionsTravelWhole(t *testing.T) {
	for _, label := range []string{"", "ü\x00\"", strings.Repeat("x", 1<<20)} {
		b := appendClient([]byte("before"), &engine.Client{Label: label})[len("before"):]
		var got engine.Client
		if n := int(binary.LittleEndian.Uint32(b)); n != len(b)-4 || json.Unmarshal(b[4:], &got) != nil || got.Label != label {
			t.Errorf("%d bytes: %d of %d, %d bytes read", len(label), n, len(b)-4, len(got.Label))
		}
	}
}
