package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"ledge/api/board"
	"ledge/config"
	"ledge/upgrade"
	"ledge/upgrade/minisign"
)

type upgradeOpts struct {
	dataDir, keys, card            string
	rollback, status, older, leave bool
	within                         time.Duration
}

// keysName is a file of keys in the data directory, or on the boot partition: for boards whose /etc is part of an image.
const keysName = "upgrade.pub"

func upgradeFlags(c *Command) {
	o := &upgradeOpts{card: config.FirmwareDir}
	c.Flags.StringVar(&o.dataDir, "data-dir", "", dataDirUsage)
	c.Flags.StringVar(&o.keys, "keys", "/etc/ledge/"+keysName,
		"trusted public keys of minisign, one a line; those in "+keysName+" of the data directory, or on the boot partition, count too")
	c.Flags.BoolVar(&o.rollback, "rollback", false, "run the version before this one again, or end a trial")
	c.Flags.BoolVar(&o.status, "status", false, "show which versions there are, and how the last upgrade ended")
	c.Flags.BoolVar(&o.older, "allow-downgrade", false, "take a version that is older than what runs")
	c.Flags.BoolVar(&o.leave, "no-wait", false, "do not wait until the new version is well")
	c.Flags.DurationVar(&o.within, "within", upgrade.DefaultWithin, "how long each of its three starts may take to be well")
	c.Opts = o
}

// upgradeVerb changes the version that this board runs.
func upgradeVerb(ctx context.Context, c *Command) error {
	o := c.Opts.(*upgradeOpts)
	switch {
	case (o.rollback || o.status) != (len(c.args) == 0) || o.rollback && o.status || len(c.args) > 1:
		return config.Usagef("upgrade: name a FILE or a URL, or say --rollback or --status")
	case o.within < 10*time.Second:
		return config.Usagef("upgrade: --within %s is too short to tell anything", o.within)
	}
	var err error
	if o.dataDir, err = c.dataOf(o.dataDir); err != nil {
		return err
	}
	u := &upgrader{Command: c, opts: o, dir: upgrade.Open(o.dataDir)}
	if o.status {
		return u.status()
	}
	if _, err := os.Stat(o.dataDir); err != nil {
		return fmt.Errorf("there is no node's data: %w", err)
	}
	release, err := u.dir.Hold()
	if err != nil {
		return err
	}
	s, name, err := u.choose(ctx)
	if err = errors.Join(err, release()); err != nil {
		return err
	}
	return u.start(ctx, s, name)
}

// upgrader is one upgrade.
type upgrader struct {
	*Command
	opts *upgradeOpts
	dir  *upgrade.Dir
}

// choose puts a version on trial, or calls a trial off.
func (u *upgrader) choose(ctx context.Context) (s upgrade.State, name string, err error) {
	if u.opts.rollback {
		s, err = u.dir.Change(func(s upgrade.State) (upgrade.State, error) {
			s, err := u.known(s).Rollback(u.opts.within)
			return s, err
		})
	} else {
		s, err = u.take(ctx, u.args[0])
	}
	if s.Pending != nil {
		return s, s.Pending.Name, err
	}
	return s, s.Running(), err
}

// known completes the state of a board that is upgraded for the first time.
func (u *upgrader) known(s upgrade.State) upgrade.State {
	if exe, err := os.Executable(); err == nil && u.dir.Self(exe) == upgrade.Base && s.Base == (upgrade.Stamp{}) {
		s.Base = u.app.Build.Stamp()
	}
	return s
}

