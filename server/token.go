package server

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sema/access"
	"sema/engine"
	"sema/internal/rate"
	"sema/internal/wire"
)

// Tokens are the bearer tokens that a server takes. Create them with ReadTokens; they
// are safe for concurrent use.
type Tokens struct {
	byName  atomic.Pointer[map[string]*bearer]
	guesses rate.Limit // wrong secrets, by address and name

	mu    sync.Mutex
	shown map[[sha256.Size]byte]struct{} // what an address has shown, right or wrong
}

// maxShown is how many Tokens remember; then they forget all.
const maxShown = 10_000

// Who is the bearer of a token. Its name is "local" where none is needed.
type Who = access.Who

// bearer is a name with its right and its secrets.
type bearer struct {
	Who
	secrets []secret
}

type secret struct {
	hash    [sha256.Size]byte
	expires time.Time // zero: never
}

// taken reports whether it has not expired.
func (s secret) taken() bool { return s.expires.IsZero() || time.Now().Before(s.expires) }

// local is everybody, to a server without tokens.
var local = &Who{Name: "local", Right: access.Admin}

// ReadTokens reads a token file. Each line has four words or five; empty lines and
// those that begin with # are passed over:
//
//	NAME  read|use|admin  PREFIX[,PREFIX…] or *  SECRET or sha256:HEX  [expires=2027-01-31]
//
// NAME is 1 … 16 lower-case letters and digits; SECRET has at least 16
// characters; HEX is the SHA-256 of the secret. A client shows NAME.SECRET. From the
// beginning of the day of expires on, in UTC, it is not taken any more. A name with
// several secrets has as many lines, with the same right and prefixes. An error names
// the line, never a secret.
func ReadTokens(r io.Reader) (*Tokens, error) {
	t := &Tokens{guesses: rate.Limit{Burst: 20, Every: time.Second}}
	if err := t.Reread(r); err != nil {
		return nil, err
	}
	return t, nil
}

