//go:build unix

package hosts

import (
	"errors"
	"testing"
)

// JudgesByTheToken fails the test unless an empty store lets tokens grow, and stay,
// but not fall back.
func JudgesByTheToken(t *testing.T, s Store) {
	t.Helper()
	last := ""
	for _, write := range []struct {
		token int64
		text  string
		want  error
	}{{5, "a", nil}, {5, "b", nil}, {7, "c", nil}, {5, "d", ErrFenced}, {6, "e", ErrFenced}, {7, "f", nil}, {8, "f", nil}, {7, "f", ErrFenced}} {
		if err := s.Change(t.Context(), write.token, func(string) string { return write.text }); !errors.Is(err, write.want) {
			t.Errorf("%q with token %d: %v, want %v", write.text, write.token, err, write.want)
		}
		if write.want == nil {
			last = write.text
		}
		holds(t, s, last)
	}
}

// RefusesALateWrite fails the test unless a write is refused that had passed the
// token's check when a newer one came. The newer one does not even change the text.
func RefusesALateWrite(t *testing.T, s Store) {
	t.Helper()
	if err := s.Change(t.Context(), 5, func(string) string { return "same" }); err != nil {
		t.Fatal(err)
	}
	tries := 0
	err := s.Change(t.Context(), 5, func(string) string {
		if tries++; tries > 1 {
			return "late"
		}
		if err := s.Change(t.Context(), 7, func(old string) string { return old }); err != nil {
			t.Error(err)
		}
		return "late"
	})
	if !errors.Is(err, ErrFenced) {
		t.Errorf("the late write: %v, want %v", err, ErrFenced)
	}
	holds(t, s, "same")
}

func holds(t *testing.T, s Store, want string) {
	t.Helper()
	text, err := s.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if text != want {
		t.Errorf("the storage holds %q, want %q", text, want)
	}
}
