package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// take returns the next events of a watch, described.
func take(t *testing.T, watch clientv3.WatchChan, count int) string {
	t.Helper()
	var events []string
	for len(events) < count {
		response, ok := <-watch
		if !ok {
			t.Fatalf("the watch ended after %v", events)
		}
		if err := response.Err(); err != nil {
			t.Fatal(err)
		}
		for _, event := range response.Events {
			key := string(event.Kv.Key[strings.LastIndex(string(event.Kv.Key), "/")+1:])
			text := fmt.Sprintf("%s %s=%s", event.Type, key, event.Kv.Value)
			if event.PrevKv != nil {
				text += " was " + string(event.PrevKv.Value)
			}
			events = append(events, text)
		}
	}
	return strings.Join(events, ", ")
}

func TestWatchesFromThePastGoOnIntoTheFuture(t *testing.T) {
	f := folder(t)
	first := put(t, f+"a", "1")
	put(t, f+"a", "2")
	must[*clientv3.DeleteResponse](t)(client.Delete(limited(t), f+"a"))
	watch := client.Watch(limited(t), f, clientv3.WithPrefix(), clientv3.WithRev(first), clientv3.WithPrevKV())
	equal(t, "past", take(t, watch, 3), "PUT a=1, PUT a=2 was 1, DELETE a= was 2")
	put(t, f+"b", "3")
	equal(t, "future", take(t, watch, 1), "PUT b=3")
}

func TestWatchesFilter(t *testing.T) {
	f := folder(t)
	first := put(t, f+"a", "1")
	must[*clientv3.DeleteResponse](t)(client.Delete(limited(t), f+"a"))
	put(t, f+"b", "1")
	from := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(first)}
	puts := client.Watch(limited(t), f, append(from, clientv3.WithFilterDelete())...)
	equal(t, "puts", take(t, puts, 2), "PUT a=1, PUT b=1")
	deletes := client.Watch(limited(t), f, append(from, clientv3.WithFilterPut())...)
	equal(t, "deletes", take(t, deletes, 1), "DELETE a=")
	one := client.Watch(limited(t), f+"b", clientv3.WithRev(first))
	equal(t, "one key", take(t, one, 1), "PUT b=1")
}

func TestManyWatchesShareOneStream(t *testing.T) {
	f := folder(t)
	ctx, cancel := context.WithCancel(limited(t))
	var watches []clientv3.WatchChan
	for n := range 300 {
		watches = append(watches, client.Watch(ctx, fmt.Sprintf("%s%03d", f, n), clientv3.WithCreatedNotify()))
	}
	for _, watch := range watches {
		equal(t, "created", (<-watch).Created, true)
	}
	all := client.Watch(limited(t), f, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	equal(t, "created", (<-all).Created, true)
	for n := range 300 {
		put(t, fmt.Sprintf("%s%03d", f, n), "v")
	}
	for n, watch := range watches {
		equal(t, "event", take(t, watch, 1), fmt.Sprintf("PUT %03d=v", n))
	}
	cancel()
	for _, watch := range watches {
		for range watch {
		}
	}
	equal(t, "events of all", len(strings.Split(take(t, all, 300), ", ")), 300)
}

func TestWatchesOfWhatIsCompactedEnd(t *testing.T) {
	f := folder(t)
	first := put(t, f+"a", "1")
	second := put(t, f+"a", "2")
	must[*clientv3.CompactResponse](t)(client.Compact(limited(t), second))
	response := <-client.Watch(limited(t), f+"a", clientv3.WithRev(first))
	equal(t, "error", errors.Is(response.Err(), rpctypes.ErrCompacted), true)
	equal(t, "compacted revision", response.CompactRevision, second)
	watch := client.Watch(limited(t), f+"a", clientv3.WithRev(second))
	equal(t, "at the compaction", take(t, watch, 1), "PUT a=2")
}

func TestFragmentedAndWholeWatchesGetTheSame(t *testing.T) {
	f := folder(t)
	value := strings.Repeat("v", 700_000)
	first := put(t, f+"a", value)
	for _, key := range []string{"b", "c", "d"} {
		put(t, f+key, value)
	}
	from := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(first)}
	whole := take(t, client.Watch(limited(t), f, from...), 4)
	parts := take(t, client.Watch(limited(t), f, append(from, clientv3.WithFragment())...), 4)
	equal(t, "events", parts == whole, true)
}

func TestProgressIsReportedOnRequest(t *testing.T) {
	f := folder(t)
	ctx := limited(t)
	watch := client.Watch(ctx, f, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	equal(t, "created", (<-watch).Created, true)
	revision := put(t, "elsewhere", "1")
	for {
		// A member that is behind may leave a request unanswered.
		if err := client.RequestProgress(ctx); err != nil {
			t.Fatal(err)
		}
		response := <-watch
		equal(t, "progress", response.IsProgressNotify(), true)
		if response.Header.Revision >= revision {
			return
		}
	}
}