// take fetches a program, and trusts it step by step: it is run last.
func (u *upgrader) take(ctx context.Context, from string) (s upgrade.State, err error) {
	keys, err := u.keys()
	if err != nil {
		return s, err
	}
	src := open
	if strings.HasPrefix(from, "https://") || strings.HasPrefix(from, "http://") {
		src = fetch
	}
	sig, err := readSignature(ctx, src, from+".minisig")
	if err != nil {
		return s, err
	}
	staged, digest, err := u.stage(ctx, src, from)
	if err != nil {
		return s, err
	}
	key, err := sig.Verify(keys, digest)
	if err != nil {
		return s, fmt.Errorf("%s is not trusted: %w", from, err)
	}
	if !strings.HasPrefix(sig.Word("file"), "ledge") {
		return s, fmt.Errorf("%s is not a ledge: it was signed as %q", from, sig.Comment)
	}
	if err := sameMachine(staged); err != nil {
		return s, fmt.Errorf("%s: %w", from, err)
	}
	v, err := askVersion(ctx, staged)
	if err != nil {
		return s, fmt.Errorf("%s does not run here: %w", from, err)
	}
	if said := sig.Word("version"); said != "" && said != v.Version {
		return s, fmt.Errorf("%s was signed as %s and is %s", from, said, v.Version)
	}
	say(u.out, "%s (%s), signed by %s\n", v.Version, v.BuildTime, key)
	name := upgrade.Name(v.Version, digest[:])
	return u.dir.Adopt(name, func(s upgrade.State) (upgrade.State, error) {
		s, err := u.known(s).Begin(name, upgrade.Stamp{Version: v.Version, Built: v.BuildTime, Store: v.Store}, u.opts.within, u.opts.older)
		if errors.Is(err, upgrade.ErrOlder) {
			err = fmt.Errorf("%w: --allow-downgrade takes it all the same", err)
		}
		return s, err
	})
}

// keys are the public keys that this board trusts.
func (u *upgrader) keys() (keys []minisign.Key, err error) {
	for _, file := range []string{u.opts.keys, filepath.Join(u.opts.dataDir, keysName), filepath.Join(u.opts.card, keysName)} {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		more, err := minisign.ParseKeys(bytes.TrimPrefix(text, []byte("\ufeff"))) // maybe a laptop's editor wrote it
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		keys = append(keys, more...)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("no key is trusted on this board: put the public key of who signs (a line of minisign that begins with RW) into %s", u.opts.keys)
	}
	return keys, nil
}

// source opens a file here or elsewhere; size is -1 when it is not known.
type source func(ctx context.Context, from string) (r io.ReadCloser, size int64, err error)

func open(_ context.Context, file string) (io.ReadCloser, int64, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", file)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, st.Size(), nil
}

// stall is how long a server may say nothing.
const stall = time.Minute

// fetch needs no TLS: the signature decides.
func fetch(ctx context.Context, url string) (io.ReadCloser, int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(stall, func() { cancel(fmt.Errorf("%s: nothing came for %s", url, stall)) })
	b := &body{ctx: ctx, cancel: cancel, timer: timer}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, errors.Join(err, b.Close())
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, 0, errors.Join(err, b.Close())
	}
	b.ReadCloser = resp.Body
	if resp.StatusCode != http.StatusOK {
		return nil, 0, errors.Join(fmt.Errorf("%s: the server answers %s", url, resp.Status), b.Close())
	}
	return b, resp.ContentLength, nil
}

// body is what a server sends, as long as it does.
type body struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.timer.Reset(stall)
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(b.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

func (b *body) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	if b.ReadCloser == nil {
		return nil
	}
	return b.ReadCloser.Close()
}

