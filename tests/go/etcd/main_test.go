// Package etcd tests the program in etcd's place through etcd's own client library. KEELSON_PROGRAM names
// the program; one that is etcd itself passes the same tests.
package etcd

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

const patience = 30 * time.Second

var client *clientv3.Client

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	program := os.Getenv("KEELSON_PROGRAM")
	if program == "" {
		fmt.Println("KEELSON_PROGRAM names no program")
		return 1
	}
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "etcd")
	if err := os.Symlink(program, path); err != nil {
		panic(err)
	}
	url, peer := "http://"+freeAddress(), "http://"+freeAddress()
	server := exec.Command(path, "--data-dir", filepath.Join(dir, "data"), "--log-level", "error",
		"--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Wait()
	defer server.Process.Kill()
	client, err = clientv3.New(clientv3.Config{
		Endpoints:   []string{url},
		DialTimeout: patience,
		DialOptions: []grpc.DialOption{grpc.WithBlock()},
	})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	return m.Run()
}

func freeAddress() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// limited returns a context that ends with the patience of the tests.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// folder returns a prefix of the test's own.
func folder(t *testing.T) string {
	return t.Name() + "/"
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func put(t *testing.T, key, value string, options ...clientv3.OpOption) int64 {
	t.Helper()
	return must[*clientv3.PutResponse](t)(client.Put(limited(t), key, value, options...)).Header.Revision
}

func equal[T comparable](t *testing.T, what string, found, expected T) {
	t.Helper()
	if found != expected {
		t.Errorf("%s: %v, expected %v", what, found, expected)
	}
}
