package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"ledge/runtime"
)

// container is one the engine holds.
type container struct {
	rec   containerRecord // Status guarded by mu once others know the container, the rest fixed
	dir   string
	proc  *process // nil if it ended before we looked
	stdio *stdio
	done  chan struct{} // closed when the exit has been recorded
	swept chan struct{} // closed when what it had made has been removed, or that has been tried
	// entering is held for reading while a command enters its namespaces, and for writing while its process is reaped.
	entering sync.RWMutex
	// turn admits one command of this container at a time, so that one container cannot take all places.
	turn chan struct{}

	mu     sync.Mutex // of rec.Status, and of the streams and files of stdio
	sealed bool       // its streams have been told to stop
}

func newContainer(dir string, rec containerRecord) *container {
	return &container{dir: dir, rec: rec, done: make(chan struct{}), swept: make(chan struct{}), turn: make(chan struct{}, 1)}
}

// alive reports whether the container's exit has not been recorded.
func (c *container) alive() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// status is a copy of what is known of it.
func (c *container) status() runtime.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return copyStatus(c.rec.Status)
}

// limited notes limits, and gives the record that has them.
func (c *container) limited(r runtime.Resources) containerRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rec.Status.Resources = c.rec.Status.Resources.With(r)
	return c.rec
}

// exited notes how it ended.
func (c *container) exited(x runtime.Exit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc != nil {
		_ = c.proc.fd.Close()
	}
	c.rec.Status.Phase, c.rec.Status.Exit = runtime.Exited, &x
	close(c.done)
}

// abandon ends the wait for its process.
func (c *container) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc != nil {
		c.proc.stop()
	}
}

// save writes the record; nobody else knows the container yet.
func (c *container) save() error {
	return writeJSON(filepath.Join(c.dir, "container.json"), c.rec)
}

// run starts the streams.
func (c *container) run(wg *sync.WaitGroup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.stdio.streams {
		wg.Go(s.run)
	}
}

// endStreams tells every stream to stop; there will be no new ones.
func (c *container) endStreams(what int32) {
	c.mu.Lock()
	c.sealed = true
	streams := c.stdio.streams
	c.mu.Unlock()
	for _, s := range streams {
		s.tell(what)
	}
}

// takeTTY goes on with a terminal that somebody held, if it is the one that is missing; nil if not.
func (c *container) takeTTY(f *os.File, wg *sync.WaitGroup) (master *os.File, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.rec.Container.TTY || c.sealed || c.stdio == nil || c.stdio.files[nameTTY] != nil {
		return nil, nil
	}
	if master, err = dupFile(f); err != nil {
		return nil, err
	}
	c.stdio.addTTY(master)
	wg.Go(c.stdio.streams[0].run)
	return master, nil
}

// join gives copies of the output to files from now on, and opens the input.
func (c *container) join(files [2]*os.File, stdin bool, slow func()) (in *os.File, leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sealed || !c.alive() {
		return nil, nil, runtime.ErrNotRunning
	}
	if in, err = c.input(stdin); err != nil {
		return nil, nil, err
	}
	var leaves []func()
	leave = func() {
		for _, l := range leaves {
			l()
		}
	}
	for i, s := range c.stdio.streams { // a terminal has one, which is standard output
		if files[i] == nil {
			continue
		}
		f, err := dupFile(files[i])
		if err == nil {
			t := &tap{f: f, slow: slow}
			leaves = append(leaves, func() { s.taps.remove(t) })
			err = s.taps.add(t)
		}
		if err != nil {
			leave()
			if in != nil {
				err = errors.Join(err, in.Close())
			}
			return nil, nil, err
		}
	}
	return in, leave, nil
}

// input opens what an attacher writes to. It is called with mu held.
func (c *container) input(wanted bool) (*os.File, error) {
	if c.rec.Container.TTY {
		master := c.stdio.files[nameTTY]
		if master == nil {
			return nil, fmt.Errorf("%w: whoever holds its terminal has not given it back", runtime.ErrUnavailable)
		}
		return dupFile(master)
	}
	f := c.stdio.files[nameStdin]
	if !wanted || f == nil { // nil: it has ended
		return nil, nil
	}
	if c.rec.Container.StdinOnce {
		// Without the name a next keeper cannot open it: this attacher is the only one there will be.
		if err := os.Remove(filepath.Join(c.dir, nameStdin)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	rc, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var in *os.File
	var oerr error
	// To write only: the container must see the end when it is closed.
	err = rc.Control(func(fd uintptr) { in, oerr = openFIFO("/proc/self/fd/"+strconv.Itoa(int(fd)), os.O_WRONLY) })
	return in, errors.Join(err, oerr)
}

// dropStdin gives up the input, which ends when the attacher has let go of it too; nil if there is none any more.
func (c *container) dropStdin() *os.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.stdio.files[nameStdin]
	if c.sealed || f == nil {
		return nil
	}
	delete(c.stdio.files, nameStdin)
	return f
}
