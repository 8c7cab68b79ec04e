// Package keelson starts Keelson servers for tests.
package keelson

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// startTimeMax is the time that a server on a busy machine may take to start or to stop.
const startTimeMax = 60 * time.Second

// Server is a running server process. It ends with the test.
type Server struct {
	t       *testing.T
	dir     string
	port    int
	command *exec.Cmd
}

// Start starts a server with a data directory of its own on a free port. It runs the control loops
// that it has by default.
func Start(t *testing.T, flags ...string) *Server {
	t.Helper()
	server := &Server{t: t, dir: t.TempDir(), port: freePort(t)}
	server.start(flags...)
	t.Cleanup(server.Stop)
	return server
}

func (s *Server) start(flags ...string) {
	s.t.Helper()
	program := os.Getenv("KEELSON_PROGRAM")
	if program == "" {
		s.t.Fatal("KEELSON_PROGRAM must name the program of the server; cargo xtask clients sets it")
	}
	args := append([]string{
		"serve", "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", s.port),
		"--data-dir=" + s.dir,
	}, flags...)
	s.command = exec.Command(program, args...)
	s.command.Stderr = os.Stderr
	output, err := s.command.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.command.Start(); err != nil {
		s.t.Fatal(err)
	}
	ready := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "https://") {
				ready <- true
			}
		}
		close(ready)
	}()
	select {
	case ok := <-ready:
		if !ok {
			s.t.Fatal("the server ended")
		}
	case <-time.After(startTimeMax):
		s.t.Fatal("the server does not start")
	}
}

// Stop ends the server and waits for its end.
func (s *Server) Stop() {
	if s.command == nil {
		return
	}
	_ = s.command.Process.Signal(syscall.SIGTERM)
	if err := s.command.Wait(); err != nil {
		s.t.Errorf("the server ended with %v", err)
	}
	s.command = nil
}

// Restart ends the server and starts it again with the same data on the same port.
func (s *Server) Restart(flags ...string) {
	s.t.Helper()
	s.Stop()
	s.start(flags...)
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (s *Server) Kubeconfig() string {
	return filepath.Join(s.dir, "admin.kubeconfig")
}

// Config returns the administrator's client configuration.
func (s *Server) Config() *rest.Config {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		s.t.Fatal(err)
	}
	// Tests must not wait for the client's own limit.
	config.QPS = -1
	return config
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// Eventually waits until a condition holds.
func Eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(startTimeMax)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, startTimeMax)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
