//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	page.Shows(t, "../../../docs/fencing.md", "cd examples/fencing && go run ./kubernetes", out.String())
}

func TestConfigMap(t *testing.T) {
	address, stop, err := start(t.Context())
	expect.OK(t, err)
	defer stop()
	client, err := connect(address)
	expect.OK(t, err)
	ctx := t.Context()
	fresh := func(t *testing.T, annotations map[string]string) configMap {
		c := report(client)
		made, err := c.client.Create(ctx, &core.ConfigMap{ObjectMeta: meta.ObjectMeta{GenerateName: "report-", Annotations: annotations}}, meta.CreateOptions{})
		expect.OK(t, err)
		c.name = made.Name
		return c
	}
	t.Run("judges by the token alone", func(t *testing.T) { hosts.JudgesByTheToken(t, fresh(t, nil)) })
	t.Run("a late write finds another one's in its place", func(t *testing.T) { hosts.RefusesALateWrite(t, fresh(t, nil)) })
	t.Run("an annotation that is no token", func(t *testing.T) {
		c := fresh(t, map[string]string{annotation: "x"})
		if err := c.Change(ctx, 7, func(string) string { return "" }); err == nil {
			t.Error("was taken for a token")
		}
	})

	// The server compares and writes in one step.
	t.Run("no write is lost among many", func(t *testing.T) {
		c := fresh(t, nil)
		const writers, each = 4, 10
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for done := 0; done < each; {
					err := c.Change(ctx, 1, func(old string) string {
						n, _ := strconv.Atoi(old) // none at first
						return strconv.Itoa(n + 1)
					})
					switch {
					case err == nil:
						done++
					case !apierrors.IsConflict(err): // overtaken too often
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		text, err := c.Read(ctx)
		expect.OK(t, err)
		if text != strconv.Itoa(writers*each) {
			t.Errorf("%s writes of %d", text, writers*each)
		}
	})

	// What the page says of the policy, by writes without a resource version.
	patch := func(c configMap, annotations string) error {
		_, err := c.client.Patch(ctx, c.name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":%s},"data":{"text":"late"}}`, annotations), meta.PatchOptions{})
		return err
	}
	t.Run("the policy judges every write", func(t *testing.T) {
		for _, write := range []struct {
			annotations string
			refused     bool
		}{
			{`{"sema/token":"6"}`, true},
			{`{"sema/token":"7"}`, false},
			{`{"sema/token":"8"}`, false},
			{`{"sema/token":"10"}`, false}, // by number, not by letter
			{`{"sema/token":null}`, true},
			{`{"sema/token":"x"}`, true}, // Invalid, by the expression
			{`{}`, false},                // a patch that leaves the newer token in place
		} {
			c := fresh(t, map[string]string{annotation: "7"})
			if err := patch(c, write.annotations); (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) != write.refused || !write.refused && err != nil {
				t.Errorf("%s: %v, want that it is refused: %v", write.annotations, err, write.refused)
			}
		}
		if err := patch(fresh(t, nil), `{"sema/token":"1"}`); err != nil {
			t.Errorf("the first token: %v", err)
		}
	})
	t.Run("without the policy nobody does", func(t *testing.T) {
		expect.OK(t, client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, "sema-token", meta.DeleteOptions{}))
		c := fresh(t, map[string]string{annotation: "7"})
		expect.Until(t, "the policy is no longer in force", func() bool {
			in, err := enforced(ctx, c)
			expect.OK(t, err)
			return !in
		})
		expect.OK(t, c.Overwrite(ctx, 5, "late"))
		hosts.JudgesByTheToken(t, fresh(t, nil))
	})
}
