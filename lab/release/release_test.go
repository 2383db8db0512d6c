//go:build release

package release

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

const dist = "../../dist"

// run runs a command to its end, which must be success, and returns its standard output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, &stderr)
	}
	return string(out)
}

// metadata is what goreleaser says of the release.
var metadata struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
}

// artifact is the one file of dist that matches a pattern, in which VERSION stands for the release's.
func artifact(t *testing.T, pattern string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dist, "metadata.json"))
	if err != nil {
		t.Fatalf("%v: make release-dry makes it", err)
	}
	expect.OK(t, json.Unmarshal(text, &metadata))
	files, err := filepath.Glob(filepath.Join(dist, strings.ReplaceAll(pattern, "VERSION", metadata.Version)))
	expect.OK(t, err)
	if len(files) != 1 {
		t.Fatalf("dist has %q for %s; want one", files, pattern)
	}
	path, err := filepath.Abs(files[0])
	expect.OK(t, err)
	return path
}

// says asks a program for its version, which must be the release's, of the present commit.
func says(t *testing.T, name string, args ...string) {
	t.Helper()
	var v struct{ Version, Commit, Date string }
	text := run(t, name, append(args, "version", "--json")...)
	expect.OK(t, json.Unmarshal([]byte(text), &v))
	head := strings.TrimSpace(run(t, "git", "-c", "safe.directory=*", "rev-parse", "HEAD"))
	if v.Version != "v"+metadata.Version || v.Commit != head || metadata.Commit != head || v.Date == "" {
		t.Errorf("sema version says %s; the release is %s of %s", text, metadata.Version, head)
	}
}

// serves starts sema serve below root, over a Redis, and takes a permit from it with a program
// outside.
func serves(t *testing.T, root string, user string, command ...string) {
	t.Helper()
	redis, listen := redistest.Start(t), "127.0.0.1:"+strconv.Itoa(redistest.FreePort(t))
	words := append([]string{"--userspec=" + user, root}, command...)
	cmd := exec.Command("chroot", append(words, "serve", "--listen", listen)...)
	var log bytes.Buffer
	cmd.Stderr, cmd.Env = &log, []string{"SEMA_URL=" + redis.URL()}
	expect.OK(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	expect.Until(t, "ready", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("sema serve: %v\n%s", err, &log)
		default:
		}
		r, err := http.Get("http://" + listen + "/readyz")
		if err != nil {
			return false
		}
		_ = r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	ask, err := http.NewRequest(http.MethodPut, "http://"+listen+"/v1/semaphores/release/permits/one", strings.NewReader(`{"limit": 1}`))
	expect.OK(t, err)
	ask.Header.Set("Content-Type", "application/json")
	r, err := http.DefaultClient.Do(ask)
	expect.OK(t, err)
	_ = r.Body.Close()
	if r.StatusCode != http.StatusOK && r.StatusCode != http.StatusCreated {
		t.Errorf("acquire: %s\n%s", r.Status, &log)
	}
	expect.OK(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := <-ended; err != nil {
		t.Errorf("sema serve ended: %v\n%s", err, &log)
	}
}

// There is an archive, with all that belongs to the program, and an SBOM for each system.
func TestArchives(t *testing.T) {
	for _, system := range []string{"linux_amd64", "linux_arm64", "darwin_arm64", "freebsd_amd64", "windows_amd64"} {
		t.Run(system, func(t *testing.T) {
			var names []string
			var program []byte
			take := func(name string, from io.Reader) {
				names = append(names, filepath.Base(name))
				if strings.TrimSuffix(filepath.Base(name), ".exe") == "sema" {
					var err error
					program, err = io.ReadAll(from)
					expect.OK(t, err)
				}
			}
			if strings.HasPrefix(system, "windows") {
				z, err := zip.OpenReader(artifact(t, "sema_VERSION_"+system+".zip"))
				expect.OK(t, err)
				defer z.Close()
				for _, f := range z.File {
					in, err := f.Open()
					expect.OK(t, err)
					take(f.Name, in)
				}
			} else {
				untar(t, artifact(t, "sema_VERSION_"+system+".tar.gz"), take)
			}
			for _, want := range []string{"LICENSE", "README.md", "CHANGELOG.md", "sema.1", "sema-run.1", "sema.bash", "sema.zsh", "sema.fish", "sema.powershell"} {
				if !slices.Contains(names, want) {
					t.Errorf("%s is missing among %q", want, names)
				}
			}
			if system == "linux_"+runtime.GOARCH {
				path := filepath.Join(t.TempDir(), "sema")
				expect.OK(t, os.WriteFile(path, program, 0o777))
				says(t, path)
			}
			var sbom struct {
				BOMFormat  string
				Components []struct{ Name, Version string }
			}
			text, err := os.ReadFile(artifact(t, "sema_VERSION_"+system+".cdx.json"))
			expect.OK(t, err)
			expect.OK(t, json.Unmarshal(text, &sbom))
			client := strings.Fields(run(t, "go", "list", "-m", "github.com/redis/go-redis/v9"))
			if !slices.ContainsFunc(sbom.Components, func(c struct{ Name, Version string }) bool { return c.Name == client[0] && c.Version == client[1] }) {
				t.Errorf("the SBOM, in %q, lacks %q among %d components", sbom.BOMFormat, client, len(sbom.Components))
			}
		})
	}
}

// untar reads a tar.gz.
func untar(t *testing.T, path string, take func(name string, from io.Reader)) {
	t.Helper()
	in, err := os.Open(path)
	expect.OK(t, err)
	defer in.Close()
	z, err := gzip.NewReader(in)
	expect.OK(t, err)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		expect.OK(t, err)
		take(h.Name, r)
	}
}

// Each file that others are to fetch has a checksum, and it is right.
func TestChecksums(t *testing.T) {
	sums, err := os.Open(artifact(t, "checksums.txt"))
	expect.OK(t, err)
	defer sums.Close()
	n := 0
	for s := bufio.NewScanner(sums); s.Scan(); n++ {
		sum, name, _ := strings.Cut(s.Text(), "  ")
		text, err := os.ReadFile(filepath.Join(dist, name))
		expect.OK(t, err)
		if got := sha256.Sum256(text); hex.EncodeToString(got[:]) != sum {
			t.Errorf("%s has the sum %x, and not %s", name, got, sum)
		}
	}
	if want := 5 + 4 + 5; n != want { // archives, packages, SBOMs
		t.Errorf("%d files have a sum; want %d", n, want)
	}
}

// packaged is what an installed package must have below root.
func packaged(t *testing.T, root string) {
	t.Helper()
	says(t, "chroot", root, "/usr/bin/sema")
	run(t, "cp", "-rn", "/usr/lib/systemd/system", filepath.Join(root, "usr/lib/systemd")) // what it comes after
	run(t, "systemd-analyze", "verify", "--man=no", "--root="+root, "sema.service")
	run(t, "bash", "-euc", "source "+root+"/usr/share/bash-completion/completions/sema; complete -p sema")
	if page := run(t, "man", "-P", "cat", "-l", filepath.Join(root, "usr/share/man/man1/sema-run.1")); !strings.Contains(page, "sema-run") {
		t.Errorf("the page of sema run is\n%s", page)
	}
	env, err := os.Stat(filepath.Join(root, "etc/sema/serve.env"))
	expect.OK(t, err)
	if env.Mode().Perm() != 0o600 { // it may have a password in it
		t.Errorf("serve.env has mode %v", env.Mode())
	}
	serves(t, root, "65532:65532", "/usr/bin/sema")
}

// The deb is installed, runs, and is removed; what an operator wrote stays.
func TestDeb(t *testing.T) {
	root := t.TempDir()
	dpkg := func(args ...string) {
		t.Helper()
		run(t, "dpkg", append([]string{"--root=" + root, "--force-depends", "--log=/dev/null"}, args...)...)
	}
	expect.OK(t, os.MkdirAll(filepath.Join(root, "var/lib/dpkg/info"), 0o755))
	expect.OK(t, os.MkdirAll(filepath.Join(root, "var/lib/dpkg/updates"), 0o755))
	expect.OK(t, os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o666))
	dpkg("-i", artifact(t, "sema_VERSION_linux_"+runtime.GOARCH+".deb"))
	packaged(t, root)
	written := filepath.Join(root, "etc/sema/serve.env")
	expect.OK(t, os.WriteFile(written, []byte("SEMA_URL=redis://10.0.0.5\n"), 0o600))
	dpkg("-r", "sema")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/sema")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the program after the package was removed: %v", err)
	}
	if text, err := os.ReadFile(written); err != nil || !strings.Contains(string(text), "10.0.0.5") {
		t.Errorf("what the operator wrote is now %q, %v", text, err)
	}
}

