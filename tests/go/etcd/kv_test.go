package etcd

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func keysOf(response *clientv3.GetResponse) string {
	var keys []string
	for _, kv := range response.Kvs {
		keys = append(keys, string(kv.Key[strings.LastIndex(string(kv.Key), "/")+1:]))
	}
	return strings.Join(keys, " ")
}

func TestRangesSortAndLimit(t *testing.T) {
	f := folder(t)
	for _, key := range []string{"b", "a", "c"} {
		put(t, f+key, "v"+key)
	}
	put(t, f+"a", "v")
	get := func(options ...clientv3.OpOption) *clientv3.GetResponse {
		options = append(options, clientv3.WithPrefix())
		return must[*clientv3.GetResponse](t)(client.Get(limited(t), f, options...))
	}
	equal(t, "by key", keysOf(get()), "a b c")
	equal(t, "descending", keysOf(get(clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))), "c b a")
	equal(t, "by revision", keysOf(get(clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))), "b c a")
	equal(t, "by version", keysOf(get(clientv3.WithSort(clientv3.SortByVersion, clientv3.SortDescend), clientv3.WithLimit(1))), "a")
	page := get(clientv3.WithLimit(2))
	equal(t, "page", keysOf(page), "a b")
	equal(t, "more", page.More, true)
	equal(t, "count", page.Count, 3)
	count := get(clientv3.WithCountOnly())
	equal(t, "only counted", len(count.Kvs), 0)
	equal(t, "count only", count.Count, 3)
	keys := get(clientv3.WithKeysOnly())
	equal(t, "value of keys only", len(keys.Kvs[0].Value), 0)
	equal(t, "version", keys.Kvs[0].Version, 2)
	from := must[*clientv3.GetResponse](t)(client.Get(limited(t), f+"b", clientv3.WithRange(f+"c")))
	equal(t, "range", keysOf(from), "b")
}

func TestReadsThePastUntilItIsCompacted(t *testing.T) {
	key := folder(t) + "k"
	first := put(t, key, "1")
	second := put(t, key, "2")
	deleted := must[*clientv3.DeleteResponse](t)(client.Delete(limited(t), key, clientv3.WithPrevKV()))
	equal(t, "deleted", deleted.Deleted, 1)
	equal(t, "value before", string(deleted.PrevKvs[0].Value), "2")
	at := func(revision int64) (*clientv3.GetResponse, error) {
		return client.Get(limited(t), key, clientv3.WithRev(revision))
	}
	equal(t, "past", string(must[*clientv3.GetResponse](t)(at(first)).Kvs[0].Value), "1")
	_, err := at(deleted.Header.Revision + 1_000_000)
	equal(t, "future", errors.Is(err, rpctypes.ErrFutureRev), true)
	must[*clientv3.CompactResponse](t)(client.Compact(limited(t), second))
	_, err = at(first)
	equal(t, "compacted", errors.Is(err, rpctypes.ErrCompacted), true)
	equal(t, "at the compaction", string(must[*clientv3.GetResponse](t)(at(second)).Kvs[0].Value), "2")
	_, err = client.Compact(limited(t), second)
	equal(t, "compacted again", errors.Is(err, rpctypes.ErrCompacted), true)
}

func TestPutsKeepWhatTheyIgnore(t *testing.T) {
	key := folder(t) + "k"
	_, err := client.Put(limited(t), key, "", clientv3.WithIgnoreValue())
	equal(t, "absent", errors.Is(err, rpctypes.ErrKeyNotFound), true)
	lease := must[*clientv3.LeaseGrantResponse](t)(client.Grant(limited(t), 100)).ID
	put(t, key, "1", clientv3.WithLease(lease))
	before := must[*clientv3.PutResponse](t)(client.Put(limited(t), key, "2", clientv3.WithIgnoreLease(), clientv3.WithPrevKV()))
	equal(t, "value before", string(before.PrevKv.Value), "1")
	put(t, key, "", clientv3.WithIgnoreValue())
	kv := must[*clientv3.GetResponse](t)(client.Get(limited(t), key)).Kvs[0]
	equal(t, "value", string(kv.Value), "2")
	equal(t, "version", kv.Version, 3)
	equal(t, "lease", kv.Lease, 0)
	_, err = client.Put(limited(t), key, "1", clientv3.WithLease(4711))
	equal(t, "unknown lease", errors.Is(err, rpctypes.ErrLeaseNotFound), true)
}

