package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
	"time"

	"ledge/network"
	"ledge/network/netns"
)

const (
	patience  = time.Minute      // for one plugin
	hasty     = 10 * time.Second // for all plugins of a pod, where others wait
	quick     = 5 * time.Second  // for what they say of themselves
	maxAnswer = 1 << 20          // bytes of what it answers
	maxSaid   = 4 << 10          // bytes of what it says of its troubles
	maxTold   = 500              // bytes of it that are passed on
	podLink   = "eth0"
)

// call is one run of one plugin.
type call struct {
	command string
	id      string // of the attachment; "": it is of the network
	netns   string // "": it is gone
	args    string
}

// bounded takes so many bytes, and tells whether there were more.
type bounded struct {
	got  []byte
	most int
	more bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := min(len(p), b.most-len(b.got))
	b.got, b.more = append(b.got, p[:room]...), b.more || room < len(p)
	return len(p), nil
}

// run runs a plugin and gives what it answers. One that takes too long is killed, with all that it has started.
func (s *Setup) run(ctx context.Context, kind string, c call, request []byte) ([]byte, error) {
	fail := func(err error) ([]byte, error) { return nil, fmt.Errorf("plugin %s: %s: %w", kind, c.command, err) }
	program, err := s.find(kind)
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it did not end within %s", patience))
	defer cancel()
	out, said := bounded{most: maxAnswer}, bounded{most: maxSaid}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=" + c.command, "CNI_PATH=" + strings.Join(s.cfg.Programs, ":")}
	if c.id != "" {
		cmd.Env = append(cmd.Env, "CNI_CONTAINERID="+c.id, "CNI_IFNAME="+podLink, "CNI_NETNS="+c.netns, "CNI_ARGS="+c.args)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), &out, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err = netns.At(s.cfg.NetNS, func() error {
		goruntime.LockOSThread() // a plugin dies with the thread that started it: two of them at one pod would meet
		defer goruntime.UnlockOSThread()
		return cmd.Run()
	})
	if errors.Is(err, exec.ErrWaitDelay) { // it ended well, and something that it started holds its pipes
		err = nil
	}
	switch {
	case ctx.Err() != nil:
		return fail(context.Cause(ctx))
	case err != nil:
		return fail(trouble(err, out.got, string(said.got)))
	case out.more:
		return fail(fmt.Errorf("it answered more than %d bytes", maxAnswer))
	}
	return out.got, nil
}

// errNoProgram: a plugin is not installed, or not any more.
var errNoProgram = errors.New("there is no such program")

// find looks for a plugin's program.
func (s *Setup) find(kind string) (string, error) {
	for _, dir := range s.cfg.Programs {
		path := filepath.Join(dir, kind)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w in %s: install it, or the DaemonSet that brings it", errNoProgram, strings.Join(s.cfg.Programs, " or "))
}

// tryAgain is the code of a plugin that cannot do it now.
const tryAgain = 11

// trouble says what a plugin says of why it failed.
func trouble(err error, out []byte, said string) error {
	var answer struct {
		Code         int
		Msg, Details string
	}
	text := strings.TrimSpace(said)
	if json.Unmarshal(out, &answer) == nil && answer.Msg != "" {
		if text = answer.Msg; answer.Details != "" {
			text += ": " + answer.Details
		}
		if answer.Code == tryAgain {
			text += " (it may be tried again)"
		}
	}
	if text == "" {
		return err
	}
	if len(text) > maxTold {
		text = strings.ToValidUTF8(text[:maxTold], "") + "..."
	}
	if strings.Contains(text, "no IP addresses available") { // host-local, which most networks use, has no code for it
		return fmt.Errorf("%w: %s", network.ErrExhausted, text)
	}
	return errors.New(text)
}
