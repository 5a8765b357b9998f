package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// placeKeys say where the control plane of a board is, so that one unit and one file do for boards of both kinds.
type placeKeys struct {
	Server    string  `json:"server,omitempty"`
	TokenFile string  `json:"tokenFile,omitempty"`
	Listen    *string `json:"listen,omitempty"`
	Port      *int    `json:"port,omitempty"`
}

func (k placeKeys) check() error {
	for _, url := range splitList(k.Server) {
		if err := checkServer(url); err != nil {
			return fmt.Errorf("server: %w", err)
		}
	}
	switch {
	case k.Listen != nil && k.Server != "":
		return errors.New("listen is for a control plane, and server says that it is elsewhere: remove one of the two")
	case k.Port != nil && (*k.Port < 0 || *k.Port > 65535):
		return fmt.Errorf("port: %d is no port", *k.Port)
	case k.Listen == nil || *k.Listen == "":
		return nil
	}
	if err := checkListen(*k.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return nil
}

func checkListen(at string) error {
	_, port, err := net.SplitHostPort(at)
	if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil {
		return fmt.Errorf("%q is no address and port such as 0.0.0.0:6443", at)
	}
	return nil
}

// tokenPath is where the token to join with lies: beside the configuration, unless that says otherwise.
func tokenPath(config, given string) string {
	return firstNonEmpty(given, filepath.Join(filepath.Dir(config), "token"))
}

// place settles where the control plane is, and how it is reached. Flags beat the file.
func (s *settings) place(c *command) error {
	o, k := s.serveOpts, s.file.placeKeys
	if !o.joins && k.Server == "" {
		if k.Listen != nil && !o.set["listen"] {
			o.listen = *k.Listen
		}
		return s.checkPlane()
	}
	if !o.joins {
		if err := onlyBoardFlags(c); err != nil {
			return fmt.Errorf("%w, and the configuration says that this board's is at %s", err, k.Server)
		}
		o.joins, o.doorPort = true, doorPort
	}
	if k.Port != nil && !o.set["port"] {
		o.doorPort = *k.Port
	}
	if o.kubeconfig == "" {
		if len(o.servers) == 0 {
			o.servers = splitList(k.Server)
		}
		if err := o.readToken(k.TokenFile); err != nil {
			return err
		}
	}
	return s.where()
}

// onlyBoardFlags refuses what only a control plane knows.
func onlyBoardFlags(c *command) (err error) {
	board := command{flags: flag.NewFlagSet("", flag.ContinueOnError)}
	boardFlags(&board)
	c.flags.Visit(func(f *flag.Flag) {
		if board.flags.Lookup(f.Name) == nil {
			err = usagef("--%s is for a control plane", f.Name)
		}
	})
	return err
}

// readToken finds the token in its file, unless a flag has it. All of the line that 'ledge token create' prints may stand in either.
func (o *serveOpts) readToken(given string) error {
	if o.token != "" {
		o.token = lastWord(o.token)
		return nil
	}
	path := tokenPath(o.config, given)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is needed once
	}
	if err != nil {
		return fmt.Errorf("read the token: %w", err)
	}
	if token := lastWord(string(data)); token != "" {
		o.token, o.tokenFile = token, path
	}
	return nil
}

func lastWord(text string) string {
	words := strings.Fields(text)
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}

// wipe overwrites a file before it removes it. A card may keep the old blocks for a while all the same.
func wipe(path string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.Write(make([]byte, info.Size()))
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), os.Remove(path))
}