func TestTransactionsCompareEveryTarget(t *testing.T) {
	f := folder(t)
	lease := must[*clientv3.LeaseGrantResponse](t)(client.Grant(limited(t), 100)).ID
	created := put(t, f+"k", "1")
	modified := put(t, f+"k", "m", clientv3.WithLease(lease))
	holds := func(what string, compare clientv3.Cmp, expected bool) {
		t.Helper()
		response := must[*clientv3.TxnResponse](t)(client.Txn(limited(t)).If(compare).Commit())
		equal(t, what, response.Succeeded, expected)
	}
	key := f + "k"
	for _, of := range []struct {
		name   string
		cmp    clientv3.Cmp
		number any
		less   any
	}{
		{"version", clientv3.Version(key), 2, 1},
		{"create", clientv3.CreateRevision(key), created, created - 1},
		{"mod", clientv3.ModRevision(key), modified, modified - 1},
		{"value", clientv3.Value(key), "m", "l"},
		{"lease", clientv3.LeaseValue(key), lease, clientv3.LeaseID(0)},
	} {
		holds(of.name+" =", clientv3.Compare(of.cmp, "=", of.number), true)
		holds(of.name+" !=", clientv3.Compare(of.cmp, "!=", of.number), false)
		holds(of.name+" >", clientv3.Compare(of.cmp, ">", of.less), true)
		holds(of.name+" <", clientv3.Compare(of.cmp, "<", of.less), false)
		holds(of.name+" = less", clientv3.Compare(of.cmp, "=", of.less), false)
	}
	holds("absent version", clientv3.Compare(clientv3.Version(f+"none"), "=", 0), true)
	holds("absent value", clientv3.Compare(clientv3.Value(f+"none"), "=", ""), false)
	put(t, f+"l", "1")
	all := func(result string, number int) clientv3.Cmp {
		return clientv3.Compare(clientv3.Version(f).WithPrefix(), result, number)
	}
	holds("range <", all("<", 3), true)
	holds("range =", all("=", 1), false)
}

func TestTransactionsNest(t *testing.T) {
	f := folder(t)
	revision := put(t, f+"a", "1")
	absent := clientv3.Compare(clientv3.Version(f+"b"), "=", 0)
	inner := clientv3.OpTxn([]clientv3.Cmp{absent}, []clientv3.Op{clientv3.OpPut(f+"c", "then")}, []clientv3.Op{clientv3.OpPut(f+"c", "else")})
	response := must[*clientv3.TxnResponse](t)(client.Txn(limited(t)).If(absent).
		Then(clientv3.OpPut(f+"b", "1"), inner, clientv3.OpDelete(f+"a"), clientv3.OpGet(f, clientv3.WithPrefix())).Commit())
	equal(t, "revision", response.Header.Revision, revision+1)
	equal(t, "decided before the puts", response.Responses[1].GetResponseTxn().Succeeded, true)
	found := (*clientv3.GetResponse)(response.Responses[3].GetResponseRange())
	equal(t, "sees its writes", keysOf(found), "b c")
	for _, kv := range found.Kvs {
		equal(t, "one revision", kv.ModRevision, revision+1)
	}
}

func TestTransactionsHaveLimits(t *testing.T) {
	f := folder(t)
	_, err := client.Txn(limited(t)).Then(clientv3.OpPut(f+"a", "1"), clientv3.OpPut(f+"a", "2")).Commit()
	equal(t, "twice", errors.Is(err, rpctypes.ErrDuplicateKey), true)
	_, err = client.Txn(limited(t)).Then(clientv3.OpPut(f+"a", "1"), clientv3.OpDelete(f, clientv3.WithPrefix())).Commit()
	equal(t, "put and deleted", errors.Is(err, rpctypes.ErrDuplicateKey), true)
	var ops []clientv3.Op
	for range 129 {
		ops = append(ops, clientv3.OpGet(f+"a"))
	}
	_, err = client.Txn(limited(t)).Then(ops...).Commit()
	equal(t, "129 operations", errors.Is(err, rpctypes.ErrTooManyOps), true)
	_, err = client.Put(limited(t), "", "1")
	equal(t, "no key", errors.Is(err, rpctypes.ErrEmptyKey), true)
	_, err = client.Put(limited(t), f+"a", strings.Repeat("v", 1_600_000))
	equal(t, "too large", errors.Is(err, rpctypes.ErrRequestTooLarge), true)
}
