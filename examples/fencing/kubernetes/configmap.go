//go:build unix

package main

import (
	"context"
	"fmt"
	"strconv"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"

	"sema/examples/fencing/internal/hosts"
)

// annotation says the largest token under which the object was written.
const annotation = "sema/token"

// configMap is a ConfigMap that remembers the largest token. It has to exist.
type configMap struct {
	client client.ConfigMapInterface
	name   string
}

// Change implements hosts.Store: reads, and writes if nobody has written meanwhile.
func (c configMap) Change(ctx context.Context, token int64, change func(old string) string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object, err := c.client.Get(ctx, c.name, meta.GetOptions{})
		if err != nil {
			return err
		}
		seen, err := tokenOf(object)
		if err != nil {
			return err
		}
		if token < seen {
			return hosts.ErrFenced
		}
		object.Data = map[string]string{"text": change(object.Data["text"])}
		meta.SetMetaDataAnnotation(&object.ObjectMeta, annotation, strconv.FormatInt(token, 10))
		_, err = c.client.Update(ctx, object, meta.UpdateOptions{}) // 409 unless it still has the ResourceVersion that was read
		return err
	})
}

// tokenOf returns 0 if the object has no token yet.
func tokenOf(object *core.ConfigMap) (int64, error) {
	text, ok := object.Annotations[annotation]
	if !ok {
		return 0, nil
	}
	token, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("annotation %s of %s is %q, want a token", annotation, object.Name, text)
	}
	return token, nil
}

// Overwrite implements hosts.Store: no ResourceVersion, no condition.
func (c configMap) Overwrite(ctx context.Context, token int64, text string) error {
	object := &core.ConfigMap{Data: map[string]string{"text": text}}
	object.Name = c.name
	meta.SetMetaDataAnnotation(&object.ObjectMeta, annotation, strconv.FormatInt(token, 10))
	_, err := c.client.Update(ctx, object, meta.UpdateOptions{})
	return err
}

// Read implements hosts.Store.
func (c configMap) Read(ctx context.Context) (string, error) {
	object, err := c.client.Get(ctx, c.name, meta.GetOptions{})
	if err != nil {
		return "", err
	}
	return object.Data["text"], nil
}
