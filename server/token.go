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
	"sema/internal/rights"
	"sema/internal/wire"
)

// Tokens are the bearer tokens that a server accepts. Create them with ReadTokens. They
// are safe for concurrent use.
type Tokens struct {
	byName  atomic.Pointer[map[string]*bearer]
	guesses rights.RateLimit // wrong secrets, by address and name

	mu    sync.Mutex
	shown map[[sha256.Size]byte]struct{} // hashes of address and token, valid or not
}

// maxShown is the largest size of Tokens.shown; above it, it starts again empty.
const maxShown = 10_000

// bearer is a token's name with its right and its secrets.
type bearer struct {
	access.Who
	secrets []secret
}

type secret struct {
	hash    [sha256.Size]byte
	expires time.Time // zero: never
}

func (s secret) valid() bool { return s.expires.IsZero() || time.Now().Before(s.expires) }

// local is the bearer of every request to a server without tokens.
var local = &access.Who{Name: "local", Right: rights.Admin}

// ReadTokens reads a token file. It ignores empty lines and lines that begin with #. Each
// other line has four or five words:
//
//	NAME  read|use|admin  PREFIX[,PREFIX…] or *  SECRET or sha256:HEX  [expires=2027-01-31]
//
// NAME is 1 … 16 lower-case letters and digits. SECRET has at least 16 characters, and HEX
// is the SHA-256 of a secret. A client sends the token NAME.SECRET. The token expires at
// the beginning of the day in expires, in UTC. A name with several secrets has one line
// for each, with the same right and prefixes. An error names the line, and never contains
// a secret.
func ReadTokens(r io.Reader) (*Tokens, error) {
	t := &Tokens{guesses: rights.RateLimit{Burst: 20, Every: time.Second}}
	if err := t.Reread(r); err != nil {
		return nil, err
	}
	return t, nil
}

// Reread replaces the tokens by those of a token file. This concerns new requests at once,
// and open connections and streams within seconds. After an error, which is as that of
// ReadTokens, the old tokens stay valid.
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
				err = fmt.Errorf("the name %q occurs twice, with different rights or prefixes", who.Name)
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
	who := &bearer{Who: access.Who{Name: words[0], Right: words[1]}}
	switch {
	case !wire.TokenName(who.Name):
		return nil, fmt.Errorf("the first word is no name: want 1 to 16 lower-case letters and digits")
	case who.Name == local.Name:
		return nil, fmt.Errorf("the name %q is taken: want another", who.Name)
	case !rights.IsRight(who.Right):
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

// Find returns the bearer of a token, NAME.SECRET, or nil if the token is not valid. Its time
// reveals nothing about the secret.
func (t *Tokens) Find(token string) *access.Who {
	who, _ := t.find(token)
	return who
}

func (t *Tokens) find(token string) (*access.Who, error) {
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
		if one.valid() {
			return &who.Who, nil
		}
		err = fmt.Errorf("the secret of %q has expired", name)
	}
	return nil, err
}

// Expired reports whether all tokens have expired.
func (t *Tokens) Expired() bool {
	for _, who := range *t.byName.Load() {
		for _, one := range who.secrets {
			if one.valid() {
				return false
			}
		}
	}
	return true
}

// Login is Find with a limit on guesses. An address may try 20 wrong secrets of a name, and
// then one a second. Beyond that Login refuses further secrets of that name without
// checking them. A secret that the address has tried before is always checked, and counts
// as no guess. So a client that still sends an old secret does not lock out a valid one.
// The error gives the reason in a few words, for an audit log.
func (t *Tokens) Login(r *http.Request, token string) (*access.Who, error) {
	key, secret, shown := t.attempt(r, token)
	if !shown && t.guesses.Wait(key) > 0 {
		return nil, errGuessing
	}
	who, err := t.find(token)
	if err != nil && !shown {
		t.guesses.Take(key)
	}
	if !shown && err != errNoToken { // unknown names are unlimited, and would fill the map
		t.mu.Lock()
		if t.shown == nil || len(t.shown) >= maxShown {
			t.shown = map[[sha256.Size]byte]struct{}{}
		}
		t.shown[secret] = struct{}{}
		t.mu.Unlock()
	}
	return who, err
}

// Unchecked reports whether Login refuses a token now without checking it.
func (t *Tokens) Unchecked(r *http.Request, token string) bool {
	key, _, shown := t.attempt(r, token)
	return !shown && t.guesses.Wait(key) > 0
}

// attempt returns the key that counts a token's guesses, the token's hash, and whether its sender has tried it before.
func (t *Tokens) attempt(r *http.Request, token string) (key string, secret [sha256.Size]byte, shown bool) {
	host := rights.Host(r)
	name, _, _ := strings.Cut(token, ".")
	key, secret = host+" "+name[:min(len(name), 20)], sha256.Sum256([]byte(host+" "+token))
	t.mu.Lock()
	defer t.mu.Unlock()
	_, shown = t.shown[secret]
	return key, secret, shown
}

// The sender of a request. The error is an *httpProblem: with status 401, with
// 429 after too many wrong secrets from the same address, or with 403 if a page of another
// site caused the request.
func (s *Server) who(r *http.Request) (*access.Who, error) {
	if s.tokens == nil {
		if err := s.ownSite(r); err != nil {
			return nil, err
		}
		return local, nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, problem(http.StatusUnauthorized, "unauthorized", "this server needs a token: Authorization: Bearer NAME.SECRET")
	}
	who, err := s.tokens.Login(r, strings.TrimSpace(token))
	if err == nil {
		return who, nil
	}
	p := problem(http.StatusUnauthorized, "unauthorized", "the token is not one of this server's")
	if err == errGuessing {
		p = problem(http.StatusTooManyRequests, "guessing", "%v: this token is not checked now", err).soon(time.Second)
	}
	p.audited = err.Error()
	return nil, p
}

// errTokenOver ends a stream or a hold whose token is no longer valid.
var errTokenOver = problem(http.StatusUnauthorized, "unauthorized", "the token is no longer valid: it has expired, or was removed from the file")

// stillAllowed reports whether a running request still has the right with which it began. Its
// token may have expired or been removed from the file.
func (s *Server) stillAllowed(r *http.Request, who *access.Who) bool {
	if s.tokens == nil {
		return true
	}
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	now := s.tokens.Find(strings.TrimSpace(token))
	return now != nil && now.Name == who.Name && now.Right == who.Right && slices.Equal(now.Prefixes, who.Prefixes)
}
