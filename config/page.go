package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"

	"ledge/internal/durable"
	"ledge/page/password"
)

// pageKeys are about the board's page.
type pageKeys struct {
	Page    Page  `json:"page,omitempty"`
	Console *bool `json:"console,omitempty"`
}

// ShowsConsole: the board's own screen, or its login, shows how it is.
func (k pageKeys) ShowsConsole() bool { return k.Console == nil || *k.Console }

// Page is where the board shows itself to people with a browser, and to whom. Without an address nobody sees anything.
type Page struct {
	Listen   string `json:"listen,omitempty"`
	Password string `json:"password,omitempty"` // as people type it, or as the first start leaves it in the file
	Acts     bool   `json:"acts,omitempty"`     // who is in may restart pods, and switch the board off
}

func (k pageKeys) check() error {
	p := k.Page
	switch {
	case p == Page{}:
		return nil
	case p.Listen == "":
		return errors.New("page.listen: say where, such as :443; without it there is no page")
	case p.Password == "":
		return errors.New("page.password: give one; nobody gets in without")
	}
	if err := checkListen(p.Listen); err != nil {
		return fmt.Errorf("page.listen: %w", err)
	}
	if err := password.Check(p.Password); err != nil {
		return fmt.Errorf("page.password: %w", err)
	}
	if _, port, _ := net.SplitHostPort(p.Listen); port == "0" {
		return errors.New("page.listen: say a port, such as :443")
	}
	return nil
}

// HidePasswords makes the password of the page unreadable in every file that this configuration was read from. What cannot be written is
// said: the page works, and whoever has the card can read its password.
func (o *Options) HidePasswords() {
	files, err := dropIns(o.configDir)
	if err != nil {
		files = nil // it has been said why, when they were read
	}
	for _, path := range slices.Concat([]string{o.Path}, files, BootFiles(o.BootState)) {
		if err := HidePassword(path); err != nil {
			slog.Warn("the password of the page can be read in a file of this board", "path", path, "err", err)
		}
	}
}

// HidePassword does that in one file; one that is not there has none.
func HidePassword(path string) error {
	path, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	hidden, err := password.Hide(data)
	if err != nil || hidden == nil {
		return err
	}
	mode := os.FileMode(0o600)
	if st, err := os.Stat(path); err == nil {
		mode = st.Mode().Perm()
	}
	return durable.Replace(path, hidden, mode)
}
