//go:build unix

// Package deploy tests the files of the directory deploy, with the libraries of kustomize, Kubernetes and compose.
package deploy

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// The token of the tests: NAME.SECRET, and its line in the token file.
const (
	token     = "shop.0123456789abcdef"
	tokenLine = "shop use shop- 0123456789abcdef\n"
)

// program builds sema once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sema-deploy")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "sema")
	out, err := exec.Command("go", "build", "-C", "../../cmd/sema", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", &os.PathError{Op: string(out), Path: path, Err: err}
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// decode reads objects of Kubernetes, and refuses fields that there are not.
func decode(t *testing.T, text []byte) runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apps.AddToScheme, core.AddToScheme, policy.AddToScheme, networking.AddToScheme} {
		expect.OK(t, add(scheme))
	}
	object, _, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return object
}

// base is what kubectl apply -k deploy/kubernetes applies.
func base(t *testing.T) (d *apps.Deployment, s *core.Service, b *policy.PodDisruptionBudget, n *networking.NetworkPolicy) {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../deploy/kubernetes")
	expect.OK(t, err)
	for _, r := range all.Resources() {
		text, err := r.AsYAML()
		expect.OK(t, err)
		switch o := decode(t, text).(type) {
		case *apps.Deployment:
			d = o
		case *core.Service:
			s = o
		case *policy.PodDisruptionBudget:
			b = o
		case *networking.NetworkPolicy:
			n = o
		default:
			t.Errorf("there is a %T", o)
		}
	}
	if d == nil || s == nil || b == nil || n == nil {
		t.Fatalf("of Deployment, Service, PodDisruptionBudget and NetworkPolicy one is missing: %s", all.AllIds())
	}
	return d, s, b, n
}

// example is the application whose pods migrate its database.
func example(t *testing.T) *apps.Deployment {
	t.Helper()
	text, err := os.ReadFile("../../deploy/kubernetes/example-migration.yaml")
	expect.OK(t, err)
	return decode(t, text).(*apps.Deployment)
}

// Every selector selects the pods that it is about, and the ports are theirs.
func TestKubernetesFitsTogether(t *testing.T) {
	d, s, b, n := base(t)
	selects := func(what string, by *meta.LabelSelector, pod map[string]string) {
		t.Helper()
		selector, err := meta.LabelSelectorAsSelector(by)
		expect.OK(t, err)
		if selector.Empty() || !selector.Matches(labels.Set(pod)) {
			t.Errorf("%s: %s does not select %v", what, selector, pod)
		}
	}
	pod, client := d.Spec.Template.Labels, example(t).Spec.Template.Labels
	selects("Deployment", d.Spec.Selector, pod)
	selects("Service", &meta.LabelSelector{MatchLabels: s.Spec.Selector}, pod)
	selects("PodDisruptionBudget", b.Spec.Selector, pod)
	selects("NetworkPolicy", &n.Spec.PodSelector, pod)
	selects("NetworkPolicy, from", n.Spec.Ingress[0].From[0].PodSelector, client)
	selects("topology", d.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector, pod)
	c := d.Spec.Template.Spec.Containers[0]
	if port := c.Ports[0].Name; port != s.Spec.Ports[0].TargetPort.StrVal || port != n.Spec.Ingress[0].Ports[0].Port.StrVal ||
		port != c.LivenessProbe.HTTPGet.Port.StrVal || port != c.ReadinessProbe.HTTPGet.Port.StrVal {
		t.Errorf("not all is about the port %s", port)
	}
	if *d.Spec.Replicas < 2 || b.Spec.MinAvailable.IntVal < 1 {
		t.Errorf("%d replicas, of which %s must be available", *d.Spec.Replicas, b.Spec.MinAvailable)
	}
}

// Every container is one that the standard "restricted" lets run, and writes nothing.
func TestKubernetesIsRestricted(t *testing.T) {
	d, _, _, _ := base(t)
	for _, d := range []*apps.Deployment{d, example(t)} {
		spec := d.Spec.Template.Spec
		if s := spec.SecurityContext; !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: %+v", d.Name, s)
		}
		for _, c := range append(spec.InitContainers, spec.Containers...) {
			if s := c.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || s.Capabilities.Drop[0] != "ALL" {
				t.Errorf("%s, %s: %+v", d.Name, c.Name, s)
			}
		}
	}
}

// server is sema serve, started as a manifest has it.
type server struct {
	url   string
	redis *redistest.Server
}

