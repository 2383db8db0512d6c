package httpengine

import (
	"context"
	"net"
	"net/http"
)

// DialBy has the engine make its connections another way, from now on.
func (e *Engine) DialBy(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	e.lines.dial = dial
	e.client.Transport.(*http.Transport).DialContext = dial
}
