//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"sema/internal/fixture/local"
)

// start starts etcd and a kube-apiserver, with an empty report and the policy. The
// address is the path of a kubeconfig.
func start(ctx context.Context) (address string, stop func(), err error) {
	etcd, err := startEtcd(ctx)
	if err != nil {
		return "", nil, err
	}
	kube, err := startAPIServer(ctx, etcd.Address)
	if err != nil {
		etcd.Stop()
		return "", nil, err
	}
	stop = func() { kube.Stop(); etcd.Stop() }
	client, err := connect(kube.Address)
	if err == nil {
		err = prepare(ctx, client)
	}
	if err != nil {
		stop()
		return "", nil, err
	}
	return kube.Address, stop, nil
}

func startEtcd(ctx context.Context) (*local.Server, error) {
	path, err := local.Tool("servers/kubernetes", "go.etcd.io/etcd/server/v3")
	if err != nil {
		return nil, err
	}
	return local.Start(ctx, func(s *local.Server) (*exec.Cmd, error) {
		socket := filepath.Join(s.Dir, "etcd.sock")
		s.Address = "unix://" + socket
		return exec.Command(path, "--data-dir", filepath.Join(s.Dir, "data"), "--unsafe-no-fsync", "--log-level", "warn",
			"--listen-client-urls", s.Address, "--advertise-client-urls", s.Address,
			// It is alone, so nobody comes to where its peers would.
			"--listen-peer-urls", "unix://"+filepath.Join(s.Dir, "peer.sock"),
			"--initial-advertise-peer-urls", "http://localhost:1", "--initial-cluster", "default=http://localhost:1"), nil
	}, func(ctx context.Context, s *local.Server) error {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(s.Dir, "etcd.sock"))
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// startAPIServer has the server on a port that is free at this moment.
func startAPIServer(ctx context.Context, etcd string) (*local.Server, error) {
	path, err := local.Tool("servers/kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver")
	if err != nil {
		return nil, err
	}
	return local.Start(ctx, func(s *local.Server) (*exec.Cmd, error) {
		key, tokens, certs := filepath.Join(s.Dir, "key.pem"), filepath.Join(s.Dir, "tokens.csv"), filepath.Join(s.Dir, "certs")
		port, err1 := freePort()
		token := rand.Text()
		s.Address = filepath.Join(s.Dir, "kubeconfig")
		if err := errors.Join(err1, writeKey(key),
			os.WriteFile(tokens, []byte(token+",somebody,somebody,system:masters\n"), 0o600),
			writeKubeconfig(s.Address, fmt.Sprint("https://127.0.0.1:", port), filepath.Join(certs, "apiserver.crt"), token),
		); err != nil {
			return nil, err
		}
		return exec.Command(path, "--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(port),
			"--cert-dir", certs, "--token-auth-file", tokens, "--authorization-mode", "RBAC",
			"--service-account-issuer", "https://localhost", "--service-account-signing-key-file", key, "--service-account-key-file", key,
			"--service-cluster-ip-range", "10.0.0.0/24"), nil
	}, func(ctx context.Context, s *local.Server) error {
		client, err := connect(s.Address)
		if err != nil {
			return err
		}
		return client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// freePort returns a free port below the range that the kernel uses for
// outgoing connections.
func freePort() (int, error) {
	for try := 1; ; try++ {
		port := 12000 + mathrand.IntN(20000)
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err == nil {
			return port, l.Close()
		}
		if try == 10 {
			return 0, err
		}
	}
}

// writeKey writes the key with which the server signs what it gives to pods.
func writeKey(path string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), 0o600)
}

func writeKubeconfig(path, server, certificate, token string) error {
	config := api.NewConfig()
	config.Clusters["this"] = &api.Cluster{Server: server, CertificateAuthority: certificate}
	config.AuthInfos["this"] = &api.AuthInfo{Token: token}
	config.Contexts["this"] = &api.Context{Cluster: "this", AuthInfo: "this"}
	config.CurrentContext = "this"
	return clientcmd.WriteToFile(*config, path)
}

// prepare makes a report with a first token, and waits until the policy is in force.
func prepare(ctx context.Context, client kubernetes.Interface) error {
	c := report(client)
	object := &core.ConfigMap{}
	object.Name = c.name
	meta.SetMetaDataAnnotation(&object.ObjectMeta, annotation, "1")
	if _, err := c.client.Create(ctx, object, meta.CreateOptions{}); err != nil {
		return err
	}
	if err := enforce(ctx, client); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return enforced(ctx, c)
	})
}