// serve starts sema with a container's words, but for the port and for the token file, which
// lies in a directory of the test with the mode that it has there.
func serve(t *testing.T, args []string, tokens string, mode os.FileMode) server {
	t.Helper()
	path, err := program()
	expect.OK(t, err)
	file := filepath.Join(t.TempDir(), "tokens")
	expect.OK(t, os.WriteFile(file, []byte(tokenLine), 0o600))
	expect.OK(t, os.Chmod(file, mode))
	s := server{redis: redistest.Start(t)}
	listen := "127.0.0.1:" + strconv.Itoa(redistest.FreePort(t))
	s.url = "http://" + listen
	words := strings.NewReplacer("\x00:7362", "\x00"+listen, tokens, file).Replace(strings.Join(args, "\x00"))
	cmd := exec.Command(path, strings.Split(words, "\x00")...)
	var log bytes.Buffer
	cmd.Env, cmd.Stderr = []string{"SEMA_URL=" + s.redis.URL()}, &log
	expect.OK(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("sema serve: %v\n%s", err, &log)
		}
	})
	return s
}

// answers is the status of a GET; 0: nobody answers.
func (s server) answers(path string) int {
	r, err := http.Get(s.url + path)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, r.Body)
	_ = r.Body.Close()
	return r.StatusCode
}

// deployed starts the Deployment's container.
func deployed(t *testing.T) (server, core.Container) {
	t.Helper()
	d, _, _, _ := base(t)
	pod := d.Spec.Template.Spec
	c, secret := pod.Containers[0], pod.Volumes[0].Secret
	return serve(t, c.Args, filepath.Join(c.VolumeMounts[0].MountPath, secret.Items[0].Path), os.FileMode(*secret.DefaultMode)), c
}

// The probes say what they are for: without Redis the process lives, and is not ready.
func TestKubernetesServes(t *testing.T) {
	s, c := deployed(t)
	live, ready := c.LivenessProbe.HTTPGet.Path, c.ReadinessProbe.HTTPGet.Path
	expect.Until(t, "ready", func() bool { return s.answers(ready) == http.StatusOK })
	s.redis.Kill()
	expect.Until(t, "not ready", func() bool { return s.answers(ready) == http.StatusServiceUnavailable })
	if got := s.answers(live); got != http.StatusOK {
		t.Errorf("without Redis the probe of life answers %d", got)
	}
	s.redis.Restart()
	expect.Until(t, "ready again", func() bool { return s.answers(ready) == http.StatusOK })
}

// Of three pods that migrate no two do at once, and all come to do so.
func TestKubernetesMigration(t *testing.T) {
	s, c := deployed(t)
	expect.Until(t, "ready", func() bool { return s.answers(c.ReadinessProbe.HTTPGet.Path) == http.StatusOK })
	dir := t.TempDir()
	shop := filepath.Join(dir, "shop")
	script := "#!/bin/sh\nset -e\n[ \"$1\" = migrate ]\nmkdir " + dir + "/lock\nsleep 0.1\necho done >>" + dir + "/log\nrmdir " + dir + "/lock\n"
	expect.OK(t, os.WriteFile(shop, []byte(script), 0o777))
	path, err := program()
	expect.OK(t, err)
	words := strings.Join(example(t).Spec.Template.Spec.InitContainers[0].Command, "\x00")
	words = strings.NewReplacer("/opt/sema/sema", path, "/bin/shop", shop).Replace(words)
	var pods sync.WaitGroup
	for range 3 {
		pods.Go(func() {
			command := strings.Split(words, "\x00")
			cmd := exec.CommandContext(expect.Within(t), command[0], command[1:]...)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "SEMA_URL=" + s.url, "SEMA_SERVER_TOKEN=" + token}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%q: %v\n%s", command, err, out)
			}
		})
	}
	pods.Wait()
	if log, err := os.ReadFile(filepath.Join(dir, "log")); err != nil || string(log) != "done\ndone\ndone\n" {
		t.Errorf("the pods wrote %q, %v", log, err)
	}
}

// The compose file is one, and its container serves.
func TestCompose(t *testing.T) {
	options, err := cli.NewProjectOptions([]string{"../../deploy/compose.yaml"})
	expect.OK(t, err)
	project, err := options.LoadProject(context.Background())
	expect.OK(t, err)
	sema, redis := project.Services["sema"], project.Services["redis"]
	if sema.Environment["SEMA_URL"] == nil || !strings.Contains(*sema.Environment["SEMA_URL"], "//"+redis.Name+":") || !sema.ReadOnly {
		t.Errorf("sema is %+v", sema)
	}
	s := serve(t, sema.Command, "/run/secrets/"+sema.Secrets[0].Source, 0o400)
	expect.Until(t, "ready", func() bool { return s.answers("/readyz") == http.StatusOK })
}
