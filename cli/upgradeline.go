package cli

import (
	"cmp"
	"fmt"

	"ledge/brain/place"
	"ledge/config"
	"ledge/upgrade"
)

// sayUpgrade is a line of status, when there is something to say.
func (c *Command) sayUpgrade() error {
	info, err := place.ReadInfo(c.RunDir)
	if err != nil {
		return err
	}
	s, err := upgrade.Open(cmp.Or(info.DataDir, config.DefaultDataDir)).Load()
	if err != nil {
		return err
	}
	if line := upgradeLine(s); line != "" {
		_, err = fmt.Fprintln(c.out, line)
	}
	return err
}

func upgradeLine(s upgrade.State) string {
	switch {
	case s.Pending != nil:
		line := fmt.Sprintf("upgrade: %s is on trial, start %d of %d", s.Tell(s.Pending.Name), s.Pending.Tries, upgrade.MostTries)
		if s.Pending.Wants != "" {
			line += "; the last one ended: " + s.Pending.Wants
		}
		return line
	case s.Last != nil && s.Last.Back != "":
		return fmt.Sprintf("upgrade: %s does not stay: %s; %s runs", s.Tell(s.Last.Name), s.Last.Why, s.Tell(s.Last.Back))
	}
	return ""
}
