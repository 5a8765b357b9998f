package cli

import (
	"context"

	"ledge/config"
	"ledge/storage"
)

// checkDB reads a whole store file. It is a process of its own because a damaged file can end the one that reads it.
func checkDB(_ context.Context, c *Command) error {
	if len(c.args) != 1 {
		return config.Usagef("check-db: name one file")
	}
	return storage.Check(c.args[0])
}
