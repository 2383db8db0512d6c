package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// ServerVariable names the environment variable that says which program to
// start: a Redis or a Valkey, in Sentinels and clusters too.
const ServerVariable = "SEMA_REDIS_SERVER"

// program is the path of the server to start, redis-server by default.
func program() (string, error) {
	if name := os.Getenv(ServerVariable); name != "" {
		path, err := exec.LookPath(name)
		if err != nil {
			return "", fmt.Errorf("%s: %w", ServerVariable, err)
		}
		return path, nil
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", errors.New("no redis-server on this machine; try: apt-get install redis-server")
	}
	return path, nil
}

// Version is what the server says that it is: "Redis 7.0.15", "Valkey 8.0.1".
func (s *Server) Version() string {
	s.tb.Helper()
	info, err := s.Client().InfoMap(context.Background(), "server").Result()
	if err != nil {
		s.tb.Fatalf("redistest: version: %v", err)
	}
	// Valkey calls itself Redis 7.2.4 as well, for clients that look.
	server := info["Server"]
	if version := server["valkey_version"]; version != "" {
		return "Valkey " + version
	}
	if server["redis_version"] == "" {
		s.tb.Fatalf("redistest: version: the server does not say")
	}
	return "Redis " + server["redis_version"]
}
