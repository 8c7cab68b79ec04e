package clientgo

import (
	"context"
	"encoding/json"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appsv1 "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"

	"keelson.dev/tests/clients/keelson"
)

func deployment(image string) *appsv1.DeploymentApplyConfiguration {
	labels := map[string]string{"app": "web"}
	container := corev1.Container().WithName("web").WithImage(image)
	template := corev1.PodTemplateSpec().WithLabels(labels).
		WithSpec(corev1.PodSpec().WithContainers(container))
	return appsv1.Deployment("web", "default").WithSpec(appsv1.DeploymentSpec().
		WithSelector(applymetav1.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(template))
}

// Typed server-side apply: ownership, a conflict, force, and the extraction of what a manager owns.
func TestTypedApply(t *testing.T) {
	server := keelson.Start(t)
	client := kubernetes.NewForConfigOrDie(server.Config())
	ctx := context.Background()
	apps := client.AppsV1().Deployments("default")
	if _, err := apps.Apply(ctx, deployment("one"), metav1.ApplyOptions{FieldManager: "a"}); err != nil {
		t.Fatal(err)
	}
	_, err := apps.Apply(ctx, deployment("two"), metav1.ApplyOptions{FieldManager: "b"})
	if !apierrors.IsConflict(err) {
		t.Fatalf("another image by another manager: %v", err)
	}
	options := metav1.ApplyOptions{FieldManager: "b", Force: true}
	applied, err := apps.Apply(ctx, deployment("two"), options)
	if err != nil {
		t.Fatal(err)
	}
	if image := applied.Spec.Template.Spec.Containers[0].Image; image != "two" {
		t.Errorf("the image is %q", image)
	}
	again, err := apps.Apply(ctx, deployment("two"), options)
	if err != nil || again.ResourceVersion != applied.ResourceVersion {
		t.Errorf("an apply without a change: %v, revision %s after %s",
			err, again.ResourceVersion, applied.ResourceVersion)
	}
	extracted, err := appsv1.ExtractDeployment(again, "b")
	if err != nil {
		t.Fatal(err)
	}
	containers := extracted.Spec.Template.Spec.Containers
	if len(containers) != 1 || *containers[0].Image != "two" || extracted.Spec.Replicas != nil {
		t.Errorf("manager b owns %+v", extracted.Spec)
	}
}

// The dynamic client finds resources through the RESTMapper, and applies and patches untyped objects.
func TestDynamicClientAndRESTMapper(t *testing.T) {
	server := keelson.Start(t)
	client := dynamic.NewForConfigOrDie(server.Config())
	ctx := context.Background()
	cached := memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(server.Config()))
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "v1")
	if err != nil {
		t.Fatal(err)
	}
	if mapping.Resource.Resource != "deployments" || mapping.Scope.Name() != "namespace" {
		t.Fatalf("%+v", mapping)
	}
	expander := restmapper.NewShortcutExpander(mapper, cached, nil)
	found, err := expander.ResourceFor(schema.GroupVersionResource{Resource: "cm"})
	if err != nil || found.Resource != "configmaps" {
		t.Errorf("cm is %v, %v", found, err)
	}
	maps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).
		Namespace("default")
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "dynamic"},
		"data":     map[string]any{"a": "1"},
	}}
	if _, err := maps.Apply(ctx, "dynamic", obj, metav1.ApplyOptions{FieldManager: "t"}); err != nil {
		t.Fatal(err)
	}
	for _, patch := range []struct {
		kind types.PatchType
		body string
	}{
		{types.JSONPatchType, `[{"op":"add","path":"/data/b","value":"2"}]`},
		{types.MergePatchType, `{"data":{"c":"3"}}`},
		{types.StrategicMergePatchType, `{"data":{"a":null}}`},
	} {
		if _, err := maps.Patch(ctx, "dynamic", patch.kind, []byte(patch.body), metav1.PatchOptions{}); err != nil {
			t.Errorf("%s: %v", patch.kind, err)
		}
	}
	patched, err := maps.Get(ctx, "dynamic", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	data, _ := json.Marshal(patched.Object["data"])
	if string(data) != `{"b":"2","c":"3"}` {
		t.Errorf("the data are %s", data)
	}
}

// Lists by pages return every object once, at one revision, also while objects are created.
func TestListsByPages(t *testing.T) {
	server := keelson.Start(t)
	client := kubernetes.NewForConfigOrDie(server.Config())
	ctx := context.Background()
	secrets := client.CoreV1().Secrets("default")
	create := func(name string) {
		secret := corev1.Secret(name, "default").WithStringData(map[string]string{"k": "v"})
		if _, err := secrets.Apply(ctx, secret, metav1.ApplyOptions{FieldManager: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, letter := range "abcdefgh" {
		create("s" + string(letter))
	}
	var names, revisions []string
	options := metav1.ListOptions{Limit: 3}
	for {
		page, err := secrets.List(ctx, options)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range page.Items {
			names = append(names, secret.Name)
		}
		revisions = append(revisions, page.ResourceVersion)
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
		create("sz" + string(rune('0'+len(revisions))))
	}
	if got, _ := json.Marshal(names); string(got) != `["sa","sb","sc","sd","se","sf","sg","sh"]` {
		t.Errorf("the pages have %s", got)
	}
	if len(revisions) != 3 || revisions[0] != revisions[1] || revisions[1] != revisions[2] {
		t.Errorf("the pages have the revisions %v", revisions)
	}
}
