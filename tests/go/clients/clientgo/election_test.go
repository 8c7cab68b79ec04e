package clientgo

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"

	"keelson.dev/tests/clients/keelson"
)

func isGone(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

func elector(t *testing.T, client kubernetes.Interface, identity string, leads chan<- string) *leaderelection.LeaderElector {
	t.Helper()
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: "leader", Namespace: "default"},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
	made, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		ReleaseOnCancel: true,
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     100 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { leads <- identity },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// One of two candidates leads; when it gives up the lease, the other one does.
func TestLeaderElectionHasOneLeader(t *testing.T) {
	server := keelson.Start(t)
	client := kubernetes.NewForConfigOrDie(server.Config())
	leads := make(chan string, 2)
	first, cancelFirst := context.WithCancel(context.Background())
	second, cancelSecond := context.WithCancel(context.Background())
	defer cancelSecond()
	go elector(t, client, "first", leads).Run(first)
	if leader := <-leads; leader != "first" {
		t.Fatalf("%s leads", leader)
	}
	go elector(t, client, "second", leads).Run(second)
	select {
	case leader := <-leads:
		t.Fatalf("%s leads beside the first", leader)
	case <-time.After(500 * time.Millisecond):
	}
	cancelFirst()
	if leader := <-leads; leader != "second" {
		t.Fatalf("%s leads", leader)
	}
	lease, err := client.CoordinationV1().Leases("default").Get(second, "leader", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *lease.Spec.HolderIdentity != "second" || *lease.Spec.LeaseTransitions < 1 {
		t.Errorf("the lease is %+v", lease.Spec)
	}
}

// Conflicts that a worker meets put its key back into a work queue until it succeeds.
func TestWorkQueuesRetryConflicts(t *testing.T) {
	server := keelson.Start(t)
	client := kubernetes.NewForConfigOrDie(server.Config())
	ctx := context.Background()
	maps := client.CoreV1().ConfigMaps("default")
	stale, err := maps.Create(ctx, configMap("counter", "0"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fresh := stale.DeepCopy()
	fresh.Data["value"] = "1"
	if _, err := maps.Update(ctx, fresh, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	defer queue.ShutDown()
	queue.Add("counter")
	for try := 0; ; try++ {
		key, _ := queue.Get()
		obj := stale
		if try > 0 {
			if obj, err = maps.Get(ctx, key, metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		obj.Data["seen"] = "yes"
		_, err := maps.Update(ctx, obj, metav1.UpdateOptions{})
		queue.Done(key)
		if err == nil {
			if try != 1 {
				t.Errorf("%d tries, want 2", try+1)
			}
			break
		}
		if !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		queue.AddRateLimited(key)
	}
	found, err := maps.Get(ctx, "counter", metav1.GetOptions{})
	if err != nil || found.Data["value"] != "1" || found.Data["seen"] != "yes" {
		t.Errorf("%v %v", found.Data, err)
	}
}
