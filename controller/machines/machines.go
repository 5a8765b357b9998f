// Package machines asks others whether the machine behind a node exists: a program, a URL or an inventory.
package machines

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"ledge/controller"
)

// New makes what --machine-lister names: a URL, or a program with its arguments.
func New(text string) (controller.Lister, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil, nil
	}
	if strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://") {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("%q is no URL", text)
		}
		return machinesByURL{u}, nil
	}
	path, err := exec.LookPath(words[0])
	if err != nil {
		return nil, err
	}
	return machinesByProgram(append([]string{path}, words[1:]...)), nil
}

// longestAnswer is more than a word needs.
const longestAnswer = 1 << 10

// machinesByProgram asks by running it with the node's name and provider ID behind its own arguments. It prints exists,
// shutdown or gone. There is no shell in between.
type machinesByProgram []string

// Machine implements controller.Lister.
func (p machinesByProgram) Machine(ctx context.Context, node, providerID string) (controller.Machine, error) {
	cmd := exec.CommandContext(ctx, p[0], append(p[1:len(p):len(p)], node, providerID)...)
	var out, wrong bytes.Buffer
	cmd.Stdout, cmd.Stderr = &capped{to: &out}, &capped{to: &wrong}
	// Its time is that of what it has started too: a script waits for a curl that hangs.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrWaitDelay): // it has ended well, and what it has left behind holds its output
		_ = killGroup(cmd)
		err = nil
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("no answer in time: %w", ctx.Err())
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", p[0], err, strings.TrimSpace(wrong.String()))
	}
	return controller.ParseMachine(strings.TrimSpace(out.String()))
}

func killGroup(cmd *exec.Cmd) error {
	if err := unix.Kill(-cmd.Process.Pid, unix.SIGKILL); !errors.Is(err, unix.ESRCH) {
		return err
	}
	return os.ErrProcessDone // as exec wants to hear it
}

// capped keeps the beginning.
type capped struct{ to *bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	c.to.Write(p[:min(len(p), max(longestAnswer-c.to.Len(), 0))])
	return len(p), nil
}

// machinesByURL asks with GET ?node=NAME&providerID=ID; the answer's body is the word.
type machinesByURL struct{ base *url.URL }

// Machine implements controller.Lister.
func (m machinesByURL) Machine(ctx context.Context, node, providerID string) (controller.Machine, error) {
	u := *m.base
	q := u.Query()
	q.Set("node", node)
	q.Set("providerID", providerID)
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, longestAnswer))
	if err != nil {
		return "", fmt.Errorf("read the answer of %s: %w", m.base.Redacted(), err)
	}
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers %s", m.base.Redacted(), res.Status)
	}
	return controller.ParseMachine(strings.TrimSpace(string(body)))
}

// Machine is one line of an inventory.
type Machine struct {
	Name       string             `json:"name"`
	ProviderID string             `json:"providerID,omitempty"`
	State      controller.Machine `json:"state,omitempty"`
}

// ReadInventory reads a list of machines. An empty one is a mistake: believed, it would delete every node.
func ReadInventory(path string) ([]Machine, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []Machine
	if err := yaml.UnmarshalStrict(data, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no machines: write a list of {name: ..., state: exists or shutdown}", path)
	}
	seen := map[string]bool{}
	for i := range list {
		m := &list[i]
		if m.State == "" {
			m.State = controller.MachineExists
		}
		if _, err := controller.ParseMachine(string(m.State)); err != nil || m.Name == "" || seen[m.Name] {
			return nil, fmt.Errorf("%s: machine %d (%q): %w", path, i+1, m.Name, errors.Join(err, errors.New("each needs a name of its own")))
		}
		seen[m.Name] = true
	}
	return list, nil
}
