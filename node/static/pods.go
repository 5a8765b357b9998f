package static

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/internal/durable"
)

// Config says where static pods come from. Without directories there are none.
type Config struct {
	Dirs []Dir
	// Changed is poked when something in a directory may have changed; nil: they are only read now and then.
	Changed <-chan struct{}
}

// Dir is a directory of files that hold pods.
type Dir struct {
	Path string
	// Mixed: objects of other kinds stand there too, for somebody else; only files named .yaml, .yml and .json are read.
	Mixed bool
}

// poweredOff says whether that is the reason of a pod that a shutdown stopped (N-5.27, N-5.37).
func poweredOff(reason string) bool { return reason == "Terminated" || reason == "Shutdown" }

const (
	// ScanEvery is how often directories are read when nothing is heard of a change (N-7.49).
	ScanEvery = 20 * time.Second
	// writeTime lets a file that is being written be written to its end.
	writeTime = 100 * time.Millisecond
	// maxManifest is the longest file that is read.
	maxManifest = 1 << 20
)

// Pods are the pods that come from files and run without any API. Their objects are here: the API only gets to see
// a mirror of each.
type Pods struct {
	node     string
	dirs     []Dir
	keep     string // copies of the last good files
	statuses string
	complain func(reason, message string)
	changed  chan struct{} // capacity 1
	scanned  chan struct{}

	mu    sync.Mutex
	files map[string]*file // by path
	pods  map[types.UID]*corev1.Pod
	seq   int
}

// file is one file as it was last read.
type file struct {
	data []byte // that the pods are from
	bad  string // complaint about what stands there now
	dup  string // complaint about pods that another file has, too
	pods []*corev1.Pod
}

// New makes the set of static pods of a node. It keeps copies of files below dataDir and statuses below runDir. complain is told
// what is wrong with a file.
func New(node, dataDir, runDir string, cfg Config, complain func(reason, message string)) *Pods {
	return &Pods{node: node, dirs: cfg.Dirs, keep: filepath.Join(dataDir, "static"), statuses: filepath.Join(runDir, "static"),
		complain: complain,
		changed:  make(chan struct{}, 1), scanned: make(chan struct{}), files: map[string]*file{}, pods: map[types.UID]*corev1.Pod{}}
}

// Changed has something in it when the pods or a status have changed.
func (s *Pods) Changed() <-chan struct{} { return s.changed }

// Scanned is closed when the files have been read for the first time.
func (s *Pods) Scanned() <-chan struct{} { return s.scanned }

// Run reads the directories again and again.
func (s *Pods) Run(ctx context.Context, poked <-chan struct{}) error {
	for {
		s.scan()
		select {
		case <-ctx.Done():
			return nil
		case <-poked:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(writeTime):
			}
		case <-time.After(ScanEvery):
		}
	}
}

// ReadFirst reads the files for the first time. Before that the static pods are not known, and nobody may take that
// for "there are none".
func (s *Pods) ReadFirst() {
	s.scan()
	close(s.scanned)
}

// Poke has the pods looked at again.
func (s *Pods) Poke() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// scan reads every file and decides which pods there are to be.
func (s *Pods) scan() {
	if len(s.dirs) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	present := map[string]bool{}
	for _, dir := range s.dirs {
		entries, err := os.ReadDir(dir.Path)
		if err != nil {
			// Nothing is stopped because a directory cannot be read; one that is not there holds nothing.
			if !errors.Is(err, fs.ErrNotExist) {
				slog.Warn("cannot read the directory of static pods; those that run stay", "dir", dir.Path, "err", err)
				for path := range s.files {
					present[path] = present[path] || filepath.Dir(path) == filepath.Clean(dir.Path)
				}
			}
			continue
		}
		for _, e := range entries {
			if !e.IsDir() && manifestName(e.Name(), !dir.Mixed) {
				path := filepath.Join(dir.Path, e.Name())
				present[path] = true
				s.read(path, dir.Mixed)
			}
		}
	}
	for path := range s.files {
		if !present[path] {
			delete(s.files, path)
			_ = os.Remove(s.copyOf(path))
		}
	}
	s.merge()
}

