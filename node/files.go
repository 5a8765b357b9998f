package node

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/node/podlog"
	"ledge/runtime"
)

// writePodFiles makes the pod's /etc/hosts, /etc/hostname and /etc/resolv.conf. They are written in place, so
// that a bind mount of them that exists already sees the change. The notes are for the pod's owner.
func (h *hands) writePodFiles(pod *corev1.Pod, ips []string) (notes []string, err error) {
	resolv, err := readIfThere(h.a.cfg.ResolvConf)
	if err != nil {
		return nil, fmt.Errorf("read resolver configuration: %w", err)
	}
	board, hosts := h.a.board(), ""
	if board.OnHostNetwork(pod) {
		if hosts, err = readIfThere(cmp.Or(h.a.cfg.HostsFile, "/etc/hosts")); err != nil {
			return nil, fmt.Errorf("read hosts file: %w", err)
		}
	}
	texts, notes, err := board.Files(pod, ips, hosts, resolv)
	if err != nil {
		return nil, err
	}
	dir, err := h.a.volumes.MakeFiles(string(pod.UID), h.a.cfg.OwnFiles)
	if err == nil {
		err = os.MkdirAll(h.a.podRunDir(string(pod.UID)), 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("make pod files: %w", err)
	}
	if !board.OnHostNetwork(pod) {
		h.a.searches.note(pod.UID, ips, board.Searches(pod, resolv))
	}
	for name, text := range texts {
		path := filepath.Join(dir, name)
		if was, err := os.ReadFile(path); err == nil && string(was) == text {
			continue // a pod may have left no room to write it again
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("make pod file: %w", err)
		}
	}
	return notes, nil
}

func readIfThere(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return string(data), nil
}

// messageFile is where a container writes its termination message.
func (h *hands) messageFile(uid, id string) string {
	return filepath.Join(h.a.volumes.FilesOf(uid), "messages", id)
}

// keptMessage is where what counts of it is kept when the place is taken down, and where earlier versions had it.
func (h *hands) keptMessage(uid, id string) string {
	return filepath.Join(h.a.podRunDir(uid), "messages", id)
}

func (h *hands) dropMessage(uid, id string) error {
	return errors.Join(os.RemoveAll(h.messageFile(uid, id)), os.RemoveAll(h.keptMessage(uid, id)))
}

// keepMessages keeps the messages of containers that have ended, for a brain that starts after the place is gone.
func (w *worker) keepMessages() {
	for _, s := range w.seen.Containers {
		text := head(w.a.hands.messageFile(s.PodUID, s.ID), maxMessage)
		if text == "" {
			continue
		}
		path := w.a.hands.keptMessage(s.PodUID, s.ID)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			slog.Warn("a termination message is not kept", "container", s.ID, "err", err)
		}
	}
}

// makeMessageFile gives a container somewhere to write its termination message.
func (h *hands) makeMessageFile(uid, id string) (string, error) {
	file := h.messageFile(uid, id)
	if err := os.MkdirAll(filepath.Dir(file), 0o711); err != nil {
		return "", fmt.Errorf("make termination message file: %w", err)
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDONLY, 0o666)
	if err != nil {
		return "", fmt.Errorf("make termination message file: %w", err)
	}
	defer f.Close()
	return file, f.Chmod(0o666) // any user in the container may write it
}

// The most of a termination message that is kept, and of a log that stands in for one.
const (
	maxMessage  = 4096
	maxFallback = 2048
)

// readMessages takes the termination messages of containers that have ended, once each.
func (w *worker) readMessages(pod *corev1.Pod) {
	for _, s := range w.seen.Containers {
		if _, have := w.seen.Messages[s.ID]; have || s.Phase != runtime.Exited {
			continue
		}
		w.seen.Messages[s.ID] = w.a.hands.message(pod, s)
	}
}

func (h *hands) message(pod *corev1.Pod, s runtime.Status) string {
	text := cmp.Or(head(h.messageFile(s.PodUID, s.ID), maxMessage), head(h.keptMessage(s.PodUID, s.ID), maxMessage))
	c := api.ContainerNamed(pod, s.Name)
	failed := s.Exit != nil && s.Exit.Code != 0
	if text == "" && failed && c != nil && c.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
		text = podlog.LastLines(s.LogPath, 80, maxFallback)
	}
	return strings.ToValidUTF8(text, "�")
}

func head(file string, most int64) string {
	f, err := os.Open(file)
	if err != nil {
		return "" // never started, or not written
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return ""
	}
	return string(data)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
