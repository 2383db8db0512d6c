//go:build unix

package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"

	admission "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
)

//go:embed policy.yaml
var policyYAML []byte

// enforce does what kubectl apply -f policy.yaml does.
func enforce(ctx context.Context, client kubernetes.Interface) error {
	var policy admission.ValidatingAdmissionPolicy
	var binding admission.ValidatingAdmissionPolicyBinding
	file := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(policyYAML), len(policyYAML))
	if err := errors.Join(file.Decode(&policy), file.Decode(&binding)); err != nil {
		return err
	}
	rules := client.AdmissionregistrationV1()
	_, err1 := rules.ValidatingAdmissionPolicies().Create(ctx, &policy, meta.CreateOptions{})
	_, err2 := rules.ValidatingAdmissionPolicyBindings().Create(ctx, &binding, meta.CreateOptions{})
	return errors.Join(err1, err2)
}

// enforced reports whether the server refuses tokens that fall back. It learns of the
// policy some time after that was created.
func enforced(ctx context.Context, c configMap) (bool, error) {
	object, err := c.client.Get(ctx, c.name, meta.GetOptions{})
	if err != nil {
		return false, err
	}
	delete(object.Annotations, annotation)
	_, err = c.client.Update(ctx, object, meta.UpdateOptions{DryRun: []string{meta.DryRunAll}})
	if apierrors.IsForbidden(err) {
		return true, nil
	}
	return false, err
}
