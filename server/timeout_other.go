//go:build !linux

package server

import (
	"net"
	"time"
)

// setUserTimeout does nothing on this system: TCP's default applies.
func setUserTimeout(net.Conn, time.Duration) {}
