package node

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/runtime"
)

var _ api.Streams = (*Agent)(nil)

// Logs reads what a container wrote, from the files the keeper keeps.
func (a *Agent) Logs(ctx context.Context, namespace, name string, opts api.LogOptions) (io.ReadCloser, error) {
	pod, err := api.Get[*corev1.Pod](ctx, a.cfg.Client, api.Pods, namespace, name)
	if err != nil {
		return nil, err
	}
	if pod.Spec.NodeName != a.cfg.Name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s is on node %q, not on %q", name, pod.Spec.NodeName, a.cfg.Name))
	}
	c, err := logContainer(pod, opts.Container)
	if err != nil {
		return nil, err
	}
	attempt, live, err := a.logAttempt(pod, c, opts.Previous)
	if err != nil {
		return nil, err
	}
	r := &logReader{ctx: ctx, opts: opts, path: a.logFile(pod, c, attempt), live: live}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

func logContainer(pod *corev1.Pod, name string) (string, error) {
	var all []string
	for _, c := range pod.Spec.Containers {
		all = append(all, c.Name)
	}
	switch {
	case name == "" && len(all) == 1:
		return all[0], nil
	case name == "":
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %v", pod.Name, all))
	case containerNamed(pod, name) == nil:
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
	}
	return name, nil
}

// logAttempt chooses the attempt to read, and tells whether its container still runs.
func (a *Agent) logAttempt(pod *corev1.Pod, name string, previous bool) (attempt int, live func() bool, err error) {
	found, id, over := -1, "", true
	cs, _, _ := a.held(pod.UID)
	for _, s := range cs {
		if s.Name == name && s.Attempt > found {
			found, id, over = s.Attempt, s.ID, s.Phase == runtime.Exited
		}
	}
	if found < 0 { // it ended and its records are gone: the files tell
		found = newestLog(filepath.Join(a.podLogDir(pod), name))
	}
	waiting := waitingFor(pod, name)
	if previous {
		if waiting == "" || !over { // else it waits to be started again: the last attempt is the previous one, as lastState says
			found--
		}
		if found < 0 || !exists(a.logFile(pod, name, found)) {
			return 0, nil, apierrors.NewBadRequest(fmt.Sprintf("previous terminated container %q in pod %q not found", name, pod.Name))
		}
		return found, func() bool { return false }, nil
	}
	if found < 0 {
		return 0, nil, apierrors.NewBadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: %s", name, pod.Name, first(waiting, "ContainerCreating")))
	}
	return found, func() bool { return a.isRunning(pod, id) }, nil
}

// waitingFor is the reason for which a container does not run, or "" when it does or is done.
func waitingFor(pod *corev1.Pod, name string) string {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.Name == name && s.State.Waiting != nil {
			return s.State.Waiting.Reason
		}
	}
	return ""
}

func (a *Agent) isRunning(pod *corev1.Pod, id string) bool {
	cs, _, up := a.held(pod.UID)
	if !up {
		return true // the keeper restarts; the container runs on
	}
	return slices.ContainsFunc(cs, func(s runtime.Status) bool { return s.ID == id && s.Phase == runtime.Running })
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func newestLog(dir string) int {
	newest := -1
	entries, err := os.ReadDir(dir)
	if err != nil {
		return -1
	}
	for _, e := range entries {
		if n, err := strconv.Atoi(strings.TrimSuffix(e.Name(), ".log")); err == nil {
			newest = max(newest, n)
		}
	}
	return newest
}

// logReader turns CRI log lines back into what the container wrote.
type logReader struct {
	ctx  context.Context
	opts api.LogOptions
	path string
	live func() bool

	f    *os.File
	in   *bufio.Reader
	part []byte // a line that is not complete yet
	out  bytes.Buffer
	left *int64 // LimitBytes
	drop int64  // lines to skip, for TailLines
	mid  bool   // in the middle of a line that was written in pieces
	last bool   // the container had ended before the last look
}

// open begins with the newest file. A tail is counted there, once: what a later file holds is new.
func (r *logReader) open() error {
	if r.opts.LimitBytes != nil {
		n := *r.opts.LimitBytes
		r.left = &n
	}
	if err := r.use(r.path); err != nil || r.f == nil || r.opts.TailLines == nil {
		return err
	}
	total := countLines(r.f, r.opts.Since)
	r.drop = max(0, total-*r.opts.TailLines)
	if _, err := r.f.Seek(0, io.SeekStart); err != nil {
		return api.NewInternal("read log: %v", err)
	}
	return nil
}

// use opens a file of the log. One that is not there is none yet: Read looks again.
func (r *logReader) use(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return api.NewInternal("open log: %v", err)
	}
	r.f, r.in, r.part = f, bufio.NewReader(f), r.part[:0]
	return nil
}

func countLines(f io.Reader, since time.Time) (n int64) {
	in := bufio.NewReader(f)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return n
		}
		if l, ok := parseLine(line); ok && !l.partial && !l.at.Before(since) {
			n++
		}
	}
}