func readSignature(ctx context.Context, src source, from string) (*minisign.Signature, error) {
	r, _, err := src(ctx, from)
	if err != nil {
		return nil, fmt.Errorf("an upgrade has to be signed: %w", err)
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, minisign.SizeLimit+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	sig, err := minisign.ParseSignature(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return sig, nil
}

const (
	// programLimit bounds what is fetched; three times what ledge has.
	programLimit = 96 << 20
	// spare is the space that an upgrade leaves free on the disk, for the store.
	spare = 16 << 20
)

// stage copies the program to where it is to be run.
func (u *upgrader) stage(ctx context.Context, src source, from string) (path string, digest [64]byte, err error) {
	r, size, err := src(ctx, from)
	if err != nil {
		return "", digest, err
	}
	defer r.Close()
	if size > programLimit {
		return "", digest, fmt.Errorf("%s is no ledge: it has %d MB", from, size>>20)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(u.dir.Path(), &disk); err != nil {
		return "", digest, err
	}
	if free := int64(disk.Bavail) * int64(disk.Bsize); free < max(size, 0)+spare {
		return "", digest, fmt.Errorf("there is no room for an upgrade below %s: %d MB are free, %d MB are needed", u.opts.dataDir, free>>20,
			(max(size, 0)+spare)>>20)
	}
	d := minisign.NewDigest()
	path, err = u.dir.Stage(io.TeeReader(io.LimitReader(r, programLimit), d))
	if err != nil {
		return "", digest, fmt.Errorf("%s: %w", from, err)
	}
	return path, d.Sum(), nil
}

// sameMachine refuses a program for another kind of machine than this one is for.
func sameMachine(path string) error {
	own, err := machineOf("/proc/self/exe")
	if err != nil {
		return err
	}
	other, err := machineOf(path)
	if err != nil {
		return err
	}
	if own != other {
		return fmt.Errorf("it is for %s, and this board runs %s", other, own)
	}
	return nil
}

// machineOf reads the head of a program.
func machineOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var head [20]byte
	if _, err := io.ReadFull(f, head[:]); err != nil || string(head[:4]) != "\x7fELF" {
		return "", errors.New("it is no program for Linux")
	}
	machine := uint16(head[18]) | uint16(head[19])<<8 // all that ledge is built for is little-endian
	if name := map[uint16]string{0x3e: "amd64", 0xb7: "arm64", 0x28: "arm"}[machine]; name != "" {
		return name, nil
	}
	return fmt.Sprintf("machine %d", machine), nil
}

// askVersion runs a program that is trusted.
func askVersion(ctx context.Context, path string) (v Versions, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "version", "-o", "json")
	cmd.Env = []string{upgrade.LaunchNot + "=no"}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	switch {
	case errors.Is(err, unix.EACCES):
		return v, fmt.Errorf("nothing may be run from %s; is it mounted noexec?", filepath.Dir(path))
	case err != nil:
		return v, fmt.Errorf("%w %s", err, strings.TrimSpace(said.String()))
	}
	if err := json.Unmarshal(out, &v); err != nil || v.Version == "" {
		return v, errors.New("it does not say its version")
	}
	return v, nil
}

// start has the node start anew, and tells what comes of it.
func (u *upgrader) start(ctx context.Context, s upgrade.State, name string) error {
	if u.reachable() != nil {
		_, err := say(u.out, "no node runs on %s; its next start is of %s\n", u.RunDir, s.Tell(name))
		return err
	}
	resp, err := u.Raw(ctx, http.MethodPost, board.UpgradePath, nil, "", nil)
	if err != nil {
		return fmt.Errorf("%s is in place, and the node does not start anew: %w", s.Tell(name), err)
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	say(u.out, "the node starts anew as %s; the pods run on\n", s.Tell(name))
	if u.opts.leave || s.Pending == nil {
		return nil
	}
	return u.wait(ctx, name)
}

// restarts is what may lie between two starts of a trial.
const restarts = 2 * time.Minute

// wait shows the starts until the trial is over.
func (u *upgrader) wait(ctx context.Context, name string) error {
	limit := upgrade.MostTries * (u.opts.within + restarts)
	shown := 0
	for end := time.Now().Add(limit); time.Now().Before(end); {
		s, err := u.dir.Load()
		switch {
		case err != nil:
			return err
		case s.OnTrial(name):
			if s.Pending.Tries > shown {
				shown = s.Pending.Tries
				say(u.out, "start %d of %d\n", shown, upgrade.MostTries)
			}
		case s.Last == nil || s.Last.Name != name:
			return fmt.Errorf("another upgrade has taken the place of %s", s.Tell(name))
		case s.Last.Back != "":
			return errors.New(strings.TrimPrefix(upgradeLine(s), "upgrade: "))
		default:
			_, err := say(u.out, "%s is well and stays\n", s.Tell(name))
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s has not been started three times within %s: does anything start the node again? see 'ledge upgrade --status'", name,
		limit)
}

// status shows the versions.
func (u *upgrader) status() error {
	s, err := u.dir.Load()
	if err != nil {
		return err
	}
	s = u.known(s)
	w := tabwriter.NewWriter(u.out, 0, 8, 3, ' ', 0)
	row := func(what, name string) {
		st := s.Of(name)
		say(w, "%s\t%s\t%s\t%s\n", what, name, st.Version, st.Built)
	}
	fmt.Fprintln(w, "\tNAME\tVERSION\tBUILT")
	row("runs", s.Running())
	if s.Pending != nil {
		row("on trial", s.Pending.Name)
	}
	if s.Previous != "" {
		row("before", s.Previous)
	}
	if s.Running() != upgrade.Base && s.Previous != upgrade.Base {
		row("as installed", upgrade.Base)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if line := upgradeLine(s); line != "" {
		_, err = fmt.Fprintln(u.out, line)
	}
	return err
}
