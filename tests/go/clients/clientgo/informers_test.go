package clientgo

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/tests/clients/keelson"
)

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string]string{"value": value},
	}
}

// An informer continues after the server was restarted, with all changes that it missed.
func TestInformersSurviveRestarts(t *testing.T) {
	server := keelson.Start(t)
	client := kubernetes.NewForConfigOrDie(server.Config())
	ctx := context.Background()
	factory := informers.NewSharedInformerFactoryWithOptions(
		client, 0, informers.WithNamespace("default"))
	informer := factory.Core().V1().ConfigMaps()
	var deleted atomic.Int64
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(any) { deleted.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	defer close(stop)
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	maps := client.CoreV1().ConfigMaps("default")
	for i := range 10 {
		if _, err := maps.Create(ctx, configMap(fmt.Sprintf("m%d", i), "a"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	value := func(name string) string {
		found, err := informer.Lister().ConfigMaps("default").Get(name)
		if err != nil {
			return ""
		}
		return found.Data["value"]
	}
	keelson.Eventually(t, "the informer has m9", func() bool { return value("m9") == "a" })
	for round := range 3 {
		server.Restart()
		want := fmt.Sprintf("round%d", round)
		if _, err := maps.Update(ctx, configMap("m5", want), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("m%d", round)
		if err := maps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		keelson.Eventually(t, "the informer follows "+want, func() bool {
			return value("m5") == want && value(name) == ""
		})
	}
	if got := deleted.Load(); got != 3 {
		t.Errorf("%d objects were deleted, want 3", got)
	}
	all, err := informer.Lister().List(labels.Everything())
	if err != nil {
		t.Fatal(err)
	}
	// Seven are left, and kube-root-ca.crt.
	if len(all) != 8 {
		t.Errorf("the informer has %d objects, want 8", len(all))
	}
}

// A watch from a revision that is gone ends with 410, and an informer lists again.
func TestAnExpiredWatchEndsWithGone(t *testing.T) {
	server := keelson.Start(t, "--history-seconds=1")
	client := kubernetes.NewForConfigOrDie(server.Config())
	ctx := context.Background()
	maps := client.CoreV1().ConfigMaps("default")
	first, err := maps.Create(ctx, configMap("first", "a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	number := 0
	keelson.Eventually(t, "the first revision expires", func() bool {
		number++
		if _, err := maps.Update(ctx, configMap("first", fmt.Sprint(number)), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		watch, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: first.ResourceVersion})
		if err != nil {
			return isGone(err)
		}
		defer watch.Stop()
		select {
		case event := <-watch.ResultChan():
			status, ok := event.Object.(*metav1.Status)
			return ok && status.Code == 410 && status.Reason == metav1.StatusReasonExpired
		case <-time.After(time.Second):
			return false
		}
	})
}
