package etcd

import (
	"errors"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func TestLeasesExpireWithTheirKeys(t *testing.T) {
	f := folder(t)
	lease := must[*clientv3.LeaseGrantResponse](t)(client.Grant(limited(t), 1))
	watch := client.Watch(limited(t), f, clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithPrevKV())
	put(t, f+"a", "1", clientv3.WithLease(lease.ID))
	put(t, f+"b", "1", clientv3.WithLease(lease.ID))
	times := must[*clientv3.LeaseTimeToLiveResponse](t)(client.TimeToLive(limited(t), lease.ID, clientv3.WithAttachedKeys()))
	equal(t, "granted", times.GrantedTTL, lease.TTL)
	equal(t, "keys", len(times.Keys), 2)
	equal(t, "expired", take(t, watch, 2), "DELETE a= was 1, DELETE b= was 1")
	_, err := client.KeepAliveOnce(limited(t), lease.ID)
	equal(t, "kept alive too late", errors.Is(err, rpctypes.ErrLeaseNotFound), true)
}

func TestLeasesAreKeptAliveAndRevoked(t *testing.T) {
	key := folder(t) + "k"
	lease := must[*clientv3.LeaseGrantResponse](t)(client.Grant(limited(t), 60)).ID
	put(t, key, "1", clientv3.WithLease(lease))
	alive := must[<-chan *clientv3.LeaseKeepAliveResponse](t)(client.KeepAlive(limited(t), lease))
	equal(t, "kept alive", (<-alive).TTL, 60)
	listed := must[*clientv3.LeaseLeasesResponse](t)(client.Leases(limited(t)))
	found := false
	for _, status := range listed.Leases {
		found = found || status.ID == lease
	}
	equal(t, "listed", found, true)
	must[*clientv3.LeaseRevokeResponse](t)(client.Revoke(limited(t), lease))
	equal(t, "keys", len(must[*clientv3.GetResponse](t)(client.Get(limited(t), key)).Kvs), 0)
	_, err := client.Revoke(limited(t), lease)
	equal(t, "revoked again", errors.Is(err, rpctypes.ErrLeaseNotFound), true)
	gone := must[*clientv3.LeaseTimeToLiveResponse](t)(client.TimeToLive(limited(t), lease))
	equal(t, "time to live", gone.TTL, -1)
}

func TestMutexesLetInOneOwner(t *testing.T) {
	f := folder(t)
	var wait sync.WaitGroup
	inside, entered := 0, 0
	for range 8 {
		wait.Go(func() {
			session, err := concurrency.NewSession(client, concurrency.WithTTL(60))
			if err != nil {
				t.Error(err)
				return
			}
			defer session.Close()
			mutex := concurrency.NewMutex(session, f+"lock")
			if err := mutex.Lock(limited(t)); err != nil {
				t.Error(err)
				return
			}
			inside++
			entered++
			equal(t, "inside", inside, 1)
			inside--
			if err := mutex.Unlock(limited(t)); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	equal(t, "entered", entered, 8)
}

func TestElectionsPassOnWhenTheLeaderGoes(t *testing.T) {
	f := folder(t)
	campaign := func(name string) (*concurrency.Session, *concurrency.Election) {
		session := must[*concurrency.Session](t)(concurrency.NewSession(client, concurrency.WithTTL(60)))
		election := concurrency.NewElection(session, f+"election")
		if err := election.Campaign(limited(t), name); err != nil {
			t.Fatal(err)
		}
		return session, election
	}
	session, election := campaign("first")
	leader := must[*clientv3.GetResponse](t)(election.Leader(limited(t)))
	equal(t, "leader", string(leader.Kvs[0].Value), "first")
	won := make(chan *concurrency.Election)
	go func() {
		_, next := campaign("second")
		won <- next
	}()
	// Its session ends: the lease takes its key along.
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
	leader = must[*clientv3.GetResponse](t)((<-won).Leader(limited(t)))
	equal(t, "next leader", string(leader.Kvs[0].Value), "second")
}
