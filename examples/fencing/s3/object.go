//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/minio/minio-go/v7"

	"sema/examples/fencing/internal/hosts"
)

// object is an object of S3 that remembers the largest token.
type object struct {
	client      *minio.Client
	bucket, key string
}

// content is what the object holds. The token is no metadata: those are not in the
// ETag, so two writes of the same bytes would have the same one. The count has every
// write differ from all before it.
type content struct {
	Token int64  `json:"token"`
	Write int64  `json:"write"`
	Text  string `json:"text"`
}

// Change implements hosts.Store: reads, and writes if nobody has written meanwhile.
func (o object) Change(ctx context.Context, token int64, change func(old string) string) error {
	for {
		old, etag, err := o.read(ctx)
		if err != nil {
			return err
		}
		if token < old.Token {
			return hosts.ErrFenced
		}
		unless := minio.PutObjectOptions{ContentType: "application/json"}
		if etag == "" {
			unless.SetMatchETagExcept("*") // If-None-Match: there is none yet
		} else {
			unless.SetMatchETag(etag) // If-Match
		}
		err = o.write(ctx, content{token, old.Write + 1, change(old.Text)}, unless)
		if !overtaken(err) {
			return err
		}
	}
}

// overtaken reports whether somebody has written since the read: 412, from Amazon S3
// also 409 while another write is under way.
func overtaken(err error) bool {
	status := minio.ToErrorResponse(err).StatusCode
	return status == http.StatusPreconditionFailed || status == http.StatusConflict
}

// read returns what the object holds and its ETag, or nothing if there is none.
func (o object) read(ctx context.Context) (c content, etag string, err error) {
	body, err := o.client.GetObject(ctx, o.bucket, o.key, minio.GetObjectOptions{})
	if err != nil {
		return c, "", err
	}
	defer func() { _ = body.Close() }()
	text, err := io.ReadAll(body) // Stat before it would be a request of its own
	if err != nil {
		if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
			err = nil
		}
		return c, "", err
	}
	info, err := body.Stat()
	if err != nil {
		return c, "", err
	}
	return c, info.ETag, json.Unmarshal(text, &c)
}

func (o object) write(ctx context.Context, c content, how minio.PutObjectOptions) error {
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = o.client.PutObject(ctx, o.bucket, o.key, bytes.NewReader(body), int64(len(body)), how)
	return err
}

// Overwrite implements hosts.Store, without any condition.
func (o object) Overwrite(ctx context.Context, token int64, text string) error {
	return o.write(ctx, content{Token: token, Text: text}, minio.PutObjectOptions{})
}

// Read implements hosts.Store.
func (o object) Read(ctx context.Context) (string, error) {
	c, _, err := o.read(ctx)
	return c.Text, err
}
