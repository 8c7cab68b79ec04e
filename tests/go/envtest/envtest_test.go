// Package envtest starts Keelson as controller-runtime's envtest starts kube-apiserver and etcd.
package envtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// waitMax is the time that a program on a busy machine may take.
const waitMax = 60 * time.Second

func TestMain(m *testing.M) {
	os.Exit(withAssets(m))
}

// withAssets makes the folder of programs and runs the tests with it.
func withAssets(m *testing.M) int {
	program := os.Getenv("KEELSON_PROGRAM")
	if program == "" {
		fmt.Println("KEELSON_PROGRAM must name the program of the server; cargo xtask clients sets it")
		return 1
	}
	dir, err := os.MkdirTemp("", "envtest")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	output, err := exec.Command(program, "envtest", dir).Output()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	// The command prints what a shell evaluates.
	assets, ok := strings.CutPrefix(strings.TrimSpace(string(output)), "export KUBEBUILDER_ASSETS=")
	if !ok {
		fmt.Printf("unexpected output: %s\n", output)
		return 1
	}
	os.Setenv("KUBEBUILDER_ASSETS", assets)
	return m.Run()
}

// widgets returns the definition of a custom resource.
func widgets() *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com",
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: &preserve,
					},
				},
			}},
		},
	}
}

func widget(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("example.com/v1")
	object.SetKind("Widget")
	object.SetName(name)
	object.SetNamespace("default")
	return object
}

func widgetList() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("example.com/v1")
	list.SetKind("WidgetList")
	return list
}

// start starts an environment, which ends with the test.
func start(t *testing.T, environment *envtest.Environment) client.WithWatch {
	t.Helper()
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	clientOf, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return clientOf
}

func TestInstallsDefinitionsAndWatchesTheirObjects(t *testing.T) {
	ctx := context.Background()
	environment := &envtest.Environment{CRDs: []*apiextensionsv1.CustomResourceDefinition{widgets()}}
	objects := start(t, environment)
	watching, err := objects.Watch(ctx, widgetList(), client.InNamespace("default"))
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	if err := objects.Create(ctx, widget("first")); err != nil {
		t.Fatal(err)
	}
	select {
	case event := <-watching.ResultChan():
		name := event.Object.(*unstructured.Unstructured).GetName()
		if event.Type != watch.Added || name != "first" {
			t.Fatalf("%s of %s", event.Type, name)
		}
	case <-time.After(waitMax):
		t.Fatal("no event")
	}
	// Open watches do not delay the stop.
	begun := time.Now()
	if err := environment.ControlPlane.APIServer.Stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Fatalf("the stop took %s", took)
	}
}

func TestObjectsSurviveRestarts(t *testing.T) {
	ctx := context.Background()
	environment := &envtest.Environment{CRDs: []*apiextensionsv1.CustomResourceDefinition{widgets()}}
	objects := start(t, environment)
	if err := objects.Create(ctx, widget("kept")); err != nil {
		t.Fatal(err)
	}
	server := environment.ControlPlane.APIServer
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	// A start makes new certificates.
	user, err := environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if objects, err = client.NewWithWatch(user.Config(), client.Options{}); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKey{Namespace: "default", Name: "kept"}
	if err := objects.Get(ctx, key, widget("kept")); err != nil {
		t.Fatal(err)
	}
}

func TestUsersOfTheEnvironmentHaveTheirRights(t *testing.T) {
	ctx := context.Background()
	environment := &envtest.Environment{}
	start(t, environment)
	user, err := environment.AddUser(envtest.User{Name: "reader", Groups: []string{"g"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := kubernetes.NewForConfig(user.Config())
	if err != nil {
		t.Fatal(err)
	}
	_, err = reader.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Fatalf("a user without roles got %v", err)
	}
	review, err := reader.AuthenticationV1().SelfSubjectReviews().Create(
		ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username != "reader" {
		t.Fatalf("%v: %v", err, review)
	}
}

func TestTokensAreSignedWithTheKeyOfTheEnvironment(t *testing.T) {
	ctx := context.Background()
	environment := &envtest.Environment{}
	start(t, environment)
	admin, err := kubernetes.NewForConfig(environment.Config)
	if err != nil {
		t.Fatal(err)
	}
	accounts := admin.CoreV1().ServiceAccounts("default")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	issued, err := accounts.CreateToken(ctx, "robot", request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	review := &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: issued.Status.Token},
	}
	review, err = admin.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil || review.Status.User.Username != "system:serviceaccount:default:robot" {
		t.Fatalf("%v: %v", err, review)
	}
}

func TestNamespacesGoAway(t *testing.T) {
	// As with kube-apiserver, no control loop runs otherwise.
	t.Setenv("KEELSON_CONTROLLERS", "namespace-controller")
	ctx := context.Background()
	objects := start(t, &envtest.Environment{})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "short"}}
	if err := objects.Create(ctx, namespace); err != nil {
		t.Fatal(err)
	}
	if err := objects.Delete(ctx, namespace); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(waitMax)
	for {
		err := objects.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		if apierrors.IsNotFound(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is still there: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