// read takes the good documents of a file. While one document is bad, every earlier pod of the file stays unless a
// good document replaces it, since nobody can tell which pod the bad document means.
func (s *Pods) read(path string, mixed bool) {
	data, err := readManifest(path)
	f := s.files[path]
	if err == nil && f != nil && f.bad == "" && string(f.data) == string(data) {
		return
	}
	var pods []*corev1.Pod
	if err == nil {
		if pods, err = parse(path, data, s.node, mixed); err != nil {
			err = errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	if f == nil {
		f = &file{}
		s.files[path] = f
		if err != nil { // it was good once, before this process
			if old, oerr := os.ReadFile(s.copyOf(path)); oerr == nil {
				f.pods, _ = parse(path, old, s.node, mixed)
			}
		}
	}
	if err != nil {
		before := besides(f.pods, pods)
		f.pods = append(pods, before...)
		if text := err.Error(); f.bad != text {
			f.bad = text
			s.tell(fmt.Sprintf("Static pod file %s is refused, %s: %s", path, whatRuns(len(pods), len(before)), text))
		}
		return
	}
	f.data, f.pods, f.bad = data, pods, ""
	if len(pods) == 0 {
		_ = os.Remove(s.copyOf(path)) // else what was there once would come back, should the file break
		return
	}
	if err := keepCopy(s.copyOf(path), data); err != nil {
		slog.Warn("the copy of a static pod's file cannot be kept; should the file break, its pod ends at the next boot", "file", path, "err",
			err)
	}
}

// besides are those of old that no one of now has the name of.
func besides(old, now []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(old), func(p *corev1.Pod) bool {
		return slices.ContainsFunc(now, func(n *corev1.Pod) bool { return api.Key(n) == api.Key(p) })
	})
}

// whatRuns says it of a file that is wrong.
func whatRuns(good, before int) string {
	switch {
	case good == 0 && before == 0:
		return "it is not run"
	case good == 0:
		return "what was there before runs on"
	case before == 0:
		return "but for what is right in it"
	}
	return "but for what is right in it, and what was there before runs on"
}

func (s *Pods) tell(message string) {
	slog.Warn("static pod refused", "why", message)
	if s.complain != nil {
		s.complain("FailedStaticPod", message)
	}
}

func readManifest(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxManifest {
		return nil, fmt.Errorf("it is no regular file of at most %d bytes", maxManifest)
	}
	return os.ReadFile(path)
}

// copyOf is where the last good content of a file is kept.
func (s *Pods) copyOf(path string) string {
	return filepath.Join(s.keep, strings.ReplaceAll(strings.ReplaceAll(path, "%", "%25"), "/", "%2f"))
}

// keepCopy replaces a file for good; the same content is not written again.
func keepCopy(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return durable.Replace(path, data, 0o600)
}

// merge makes the set of pods that the files ask for. Of two with one name the first file's is taken.
func (s *Pods) merge() {
	var paths []string
	for path := range s.files {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	next, names := map[types.UID]*corev1.Pod{}, map[string]string{}
	for _, path := range paths {
		f := s.files[path]
		dup := ""
		for _, p := range f.pods {
			if other, taken := names[api.Key(p).String()]; taken || next[p.UID] != nil {
				dup = "the name or uid of its pod is that of " + other
				continue
			}
			names[api.Key(p).String()] = path
			if have := s.pods[p.UID]; have != nil {
				next[p.UID] = have
				continue
			}
			next[p.UID] = s.begin(p)
		}
		if dup != "" && dup != f.dup {
			s.tell(fmt.Sprintf("Static pod file %s is refused: %s", path, dup))
		}
		f.dup = dup
	}
	same := len(next) == len(s.pods)
	for uid := range next {
		same = same && s.pods[uid] != nil
	}
	for uid := range s.pods {
		if next[uid] == nil {
			_ = os.Remove(s.statusFile(uid))
		}
	}
	s.pods = next
	if !same {
		s.Poke()
	}
}

// begin gives a pod its first status: that which it had, should this be the same boot.
func (s *Pods) begin(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	now := metav1.Now().Rfc3339Copy()
	p.CreationTimestamp = now
	p.Annotations[annotationSeen] = now.Format(time.RFC3339Nano)
	if data, err := os.ReadFile(s.statusFile(p.UID)); err == nil {
		var kept corev1.Pod
		if json.Unmarshal(data, &kept) == nil && kept.UID == p.UID {
			p.CreationTimestamp = kept.CreationTimestamp
			// One that a stop of this board ended comes back.
			if kept.Status.Phase != corev1.PodFailed || !poweredOff(kept.Status.Reason) {
				p.Status = kept.Status
			}
			p.Annotations[annotationSeen] = kept.Annotations[annotationSeen]
		}
	}
	s.number(p)
	return p
}

func (s *Pods) number(p *corev1.Pod) {
	s.seq++
	p.ResourceVersion = strconv.Itoa(s.seq)
}

func (s *Pods) statusFile(uid types.UID) string {
	return filepath.Join(s.statuses, string(uid)+".json")
}

// List is what there is to be.
func (s *Pods) List() []*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*corev1.Pod
	for _, p := range s.pods {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int { return strings.Compare(api.Key(a).String(), api.Key(b).String()) })
	return out
}

// Named finds a static pod by the name its mirror has; nil if there is none.
func (s *Pods) Named(namespace, name string) *corev1.Pod {
	for _, p := range s.List() {
		if p.Namespace == namespace && p.Name == name {
			return p
		}
	}
	return nil
}

// UpdateStatus keeps the status of a pod until the board's next boot.
func (s *Pods) UpdateStatus(_ context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.pods[pod.UID]
	if have == nil { // its file is gone: it is being stopped, and nobody looks
		out := pod.DeepCopy()
		s.number(out)
		return out, nil
	}
	out := have.DeepCopy()
	out.Status = *pod.Status.DeepCopy()
	s.number(out)
	s.pods[pod.UID] = out
	data, err := json.Marshal(out)
	if err == nil {
		if err = os.MkdirAll(s.statuses, 0o700); err == nil {
			err = durable.Volatile.Replace(s.statusFile(pod.UID), data, 0o600)
		}
	}
	if err != nil {
		slog.Warn("the status of a static pod cannot be kept; a restart of this process begins it anew", "pod", api.Key(pod), "err", err)
	}
	s.Poke()
	return out, nil
}

// Get is Named, with the error an API would give.
func (s *Pods) Get(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	if p := s.Named(namespace, name); p != nil {
		return p, nil
	}
	return nil, apierrors.NewNotFound(api.Pods.GR(), name)
}

// Delete has nothing to do: a static pod that was to end has ended.
func (s *Pods) Delete(context.Context, *corev1.Pod) error { return nil }

// Restart begins a pod anew that ended with a shutdown which then did not happen.
func (s *Pods) Restart(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[uid]
	if p == nil {
		return
	}
	_ = os.Remove(s.statusFile(uid))
	p = p.DeepCopy()
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: p.Status.QOSClass}
	s.number(p)
	s.pods[uid] = p
	s.Poke()
}
