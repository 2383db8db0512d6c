//go:build unix

// Command kubernetes has two hosts change one ConfigMap, each with a permit. The first
// one's permit is lost while it stands still, and Kubernetes refuses what it sends
// then: by the resource version, and by an admission policy.
//
//	go run ./kubernetes
//
// starts Redis, etcd, a kube-apiserver, and each host as a process of its own.
// configmap.go and policy.go are what a program needs of it.
package main

import (
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"sema/examples/fencing/internal/hosts"
)

func main() { hosts.Main(start, open) }

// open opens the report, with the kubeconfig at a path.
func open(kubeconfig string) (hosts.Store, error) {
	client, err := connect(kubeconfig)
	if err != nil {
		return nil, err
	}
	return report(client), nil
}

func report(client kubernetes.Interface) configMap {
	return configMap{client.CoreV1().ConfigMaps(meta.NamespaceDefault), "report"}
}

func connect(kubeconfig string) (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // the server has a flow control of its own
	return kubernetes.NewForConfig(config)
}
