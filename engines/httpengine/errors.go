package httpengine

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"sema/engine"
	"sema/internal/wire"
)

// noAnswer makes the error of a request without an answer.
func noAnswer(op, name string, err error) *engine.Error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // url.Error shows the whole URL
	}
	failure := &engine.Error{Op: op, Name: name, Temporary: true, Err: err, Hint: "check that the server runs and the address is right"}
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	var address *net.AddrError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, new(tls.RecordHeaderError)):
		failure.Temporary, failure.Hint = false, "the server speaks no TLS here: http://"
	case errors.As(err, &certificate):
		failure.Temporary, failure.Hint = false, "the server's certificate is not trusted: see Options.TLS"
	case errors.As(err, &address):
		failure.Temporary, failure.Hint = false, "write the address as http://host:port"
	case errors.Is(err, io.EOF):
		failure.Hint += "; the server may want TLS: https://"
	}
	failure.NotExecuted = !failure.Temporary || errors.As(err, &dial) && dial.Op == "dial"
	return failure
}

// errNoSession says that the session is not open at the server.
var errNoSession = errors.New("the server does not know the session")

// refused makes the error of an answer with a status other than success.
func refused(op, name string, answer *http.Response, body []byte) *engine.Error {
	failure := &engine.Error{Op: op, Name: name}
	p := wire.Problem{}
	if json.Unmarshal(body, &p) != nil || p.Type == "" {
		failure.Err = fmt.Errorf("the server answers %s", answer.Status)
		switch code := answer.StatusCode; code { // a proxy's, if the server is away or busy
		case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		default:
			failure.Temporary = code >= 500 || code == http.StatusTooManyRequests
		}
		failure.Hint = checkURL
		if strings.Contains(string(body), "HTTPS") {
			failure.Hint = "the server wants TLS: https://"
		}
		return failure
	}
	failure.Err, failure.Hint = errors.New(p.Detail), p.Hint
	failure.NotExecuted, failure.Temporary = p.NotExecuted, p.Temporary
	switch {
	case p.Type == wire.ProblemType+wire.NoSession:
		failure.Err = errNoSession
	case p.Status == http.StatusUnauthorized && failure.Hint == "":
		failure.Hint = "check the token, $SEMA_SERVER_TOKEN"
	case p.Status == http.StatusForbidden && failure.Hint == "":
		failure.Hint = "use a token with more rights"
	}
	return failure
}