// Reread takes the tokens of a token file in place of those of before, for requests
// that come from now on, and for connections and streams that are open within seconds.
// With an error, which is as that of ReadTokens, those of before stay.
func (t *Tokens) Reread(r io.Reader) error {
	byName := map[string]*bearer{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		who, err := readToken(strings.Fields(text))
		if err == nil {
			if old := byName[who.Name]; old == nil {
				byName[who.Name] = who
			} else if old.Right != who.Right || !slices.Equal(old.Prefixes, who.Prefixes) {
				err = fmt.Errorf("the name %q is there twice, with different rights or prefixes", who.Name)
			} else {
				old.secrets = append(old.secrets, who.secrets...)
			}
		}
		if err != nil {
			return fmt.Errorf("sema: token file, line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("sema: token file: %w", err)
	}
	if len(byName) == 0 {
		return fmt.Errorf("sema: token file: no token in it")
	}
	t.byName.Store(&byName)
	return nil
}

func readToken(words []string) (*bearer, error) {
	if len(words) != 4 && len(words) != 5 {
		return nil, fmt.Errorf("%d words; want NAME RIGHT PREFIXES SECRET, and perhaps expires=YEAR-MONTH-DAY", len(words))
	}
	who := &bearer{Who: Who{Name: words[0], Right: access.ParseRight(words[1])}}
	switch {
	case !wire.TokenName(who.Name):
		return nil, fmt.Errorf("the first word is no name: want 1 to 16 lower-case letters and digits")
	case who.Name == local.Name:
		return nil, fmt.Errorf("the name %q is taken: want another", who.Name)
	case who.Right == access.None:
		return nil, fmt.Errorf("the second word is no right: want read, use or admin")
	}
	if words[2] != "*" {
		who.Prefixes = strings.Split(words[2], ",")
		for _, p := range who.Prefixes {
			if err := engine.ValidateName(p); err != nil {
				return nil, fmt.Errorf("the third word is no list of prefixes: %w", err)
			}
		}
	}
	one := secret{hash: sha256.Sum256([]byte(words[3]))}
	if text, ok := strings.CutPrefix(words[3], "sha256:"); ok {
		hash, err := hex.DecodeString(text)
		if err != nil || len(hash) != sha256.Size {
			return nil, fmt.Errorf("the fourth word is no hash: want sha256: and 64 hexadecimal digits")
		}
		one.hash = [sha256.Size]byte(hash)
	} else if len(words[3]) < 16 {
		return nil, fmt.Errorf("the secret is too short: want at least 16 characters")
	}
	if len(words) == 5 {
		day, ok := strings.CutPrefix(words[4], "expires=")
		at, err := time.Parse(time.DateOnly, day)
		if err != nil || !ok {
			return nil, fmt.Errorf("the fifth word is no day: want such as expires=2027-01-31")
		}
		one.expires = at
	}
	who.secrets = []secret{one}
	return who, nil
}

var (
	errNoToken  = errors.New("there is no such token")
	errGuessing = errors.New("too many wrong secrets from this address")
)

// Find is the bearer of a token, NAME.SECRET; nil if there is none. How long it
// takes says nothing of the secret.
func (t *Tokens) Find(token string) *Who {
	who, _ := t.find(token)
	return who
}

func (t *Tokens) find(token string) (*Who, error) {
	name, text, _ := strings.Cut(token, ".")
	hash := sha256.Sum256([]byte(text))
	who := (*t.byName.Load())[name]
	if who == nil {
		return nil, errNoToken
	}
	err := fmt.Errorf("the secret of %q is wrong", name)
	for _, one := range who.secrets {
		if subtle.ConstantTimeCompare(hash[:], one.hash[:]) != 1 {
			continue
		}
		if one.taken() {
			return &who.Who, nil
		}
		err = fmt.Errorf("the secret of %q has expired", name)
	}
	return nil, err
}

// Expired reports whether no token is taken any more: each has expired.
func (t *Tokens) Expired() bool {
	for _, who := range *t.byName.Load() {
		for _, one := range who.secrets {
			if one.taken() {
				return false
			}
		}
	}
	return true
}

// Login is Find for a token that a request shows. An address that shows many wrong secrets
// of one name, 20 of them and then more than one a second, is refused further ones of that
// name without a look. A secret that the address showed before is looked at all the same,
// and is no further guess: a right one is not locked out by an old one that somebody
// still shows. The error says why in a few words, for an audit log.
func (t *Tokens) Login(r *http.Request, token string) (*Who, error) {
	host := access.Host(r)
	name, _, _ := strings.Cut(token, ".")
	key, secret := host+" "+name[:min(len(name), 20)], sha256.Sum256([]byte(host+" "+token))
	t.mu.Lock()
	_, shown := t.shown[secret]
	t.mu.Unlock()
	if !shown && t.guesses.Wait(key) > 0 {
		return nil, errGuessing
	}
	who, err := t.find(token)
	if err != nil && !shown {
		t.guesses.Take(key)
	}
	if !shown && err != errNoToken { // of names that do not exist anybody could show thousands
		t.mu.Lock()
		if t.shown == nil || len(t.shown) >= maxShown {
			t.shown = map[[sha256.Size]byte]struct{}{}
		}
		t.shown[secret] = struct{}{}
		t.mu.Unlock()
	}
	return who, err
}

// Who finds out who sent a request. The error is a *Problem with status 401, with 429 where
// too many wrong secrets came from there, or with 403 where a browser was led here by
// another site.
func (s *Server) Who(r *http.Request) (*Who, error) {
	if s.tokens == nil {
		if err := s.ownSite(r); err != nil {
			return nil, err
		}
		return local, nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, problem(http.StatusUnauthorized, "unauthorized", "this server wants a token: Authorization: Bearer NAME.SECRET")
	}
	who, err := s.tokens.Login(r, strings.TrimSpace(token))
	if err == nil {
		return who, nil
	}
	p := problem(http.StatusUnauthorized, "unauthorized", "the token is not one of this server's")
	if err == errGuessing {
		p = problem(http.StatusTooManyRequests, "guessing", "%v: this token is not looked at now", err).after(time.Second)
		p.Temporary = true
	}
	p.audited = err.Error()
	return nil, p
}

// errTokenOver ends what goes on for a token that is not taken any more.
var errTokenOver = problem(http.StatusUnauthorized, "unauthorized", "the token is not taken any more: it has expired, or was taken out of the file")

// still reports whether a request that goes on has the right that it began with: its
// token may have been taken out of the file, or have expired.
func (s *Server) still(r *http.Request, who *Who) bool {
	if s.tokens == nil {
		return true
	}
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	now := s.tokens.Find(strings.TrimSpace(token))
	return now != nil && now.Name == who.Name && now.Right == who.Right && slices.Equal(now.Prefixes, who.Prefixes)
}
