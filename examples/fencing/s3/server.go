//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/minio/minio-go/v7"

	"sema/internal/fixture/local"
)

const bucket, user, password = "reports", "somebody", "not-a-secret"

// start starts a server of S3's API, with an empty bucket.
func start(ctx context.Context) (address string, stop func(), err error) {
	path, err := local.Tool("servers/s3", "versitygw")
	if err != nil {
		return "", nil, err
	}
	s, err := local.Start(ctx, func(s *local.Server) (*exec.Cmd, error) {
		objects := filepath.Join(s.Dir, "objects")
		s.Address = filepath.Join(s.Dir, "s3.sock")
		cmd := exec.Command(path, "--quiet", "--port", s.Address, "posix", objects)
		cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+user, "ROOT_SECRET_KEY="+password)
		return cmd, os.Mkdir(objects, 0o700)
	}, func(ctx context.Context, s *local.Server) error {
		client, err := connect(s.Address)
		if err != nil {
			return err
		}
		return client.MakeBucket(ctx, bucket, minio.MakeBucketOptions{})
	})
	if err != nil {
		return "", nil, err
	}
	return s.Address, s.Stop, nil
}
