package cli

import (
	"context"
	"fmt"
	"strings"

	"ledge/config"
	"ledge/controller"
	"ledge/controller/machines"
)

// machinesVerb is the lister that comes with ledge: it answers from a file.
func machinesVerb(_ context.Context, c *Command) error {
	if len(c.args) < 1 || len(c.args) > 3 {
		return config.Usagef("machines FILE [NODE [PROVIDERID]]")
	}
	list, err := machines.ReadInventory(c.args[0])
	if err != nil {
		return err
	}
	if len(c.args) == 1 {
		for _, m := range list {
			if _, err := say(c.out, "%s %s\n", m.Name, m.State); err != nil {
				return err
			}
		}
		return nil
	}
	state, providerID := controller.MachineGone, strings.Join(c.args[2:], "")
	for _, m := range list {
		// A machine of another identity under the same name is another machine.
		if m.Name == c.args[1] && (m.ProviderID == "" || providerID == "" || m.ProviderID == providerID) {
			state = m.State
		}
	}
	_, err = fmt.Fprintln(c.out, state)
	return err
}
