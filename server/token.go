package server

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"

	"sema/access"
	"sema/engine"
	"sema/internal/wire"
)

// Tokens are the bearer tokens that a server takes. Create them with ReadTokens.
type Tokens struct{ byName map[string]*bearer }

// Who is the bearer of a token. Its name is "local" where none is needed.
type Who = access.Who

type bearer struct {
	Who
	hash [sha256.Size]byte
}

// local is everybody, to a server without tokens.
var local = &Who{Name: "local", Right: access.Admin}

// ReadTokens reads a token file. Each line has four words; empty lines and
// those that begin with # are passed over:
//
//	NAME  read|use|admin  PREFIX[,PREFIX…] or *  SECRET or sha256:HEX
//
// NAME is 1 … 16 lower-case letters and digits; SECRET has at least 16
// characters; HEX is the SHA-256 of the secret. A client shows NAME.SECRET. An
// error names the line, never a secret.
func ReadTokens(r io.Reader) (*Tokens, error) {
	t := &Tokens{byName: map[string]*bearer{}}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		who, err := readToken(strings.Fields(text))
		if err == nil && t.byName[who.Name] != nil {
			err = fmt.Errorf("the name %q is there twice", who.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("sema: token file, line %d: %w", n, err)
		}
		t.byName[who.Name] = who
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("sema: token file: %w", err)
	}
	if len(t.byName) == 0 {
		return nil, fmt.Errorf("sema: token file: no token in it")
	}
	return t, nil
}

func readToken(words []string) (*bearer, error) {
	if len(words) != 4 {
		return nil, fmt.Errorf("%d words; want four: NAME RIGHT PREFIXES SECRET", len(words))
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
	secret := words[3]
	if text, ok := strings.CutPrefix(secret, "sha256:"); ok {
		hash, err := hex.DecodeString(text)
		if err != nil || len(hash) != sha256.Size {
			return nil, fmt.Errorf("the fourth word is no hash: want sha256: and 64 hexadecimal digits")
		}
		who.hash = [sha256.Size]byte(hash)
		return who, nil
	}
	if len(secret) < 16 {
		return nil, fmt.Errorf("the secret is too short: want at least 16 characters")
	}
	who.hash = sha256.Sum256([]byte(secret))
	return who, nil
}

// Find is the bearer of a token, NAME.SECRET; nil if there is none. How long it
// takes says nothing of the secret.
func (t *Tokens) Find(token string) *Who {
	name, secret, _ := strings.Cut(token, ".")
	hash := sha256.Sum256([]byte(secret))
	who := t.byName[name]
	if who == nil {
		return nil
	}
	if subtle.ConstantTimeCompare(hash[:], who.hash[:]) != 1 {
		return nil
	}
	return &who.Who
}

// Who finds out who sent a request. The error is a *Problem with status 401, or 403 where
// a browser was led here by another site.
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
	if who := s.tokens.Find(strings.TrimSpace(token)); who != nil {
		return who, nil
	}
	return nil, problem(http.StatusUnauthorized, "unauthorized", "the token is not one of this server's")
}
