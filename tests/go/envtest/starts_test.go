package envtest

import (
	"context"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// TestStartsAndStops logs how long KEELSON_STARTS environments take from Start to the
// answer of a first request, and to stop with KEELSON_WATCHES open watches. KEELSON_ASSETS names a
// folder with other programs, such as kube-apiserver and etcd.
func TestStartsAndStops(t *testing.T) {
	count := number("KEELSON_STARTS", 1)
	watches := number("KEELSON_WATCHES", 1)
	if assets := os.Getenv("KEELSON_ASSETS"); assets != "" {
		t.Setenv("KUBEBUILDER_ASSETS", assets)
	}
	var starts, stops []time.Duration
	for range count {
		start, stop := startAndStop(t, &envtest.Environment{}, watches)
		starts = append(starts, start)
		stops = append(stops, stop)
	}
	t.Logf("%d starts: %s; stops with %d watches: %s", count, shown(starts), watches, shown(stops))
}

func number(name string, usual int) int {
	if given, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return given
	}
	return usual
}

func startAndStop(t *testing.T, environment *envtest.Environment, watches int) (start, stop time.Duration) {
	t.Helper()
	began := time.Now()
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	clientOf, err := client.NewWithWatch(config, client.Options{})
	if err == nil {
		err = clientOf.List(context.Background(), &corev1.NamespaceList{})
	}
	start = time.Since(began)
	for range watches {
		if err == nil {
			_, err = clientOf.Watch(context.Background(), &corev1.ConfigMapList{})
		}
	}
	if err != nil {
		t.Error(err)
	}
	began = time.Now()
	if err := environment.Stop(); err != nil {
		t.Error(err)
	}
	return start, time.Since(began)
}

// shown returns the median and the 99th percentile.
func shown(times []time.Duration) string {
	slices.Sort(times)
	at := func(percent int) string {
		place := (len(times)*percent + 99) / 100
		return times[max(place, 1)-1].Round(time.Millisecond).String()
	}
	return "p50 " + at(50) + ", p99 " + at(99)
}
