//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"
	"go.uber.org/goleak"

	"sema/examples/fencing/internal/hosts"
	"sema/examples/internal/page"
	"sema/internal/fixture/expect"
)

func TestMain(m *testing.M) {
	if os.Getenv("HOST") != "" { // started by the demo
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestDemo(t *testing.T) {
	var out bytes.Buffer
	expect.OK(t, hosts.Demo(t.Context(), &out, start))
	page.Shows(t, "../../../docs/fencing.md", "cd examples/fencing && go run ./s3", out.String())
}

func TestObject(t *testing.T) {
	address, stop, err := start(t.Context())
	expect.OK(t, err)
	defer stop()
	client, err := connect(address)
	expect.OK(t, err)
	ctx := t.Context()
	t.Run("judges by the token alone", func(t *testing.T) {
		hosts.JudgesByTheToken(t, object{client, bucket, "judged"})
	})
	t.Run("a late write finds another one's in its place", func(t *testing.T) {
		hosts.RefusesALateWrite(t, object{client, bucket, "late"})
	})

	// What the comment of content says: the server lets the late write of token 5
	// pass, for the newer one differs in its metadata only.
	t.Run("metadata are not in the ETag", func(t *testing.T) {
		put := func(token, body string, unless func(*minio.PutObjectOptions)) (minio.UploadInfo, error) {
			o := minio.PutObjectOptions{UserMetadata: map[string]string{"Token": token}}
			unless(&o)
			return client.PutObject(ctx, bucket, "metadata", bytes.NewReader([]byte(body)), int64(len(body)), o)
		}
		seen, err := put("5", "same", func(*minio.PutObjectOptions) {})
		expect.OK(t, err)
		now, err := put("7", "same", func(o *minio.PutObjectOptions) { o.SetMatchETag(seen.ETag) })
		expect.OK(t, err)
		_, err = put("5", "late", func(o *minio.PutObjectOptions) { o.SetMatchETag(seen.ETag) })
		if seen.ETag != now.ETag || err != nil {
			t.Errorf("ETags %s and %s, the late write: %v: the page says that it passes", seen.ETag, now.ETag, err)
		}
	})

	// So a late write finds that another one came, though the text is the same again.
	t.Run("every write has an ETag of its own", func(t *testing.T) {
		o, had := object{client, bucket, "the same again"}, map[string]bool{}
		for range 3 {
			expect.OK(t, o.Change(ctx, 5, func(string) string { return "same" }))
			_, etag, err := o.read(ctx)
			expect.OK(t, err)
			if had[etag] {
				t.Errorf("ETag %s again", etag)
			}
			had[etag] = true
		}
	})

	// The server compares and writes in one step.
	t.Run("no write is lost among many", func(t *testing.T) {
		o := object{client, bucket, "counted"}
		const writers, each = 8, 20
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for range each {
					if err := o.Change(ctx, 1, func(old string) string {
						n, _ := strconv.Atoi(old) // none at first
						return strconv.Itoa(n + 1)
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		text, err := o.Read(ctx)
		expect.OK(t, err)
		if text != strconv.Itoa(writers*each) {
			t.Errorf("%s writes of %d", text, writers*each)
		}
	})

	t.Run("a context that has ended sends nothing", func(t *testing.T) {
		o := object{client, bucket, "ended"}
		ended, cancel := context.WithCancel(ctx)
		if err := o.Change(ended, 1, func(string) string { cancel(); return "late" }); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		text, err := o.Read(ctx)
		expect.OK(t, err)
		if text != "" {
			t.Errorf("holds %q", text)
		}
	})
}
