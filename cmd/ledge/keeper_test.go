package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFDStoreMessage: the service manager gets the words and the file, and the words alone.
func TestFDStoreMessage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must(t, err)
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	must(t, fdStore("FDSTORE=1\nFDNAME=c/stdout", w))
	must(t, fdStore("FDSTOREREMOVE=1\nFDNAME=c/stdout", nil))
	text, rights := make([]byte, 100), make([]byte, 100)
	n, oob, _, _, err := manager.ReadMsgUnix(text, rights)
	must(t, err)
	list, err := unix.ParseSocketControlMessage(rights[:oob])
	must(t, err)
	fds, err := unix.ParseUnixRights(&list[0])
	if err != nil || string(text[:n]) != "FDSTORE=1\nFDNAME=c/stdout" || len(fds) != 1 {
		t.Fatalf("%q, files %v, %v", text[:n], fds, err)
	}
	_, err = unix.Write(fds[0], []byte("x"))
	must(t, err)
	must(t, unix.Close(fds[0]))
	if n, err := r.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("the file is another: %d %v", n, err)
	}
	n, oob, _, _, err = manager.ReadMsgUnix(text, rights)
	if string(text[:n]) != "FDSTOREREMOVE=1\nFDNAME=c/stdout" || oob != 0 || err != nil {
		t.Errorf("%q, %d, %v", text[:n], oob, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
