// Package card writes what a board has to say into a file on its boot partition: people read that with a laptop when the board's
// network does not work.
package card

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"ledge/config"
	"ledge/firstboot"
	"ledge/host"
)

// FileName is the file on the boot partition that people look for.
const FileName = "ledge-errors.txt"

// Lines about what the brain found wrong later begin with these words; all others are about the files of the boot partition.
const (
	linkWords    = " has no effect yet: "
	JoinWords    = ": this board has not joined: "
	ArchiveWords = ": is not imported: "
)

// kindOf sorts the lines of that file: 0 is what is wrong with the files.
func kindOf(line string) int {
	return 1 + slices.IndexFunc([]string{linkWords, JoinWords, ArchiveWords}, func(words string) bool { return strings.Contains(line, words) })
}

var telling sync.Mutex

// Tell replaces the lines of one kind in that file, and removes the file when no line is left. Lines of other kinds stay until their
// writer knows better: otherwise a card with a broken archive, or with a useless token, would be written twice at every boot.
func Tell(boot, words string, lines []string) error {
	telling.Lock()
	defer telling.Unlock()
	old, _ := os.ReadFile(filepath.Join(boot, FileName))
	lines = append(lines, slices.DeleteFunc(firstboot.Reported(old), func(line string) bool { return kindOf(line) == kindOf(words) })...)
	slices.SortStableFunc(lines, func(a, b string) int { return kindOf(a) - kindOf(b) })
	if err := host.TellOnCard(boot, FileName, firstboot.Report(lines)); err != nil {
		return fmt.Errorf("write %s: %w", FileName, err)
	}
	return nil
}

// Places are the lines of ledge.yaml with keys that may turn out later to have no effect.
type Places struct {
	Join  firstboot.Mistake
	Links []Link
}

// Link is a network that the file asks for.
type Link struct {
	firstboot.Mistake        // its place, and what is asked for
	Name              string // of the interface; empty: any wired one
	Radio             bool
}

// missing says what is wrong with it; empty: nothing.
func (l Link) missing(sys string) string {
	has := func(what ...string) bool {
		_, err := os.Stat(filepath.Join(append([]string{sys, l.Name}, what...)...))
		return err == nil
	}
	switch {
	case l.Radio && !has("wireless") && !has("phy80211"):
		return "there is no radio, or no driver for it"
	case l.Radio:
		// A radio is up when it is in its network.
		if state, err := os.ReadFile(filepath.Join(sys, l.Name, "operstate")); err == nil && strings.TrimSpace(string(state)) == "up" {
			return ""
		}
		return "that network is out of reach, or has another name or password"
	case l.Name != "" && has():
		return ""
	}
	first, err := host.FirstWired(sys)
	switch {
	case err != nil:
		return "there is no wired interface"
	case l.Name != "":
		return fmt.Sprintf("there is no interface %s, but %s", l.Name, first)
	}
	return ""
}

// Board is the boot partition as a brain knows it.
type Board struct{ State string } // what the setup has left for the brain; "": there is no boot partition of ours

// LinkPatience is how long a network may take to come up: loading a driver and joining by radio take time.
const LinkPatience = 2 * time.Minute

// Places reads what the setup has left for the brain; boot is empty where there is no boot partition of ours.
func (b Board) Places() (boot string, places Places, err error) {
	where, err := os.ReadFile(filepath.Join(b.State, config.BootWhereFile))
	if err != nil || b.State == "" {
		return "", places, nil
	}
	text, err := os.ReadFile(filepath.Join(b.State, config.BootPlacesFile))
	if err == nil {
		err = json.Unmarshal(text, &places)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return string(where), places, err
}

// Tell does that for this board. A card that cannot be written is logged, which is all that can be done.
func (b Board) Tell(boot, words string, lines ...string) {
	if boot == "" {
		return
	}
	if err := Tell(boot, words, lines); err != nil {
		slog.Warn("the boot partition does not say what is wrong", "what", lines, "err", err)
	}
}

// TellJoin writes on the boot partition why the board has not joined: it has no other way to tell. When it has joined, why is nil, and
// the lines are removed.
func (b Board) TellJoin(why error) {
	boot, places, err := b.Places()
	if err != nil {
		slog.Warn("what was made of the boot partition cannot be read", "err", err)
	}
	if why == nil {
		b.Tell(boot, JoinWords)
		return
	}
	m := firstboot.Mistake{File: cmp.Or(places.Join.File, "ledge.yaml"), Line: places.Join.Line,
		What: strings.TrimPrefix(JoinWords, ": ") + firstboot.OneLine(why)}
	b.Tell(boot, JoinWords, m.String())
}

// WatchLinks writes on the boot partition which networks of ledge.yaml are not up, and removes that when they are: a board without
// a network has no other way to tell.
func (b Board) WatchLinks(ctx context.Context, sys string) {
	boot, places, err := b.Places()
	if err != nil || boot == "" {
		return // TellJoin says why
	}
	told := []string{"at the last boot"}
	for began := time.Now(); ; {
		var bad []string
		for _, l := range places.Links {
			if why := l.missing(sys); why != "" {
				m := l.Mistake
				m.What += linkWords + why
				bad = append(bad, m.String())
			}
		}
		if !slices.Equal(bad, told) && (len(bad) == 0 || time.Since(began) >= LinkPatience) {
			for _, line := range bad {
				slog.Error("a mistake on the boot partition", "what", line)
			}
			b.Tell(boot, linkWords, bad...)
			told = bad
		}
		if len(bad) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Second):
		}
	}
}