// Read gives the next bytes. Without Follow it ends at the end of the file; with it, when the container has
// ended and everything it wrote has been read, or ctx ends.
func (r *logReader) Read(p []byte) (int, error) {
	if r.left != nil {
		if *r.left <= 0 {
			return 0, io.EOF
		}
		p = p[:min(int64(len(p)), *r.left)]
	}
	for r.out.Len() == 0 {
		more, err := r.fill()
		if err != nil {
			return 0, err
		}
		if !more {
			if done, err := r.pause(); done {
				return 0, err
			}
		}
	}
	n, err := r.out.Read(p)
	if r.left != nil {
		*r.left -= int64(n)
	}
	return n, err
}

// pause waits for more to be written. A look at the files comes after the look at the container, so that
// nothing written before its end is missed.
func (r *logReader) pause() (done bool, err error) {
	if !r.opts.Follow {
		return true, io.EOF
	}
	moved, err := r.advance()
	switch {
	case moved || err != nil:
		return err != nil, err
	case r.last:
		return true, io.EOF
	case !r.live():
		r.last = true
		return false, nil
	}
	select {
	case <-r.ctx.Done():
		return true, io.EOF
	case <-time.After(200 * time.Millisecond):
		return false, nil
	}
}

// advance goes on to the file that was begun after the one that is open, if there is one.
func (r *logReader) advance() (bool, error) {
	if r.f == nil {
		err := r.use(r.path)
		return r.f != nil, err
	}
	have, err := r.f.Stat()
	if err != nil {
		return false, api.NewInternal("read log: %v", err)
	}
	now, err := os.Stat(r.path)
	if err != nil || os.SameFile(now, have) {
		return false, nil //nolint:nilerr // between rename and create: look again
	}
	for more := true; more; { // what was written between our last look and the rotation
		if more, err = r.fill(); err != nil {
			return false, err
		}
	}
	r.f.Close()
	r.f, r.in = nil, nil
	err = r.use(r.younger(have))
	return r.f != nil, err
}

// younger is the next file after the one given. A rotation moves the log to log.1, that to log.2 and so on; a reader
// on a slow line may be several behind, or stand in one that is gone by now.
func (r *logReader) younger(have os.FileInfo) string {
	next := r.path
	for n := 1; ; n++ {
		older := fmt.Sprintf("%s.%d", r.path, n)
		st, err := os.Stat(older)
		if err != nil || os.SameFile(st, have) {
			return next
		}
		next = older
	}
}

func (r *logReader) fill() (bool, error) {
	if r.in == nil {
		return false, nil
	}
	chunk, err := r.in.ReadBytes('\n')
	r.part = append(r.part, chunk...)
	if err == io.EOF {
		return false, nil
	}
	if err != nil {
		return false, api.NewInternal("read log: %v", err)
	}
	line, ok := parseLine(r.part)
	r.part = r.part[:0]
	if ok {
		r.emit(line)
	}
	return true, nil
}

func (r *logReader) emit(l logLine) {
	switch {
	case l.at.Before(r.opts.Since):
		return
	case r.drop > 0:
		if !l.partial {
			r.drop--
		}
		return
	}
	if r.opts.Timestamps && !r.mid {
		r.out.WriteString(l.stamp)
		r.out.WriteByte(' ')
	}
	r.out.Write(l.text)
	if r.mid = l.partial; !r.mid {
		r.out.WriteByte('\n')
	}
}

// Close releases the file.
func (r *logReader) Close() error {
	if r.f == nil {
		return nil
	}
	return r.f.Close()
}

// logLine is one line of a CRI log: "<time> stdout F text".
type logLine struct {
	stamp   string
	at      time.Time
	partial bool
	text    []byte
}

func parseLine(raw []byte) (logLine, bool) {
	raw = bytes.TrimSuffix(raw, []byte("\n"))
	f := bytes.SplitN(raw, []byte(" "), 4)
	if len(f) < 4 {
		return logLine{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(f[0]))
	if err != nil {
		return logLine{}, false
	}
	return logLine{stamp: string(f[0]), at: at, partial: bytes.HasPrefix(f[2], []byte("P")), text: f[3]}, true
}

// lastLines is the end of a log, for a termination message that was never written.
func lastLines(path string, lines int, most int64) string {
	const window = 32 << 10 // the longest line and as much again
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > window {
		if _, err := f.Seek(-window, io.SeekEnd); err != nil {
			return ""
		}
	}
	var out []string
	mid := false
	sc := bufio.NewScanner(io.LimitReader(f, window))
	for sc.Scan() {
		l, ok := parseLine(sc.Bytes())
		switch {
		case !ok:
			continue
		case mid:
			out[len(out)-1] += string(l.text)
		default:
			out = append(out, string(l.text))
		}
		if mid = l.partial; !mid {
			out[len(out)-1] += "\n"
		}
	}
	text := strings.Join(out[max(0, len(out)-lines):], "")
	return text[max(0, int64(len(text))-most):]
}
