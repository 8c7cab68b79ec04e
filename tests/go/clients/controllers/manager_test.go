// Package controllers tests controller-runtime's manager with a Keelson server.
package controllers

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"keelson.dev/tests/clients/keelson"
)

const finalizer = "example.com/boat"

var boats = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Boat"}

// reconciler keeps a ConfigMap for each Boat, a condition in its status, and a finalizer.
type reconciler struct {
	client.Client
}

func newBoat(name string) *unstructured.Unstructured {
	boat := &unstructured.Unstructured{}
	boat.SetGroupVersionKind(boats)
	boat.SetNamespace("default")
	boat.SetName(name)
	return boat
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	boat := newBoat(request.Name)
	if err := r.Get(ctx, request.NamespacedName, boat); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	crew := &corev1.ConfigMap{}
	crew.Namespace, crew.Name = request.Namespace, request.Name+"-crew"
	if !boat.GetDeletionTimestamp().IsZero() {
		if err := r.Delete(ctx, crew); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
		controllerutil.RemoveFinalizer(boat, finalizer)
		return ctrl.Result{}, r.Update(ctx, boat)
	}
	if controllerutil.AddFinalizer(boat, finalizer) {
		if err := r.Update(ctx, boat); err != nil {
			return ctrl.Result{}, err
		}
	}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, crew, func() error {
		size, _, _ := unstructured.NestedString(boat.Object, "spec", "size")
		crew.Data = map[string]string{"size": size}
		return controllerutil.SetControllerReference(boat, crew, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	conditions := []metav1.Condition{}
	meta.SetStatusCondition(&conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Crewed",
		ObservedGeneration: boat.GetGeneration(),
	})
	text, err := json.Marshal(conditions)
	if err != nil {
		return ctrl.Result{}, err
	}
	var plain []any
	if err := json.Unmarshal(text, &plain); err != nil {
		return ctrl.Result{}, err
	}
	before := boat.DeepCopy()
	if err := unstructured.SetNestedSlice(boat.Object, plain, "status", "conditions"); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.Status().Patch(ctx, boat, client.MergeFrom(before))
}

// sizes is a webhook that gives boats a size.
type sizes struct{}

func (sizes) Handle(_ context.Context, request admission.Request) admission.Response {
	boat := newBoat("")
	if err := json.Unmarshal(request.Object.Raw, &boat.Object); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if size, found, _ := unstructured.NestedString(boat.Object, "spec", "size"); !found {
		_ = unstructured.SetNestedField(boat.Object, "small", "spec", "size")
	} else if size == "huge" {
		return admission.Denied("no berth is that long")
	}
	text, err := json.Marshal(boat.Object)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, text)
}

func definition() *apiextensionsv1.CustomResourceDefinition {
	keep := true
	open := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "boats.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "boats", Singular: "boat", Kind: "Boat", ListKind: "BoatList",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				},
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type:       "object",
						Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": open, "status": open},
					},
				},
			}},
		},
	}
}

func mutatingWebhook() *admissionv1.MutatingWebhookConfiguration {
	none := admissionv1.SideEffectClassNone
	path := "/mutate"
	return &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "sizes"},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: "sizes.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionv1.WebhookClientConfig{
				Service: &admissionv1.ServiceReference{Name: "sizes", Namespace: "default", Path: &path},
			},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule: admissionv1.Rule{
					APIGroups: []string{"example.com"}, APIVersions: []string{"v1"}, Resources: []string{"boats"},
				},
			}},
		}},
	}
}

// A manager with its cache, a webhook and a reconciler, installed by envtest into a running server.
func TestManagerWithWebhookAndFinalizer(t *testing.T) {
	config := keelson.Start(t).Config()
	existing := true
	environment := &envtest.Environment{
		Config: config, UseExistingCluster: &existing,
		CRDs: []*apiextensionsv1.CustomResourceDefinition{definition()},
		WebhookInstallOptions: envtest.WebhookInstallOptions{
			MutatingWebhooks: []*admissionv1.MutatingWebhookConfiguration{mutatingWebhook()},
		},
	}
	if _, err := environment.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = environment.Stop() }()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	install := environment.WebhookInstallOptions
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, LeaderElection: true, LeaderElectionID: "boats", LeaderElectionNamespace: "default",
		Metrics: server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: install.LocalServingHost, Port: install.LocalServingPort, CertDir: install.LocalServingCertDir,
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	manager.GetWebhookServer().Register("/mutate", &webhook.Admission{Handler: sizes{}})
	err = ctrl.NewControllerManagedBy(manager).For(newBoat("")).Owns(&corev1.ConfigMap{}).
		Complete(&reconciler{manager.GetClient()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	keelson.Eventually(t, "the webhook answers", func() bool {
		return direct.Create(ctx, newBoat("optimist")) == nil
	})
	key := client.ObjectKey{Namespace: "default", Name: "optimist"}
	boat := newBoat("optimist")
	keelson.Eventually(t, "the boat is ready", func() bool {
		if direct.Get(ctx, key, boat) != nil {
			return false
		}
		conditions, _, _ := unstructured.NestedSlice(boat.Object, "status", "conditions")
		return len(conditions) == 1 && controllerutil.ContainsFinalizer(boat, finalizer)
	})
	if size, _, _ := unstructured.NestedString(boat.Object, "spec", "size"); size != "small" {
		t.Errorf("the webhook set the size %q", size)
	}
	crew := &corev1.ConfigMap{}
	crewKey := client.ObjectKey{Namespace: "default", Name: "optimist-crew"}
	if err := direct.Get(ctx, crewKey, crew); err != nil || crew.Data["size"] != "small" {
		t.Errorf("the crew is %v, %v", crew.Data, err)
	}
	huge := newBoat("galleon")
	_ = unstructured.SetNestedField(huge.Object, "huge", "spec", "size")
	err = direct.Create(ctx, huge)
	want := `admission webhook "sizes.example.com" denied the request: no berth is that long`
	if err == nil || err.Error() != want {
		t.Errorf("a huge boat: %v", err)
	}
	if err := direct.Delete(ctx, crew); err != nil {
		t.Fatal(err)
	}
	keelson.Eventually(t, "the crew comes back", func() bool {
		again := &corev1.ConfigMap{}
		return direct.Get(ctx, crewKey, again) == nil && again.UID != crew.UID
	})
	if err := direct.Delete(ctx, boat); err != nil {
		t.Fatal(err)
	}
	keelson.Eventually(t, "boat and crew are gone", func() bool {
		boatErr := direct.Get(ctx, key, newBoat(""))
		crewErr := direct.Get(ctx, crewKey, &corev1.ConfigMap{})
		return boatErr != nil && client.IgnoreNotFound(boatErr) == nil &&
			crewErr != nil && client.IgnoreNotFound(crewErr) == nil
	})
}
