package runtimetest_test

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/internal/testrun"
	"ledge/runtime"
)

// fdStore stands for systemd: it holds what the keeper parks, and gives it to the next one.
type fdStore struct {
	path string
	mu   sync.Mutex
	held map[string]*os.File
}

func newFDStore(t *testing.T) *fdStore {
	t.Helper()
	s := &fdStore{path: filepath.Join(t.TempDir(), "store"), held: map[string]*os.File{}}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: s.path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			wg.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
		for _, f := range s.held {
			_ = f.Close()
		}
	})
	return s
}

func (s *fdStore) serve(c *net.UnixConn) {
	defer c.Close()
	for {
		msg, oob := make([]byte, 512), make([]byte, 64)
		n, oobn, _, _, err := c.ReadMsgUnix(msg, oob)
		if err != nil || n == 0 {
			return
		}
		verb, name, _ := strings.Cut(string(msg[:n]), " ")
		s.mu.Lock()
		if old := s.held[name]; old != nil {
			_ = old.Close()
			delete(s.held, name)
		}
		if verb == "park" {
			if cm, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(cm) == 1 {
				if fds, err := unix.ParseUnixRights(&cm[0]); err == nil && len(fds) == 1 {
					s.held[name] = os.NewFile(uintptr(fds[0]), name)
				}
			}
		}
		s.mu.Unlock()
		_, _ = c.Write([]byte("ok"))
	}
}

func (s *fdStore) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.held))
}

// arm gives the next keeper the store and what is in it.
func (s *fdStore) arm(t *testing.T, k *keeperProc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.extraEnv = []string{"LEDGE_TEST_FDSTORE=" + s.path}
	k.extraFiles = nil
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.held)) {
		fd, err := unix.FcntlInt(s.held[name].Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
		k.extraFiles = append(k.extraFiles, os.NewFile(uintptr(fd), name))
	}
	k.extraEnv = append(k.extraEnv, "LEDGE_TEST_PARKED="+strings.Join(names, ":"))
}

// storeClient is the keeper's side.
func storeClient(path string) (park func(string, *os.File) error, unpark func(string) error, err error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	say := func(text string, rights []byte) error {
		mu.Lock()
		defer mu.Unlock()
		if _, _, err := c.WriteMsgUnix([]byte(text), rights, nil); err != nil {
			return err
		}
		_, err := c.Read(make([]byte, 8))
		return err
	}
	park = func(name string, f *os.File) error {
		rc, err := f.SyscallConn()
		if err != nil {
			return err
		}
		var serr error
		if err := rc.Control(func(fd uintptr) { serr = say("park "+name, unix.UnixRights(int(fd))) }); err != nil {
			return err
		}
		return serr
	}
	return park, func(name string) error { return say("unpark "+name, nil) }, nil
}

func parkedFiles() (files []*os.File) {
	names := os.Getenv("LEDGE_TEST_PARKED")
	if names == "" {
		return nil
	}
	for i, name := range strings.Split(names, ":") {
		syscall.CloseOnExec(3 + i)
		files = append(files, os.NewFile(uintptr(3+i), name))
	}
	return files
}

// TestFDStore: with systemd holding the files, a container writes to a write-only descriptor and survives the death
// of keeper and brain while it logs; one that ends while nobody is there still has its last words and its exit code.
func TestFDStore(t *testing.T) {
	store := newFDStore(t)
	k := &keeperProc{}
	store.arm(t, k)
	k = newKeeperFrom(t, k)
	s := k.setup()
	p := s.Pod(t)
	flags := s.NewContainer(t, p, "facts")
	has(t, output(t, s, flags), "fd 1 nonblock false mode 1 tty false true", "fd 2 nonblock false mode 1 tty false true")
	if got := store.names(); len(got) > 0 {
		t.Errorf("parked for an ended container: %v", got)
	}

	flood, ends := s.NewContainer(t, p, "flood"), s.NewContainer(t, p, "run", "42")
	tty := s.NewContainer(t, p, "lines", "100000", "5ms")
	tty.TTY = true
	started := map[string]runtime.Status{}
	for _, c := range []*runtime.Container{&flood, &ends, &tty} {
		c.LogPath = filepath.Join(t.TempDir(), "log")
		c.LogBytes, c.LogFiles = 1<<30, 1
		started[c.ID] = s.Start(t, *c)
	}
	awaitLog(t, ends.LogPath, "ready")
	last := awaitSequence(t, flood.LogPath, 100)
	lastTTY := awaitSequence(t, tty.LogPath, 5)
	k.kill(t)
	if err := syscall.Kill(started[ends.ID].Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testrun.Patience(10 * time.Second)); syscall.Kill(started[ends.ID].Pid,
		0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Skip("nobody reaps the orphans of this machine")
		}
	}
	time.Sleep(200 * time.Millisecond)
	store.arm(t, k)
	k.start(t)
	for _, f := range k.extraFiles {
		_ = f.Close()
	}
	awaitSequence(t, flood.LogPath, last[len(last)-1]+1000)
	awaitSequence(t, tty.LogPath, lastTTY[len(lastTTY)-1]+20)
	for _, c := range []runtime.Container{flood, tty} {
		if st, ok := s.Find(t, c.ID); !ok || st.Phase != runtime.Running || st.Pid != started[c.ID].Pid {
			t.Errorf("%v after the keeper's death: %+v", c.Args, st)
		}
	}
	x := s.Exit(t, ends.ID)
	if remembers(t) && (x.Code != 42 || x.Unknown) || !remembers(t) && !x.Unknown {
		t.Errorf("ended without a keeper: %+v", x)
	}
	for _, name := range store.names() {
		if strings.HasPrefix(name, ends.ID+"/") {
			t.Errorf("parked for an ended container: %s", name)
		}
	}
	if n := len(store.names()); n != 3+2 {
		t.Errorf("parked: %v", store.names())
	}
}