// The rpm is installed and runs.
func TestRPM(t *testing.T) {
	root := t.TempDir()
	run(t, "rpm", "--root="+root, "--dbpath=/var/lib/rpm", "--initdb")
	run(t, "rpm", "--root="+root, "--dbpath=/var/lib/rpm", "-i", "--nodeps", artifact(t, "sema_VERSION_linux_"+runtime.GOARCH+".rpm"))
	packaged(t, root)
}

// The image has both processors. That of this machine runs as its user, with nothing but
// its own files.
func TestImage(t *testing.T) {
	storage := t.TempDir()
	buildah := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(run(t, "buildah", append([]string{"--root=" + storage + "/images", "--runroot=" + storage + "/run", "--storage-driver=vfs"}, args...)...))
	}
	archive := "oci-archive:" + artifact(t, "sema_VERSION_image.tar")
	for _, arch := range []string{"arm64", "amd64"} {
		container := buildah("from", "--quiet", "--arch", arch, archive)
		var image struct {
			OCIv1 struct {
				Architecture string
				Config       struct {
					User            string
					Entrypoint, Cmd []string
				}
			}
		}
		expect.OK(t, json.Unmarshal([]byte(buildah("inspect", container)), &image))
		c := image.OCIv1.Config
		if image.OCIv1.Architecture != arch || c.User == "" || len(c.Entrypoint) != 1 || len(c.Cmd) == 0 || c.Cmd[0] != "serve" {
			t.Errorf("the image for %s is %+v", arch, image)
		}
		if arch != runtime.GOARCH {
			continue
		}
		root := buildah("mount", container)
		if info, err := os.Stat(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt")); err != nil || info.Size() == 0 {
			t.Errorf("the roots of certificates: %v, %v", info, err)
		}
		says(t, "chroot", "--userspec="+c.User, root, c.Entrypoint[0])
		serves(t, root, c.User, c.Entrypoint[0])
	}
}
