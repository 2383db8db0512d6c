package wire_test

import (
	"bufio"
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sema/engine"
	"sema/internal/protocol"
	"sema/internal/wire"
)

// fill sets every field of a struct to a value drawn by rapid. So the tests find a field
// of package engine that is not encoded.
func fill(t *rapid.T, v reflect.Value, skip string) {
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		if strings.Contains(skip, name) {
			continue
		}
		switch f.Kind() {
		case reflect.String:
			f.SetString(rapid.StringMatching(`[a-z0-9.]{1,40}`).Draw(t, name))
		case reflect.Bool:
			f.SetBool(rapid.Bool().Draw(t, name))
		case reflect.Int64:
			f.SetInt(rapid.Int64().Draw(t, name))
		case reflect.Int:
			f.SetInt(int64(rapid.Int32().Draw(t, name)))
		case reflect.Uint64:
			f.SetUint(rapid.Uint64().Draw(t, name))
		case reflect.Uint8:
			f.SetUint(uint64(rapid.Uint8().Draw(t, name)))
		case reflect.Array: // of numbers
			for k := range f.Len() {
				f.Index(k).SetInt(int64(rapid.Int32().Draw(t, name)))
			}
		case reflect.Struct:
			fill(t, f, skip)
		case reflect.Slice:
			n := rapid.IntRange(0, 3).Draw(t, name)
			if n > 0 {
				f.Set(reflect.MakeSlice(f.Type(), n, n))
			}
			for k := range n {
				fill(t, f.Index(k), skip)
			}
		case reflect.Pointer:
			if rapid.Bool().Draw(t, "no "+name) {
				continue
			}
			f.Set(reflect.New(f.Type().Elem()))
			fill(t, f.Elem(), skip)
		default:
			t.Fatalf("this test does not support the field %s of kind %v", name, f.Kind())
		}
	}
}

func readStep(b []byte) (*wire.Step, error) {
	s := &wire.Step{}
	return s, s.Read(b)
}

func readReply(b []byte, own string) (wire.Reply, error) {
	r := wire.Reply{}
	err := r.Read(b, own)
	return r, err
}

func TestStepTravels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &wire.Step{}
		fill(t, reflect.ValueOf(s).Elem(), "")
		got, err := readStep(wire.AppendStep(nil, s))
		if err != nil || !reflect.DeepEqual(got, s) {
			t.Fatalf("%+v, %v; want %+v", got, err, s)
		}
	})
}

// TestReadAgain reads several messages into the same memory.
func TestReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		step, reply := &wire.Step{}, &wire.Reply{}
		for range 3 {
			s, r := &wire.Step{}, wire.Reply{}
			fill(t, reflect.ValueOf(s).Elem(), "")
			fill(t, reflect.ValueOf(&r).Elem(), "Until")
			sent, answered := wire.AppendStep(nil, s), wire.AppendReply(nil, &r, "me")
			err := errors.Join(step.Read(sent), reply.Read(answered, "me"))
			again, back := wire.AppendStep(nil, step), wire.AppendReply(nil, reply, "me")
			if err != nil || !bytes.Equal(again, sent) || !bytes.Equal(back, answered) {
				t.Fatalf("%+v, %+v, %v; want %+v, %+v", step, reply, err, s, r)
			}
		}
	})
}

func TestReplyTravels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := wire.Reply{}
		fill(t, reflect.ValueOf(&r).Elem(), "Until")
		if r.Reply.Notification.Empty() {
			r.Reply.Notification.Ask = true
		}
		got, err := readReply(wire.AppendReply(nil, &r, "me"), "me")
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("%+v, %v; want %+v", got, err, r)
		}
	})
}

func TestNewsTravel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []*wire.News
		var text []byte
		for range rapid.IntRange(0, 4).Draw(t, "messages") {
			n := &wire.News{}
			fill(t, reflect.ValueOf(n).Elem(), "Until")
			list = append(list, n)
			text = wire.AppendNews(text, n)
		}
		r := bufio.NewReader(bytes.NewReader(text))
		for _, n := range list {
			got, err := wire.ReadNews(r)
			if err != nil || !reflect.DeepEqual(got, n) {
				t.Fatalf("%+v, %v; want %+v", got, err, n)
			}
		}
	})
}

// A newer release may send unknown fields.
func TestUnknownFieldsAreSkipped(t *testing.T) {
	text := wire.AppendStep(nil, &wire.Step{Client: "me", Call: protocol.Call{Number: 7}})
	unknown := []byte{
		15 << 3, 0x85, 1, // a number
		15<<3 | 1, 1, 2, 3, 4, 5, 6, 7, 8,
		15<<3 | 2, 3, 'n', 'e', 'w',
		15<<3 | 5, 1, 2, 3, 4,
	}
	got, err := readStep(append(unknown, text...))
	if err != nil || got.Client != "me" || got.Call.Number != 7 {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestMalformed(t *testing.T) {
	for _, text := range []string{"\xff", "\x0a\xff", "\x0a\x05me", "\x03", "\x18", "\x19\x01", "\x32\x02\x10", "\x32\x03\x18\xff\xff"} {
		if s, err := readStep([]byte(text)); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
}

func FuzzReadStep(f *testing.F) {
	f.Add(wire.AppendStep(nil, &wire.Step{
		Client: "http.local.a.1", Open: &wire.Open{Name: "x", Was: []wire.Life{{As: "m1", Upto: 3}}},
		Call: protocol.Call{Number: 1, Requests: []protocol.Request{{Kind: protocol.Ask, ID: engine.ID{Number: 1, Weight: 1}, Limit: 3, Wait: true, Target: protocol.Target{Key: "acme\x01alice", Takes: "gpu=1"}, Caps: engine.Caps{3, 2, 1}}}},
	}))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := readStep(text)
		if err != nil {
			return
		}
		if again, err := readStep(wire.AppendStep(nil, s)); err != nil || len(again.Call.Requests) != len(s.Call.Requests) {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
	})
}

func FuzzReadReply(f *testing.F) {
	f.Add(wire.AppendReply(nil, &wire.Reply{As: "m1", Reply: protocol.Reply{Limit: 3, Answers: []protocol.Answer{{Status: protocol.Granted, Token: 9, Slot: -1}}}}, "me"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if r, err := readReply(text, "me"); err == nil {
			if _, err := readReply(wire.AppendReply(nil, &r, "me"), "me"); err != nil {
				t.Fatal(err)
			}
		}
	})
}
