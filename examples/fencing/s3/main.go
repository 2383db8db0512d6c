//go:build unix

// Command s3 has two hosts change one object of S3, each with a permit. The first
// one's permit is lost while it stands still, and S3 refuses what it sends then.
//
//	go run ./s3
//
// starts Redis, a server of S3's API (versitygw), and each host as a process of its
// own. object.go is what a program needs of it.
package main

import (
	"context"
	"net"
	"net/http"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"sema/examples/fencing/internal/hosts"
)

func main() { hosts.Main(start, open) }

// open opens the report, at a server that listens on a Unix socket.
func open(address string) (hosts.Store, error) {
	client, err := connect(address)
	if err != nil {
		return nil, err
	}
	return object{client, bucket, "report"}, nil
}

func connect(address string) (*minio.Client, error) {
	return minio.New("localhost", &minio.Options{
		Creds: credentials.NewStaticV4(user, password, ""),
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", address)
		}},
		MaxRetries: 1, // a write that is sent twice would find its own first copy
	})
}
