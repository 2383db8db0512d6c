package atonce

import (
	"slices"
	"testing"
)

func TestRead(t *testing.T) {
	got := Read([]byte("began a 1 10\nother words\nbegan b 2 20\nended a 1 20\nbegan a 1 30\nended a 1 3"), 25)
	want := []Span{{"a", "1", 10, 20}, {"b", "2", 20, 25}, {"a", "1", 30, 25}}
	if !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
}

func TestMost(t *testing.T) {
	spans := []Span{{"a", "1", 10, 20}, {"a", "2", 20, 40}, {"a", "3", 30, 35}, {"b", "4", 34, 0}}
	if n, at := Most(spans); n != 3 || at != 34 {
		t.Errorf("%d at %d; want 3 at 34", n, at)
	}
	if n, _ := Most(spans[:2]); n != 1 {
		t.Errorf("%d one after the other; want 1", n)
	}
}
