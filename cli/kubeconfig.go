package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// kubeconfig prints what the serving process wrote for the administrator of this board.
func kubeconfig(_ context.Context, c *Command) error {
	data, err := os.ReadFile(filepath.Join(c.RunDir, "admin.kubeconfig"))
	if errors.Is(err, os.ErrNotExist) {
		if rerr := c.reachable(); rerr != nil {
			return rerr
		}
		return errors.New("this node has no TLS address: start it with --listen")
	}
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	_, err = c.out.Write(data)
	return err
}
