package cli

import (
	"cmp"
	"context"
	"net"
	"time"

	"golang.org/x/net/netutil"
)

// vanished is how long a client may leave what the server sent unacknowledged. Then the system closes the connection.
// By default that takes a quarter of an hour, and the permit of a hold would be taken for as long. Only Linux does it.
const vanished = 10 * time.Second

// mostConns is how many connections clients may have open at a time. It is less than the number of files that this
// process may open, since the engine needs some too.
func mostConns() int {
	const usual = 30_000
	return max(1, min(usual, cmp.Or(openFiles(), usual*2)*3/4))
}

// listen listens for at most most connections at a time. A further one waits until another is closed.
func listen(address string, most int, unacknowledged time.Duration) (net.Listener, error) {
	config := net.ListenConfig{Control: userTimeout(unacknowledged)}
	config.SetMultipathTCP(false) // its sockets refuse the option
	l, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	return netutil.LimitListener(l, most), nil
}
