package etcd

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"
)

func TestSnapshotsAreReadAndRestoredByTheToolsOfEtcd(t *testing.T) {
	f := folder(t)
	for range 300 {
		put(t, f+"k", "v")
	}
	revision := put(t, f+"large", string(make([]byte, 100_000)))
	stream := must[io.ReadCloser](t)(client.Snapshot(limited(t)))
	defer stream.Close()
	path := filepath.Join(t.TempDir(), "snapshot.db")
	file := must[*os.File](t)(os.Create(path))
	must[int64](t)(io.Copy(file, stream))
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	tool := snapshot.NewV3(zap.NewNop())
	status := must[snapshot.Status](t)(tool.Status(path))
	equal(t, "revision", status.Revision >= revision, true)
	equal(t, "version", status.Version, "3.6.0")
	restored := filepath.Join(t.TempDir(), "restored")
	err := tool.Restore(snapshot.RestoreConfig{
		SnapshotPath: path, Name: "default", OutputDataDir: restored,
		PeerURLs: []string{"http://127.0.0.1:2380"}, InitialCluster: "default=http://127.0.0.1:2380",
		InitialClusterToken: "token",
	})
	if err != nil {
		t.Fatal(err)
	}
	hash := must[*clientv3.HashKVResponse](t)(client.HashKV(limited(t), client.Endpoints()[0], status.Revision))
	// etcd itself opens the restored data, and finds the same history.
	stored := backend.NewDefaultBackend(zap.NewNop(), filepath.Join(restored, "member/snap/db"))
	defer stored.Close()
	store := mvcc.NewStore(zap.NewNop(), stored, &lease.FakeLessor{}, mvcc.StoreConfig{})
	defer store.Close()
	found, _, err := mvcc.NewHashStorage(zap.NewNop(), store).HashByRev(status.Revision)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "hash", found.Hash, hash.Hash)
	past := must[*mvcc.RangeResult](t)(store.Range(limited(t), []byte(f+"k"), nil, mvcc.RangeOptions{Rev: revision - 1}))
	equal(t, "past", past.KVs[0].Version, 300)
}
