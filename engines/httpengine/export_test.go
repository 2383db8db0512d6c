package httpengine

import (
	"context"
	"net"
	"net/http"
)

// DialBy makes the engine open its next connections with dial.
func (e *Engine) DialBy(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	e.client.Transport.(*http.Transport).DialContext = dial
}
