// Package deploy tests the files of the directory deploy, with the libraries of kustomize, Kubernetes and compose.
package deploy
