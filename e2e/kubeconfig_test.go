package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ledge/brain"
	"ledge/config"
)

// TestKubeconfigOnCard: nobody can log in to a board whose process 1 is ledge. Its boot partition has a kubeconfig where ledge.yaml
// asks for one, which works from another machine, also after the board has got another address.
func TestKubeconfigOnCard(t *testing.T) {
	t.Parallel()
	needGo(t)
	card, state := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{config.BootWhereFile: card, config.BootKubeconfigFile: "asked for"} {
		must(t, os.WriteFile(filepath.Join(state, name), []byte(text), 0o600))
	}
	s := newShed(t, "", "--boot-state", state)
	laptop := s.board()
	k := newClient(t, "", "", "NODE="+s.plane.name)
	works := func(address string) {
		t.Helper()
		s.plane.eventually("kubectl works at "+address, func() error {
			data, err := os.ReadFile(filepath.Join(card, brain.KubeconfigName))
			if err != nil {
				return err
			}
			if err := contains(string(data), "https://"+address+":6443"); err != nil {
				return err
			}
			k.write("config", string(data))
			return k.try("nsenter --net=/run/netns/"+laptop.netns+" kubectl get nodes", s.plane.name)
		})
	}
	works(s.plane.address(1))
	ip(t, "-n", s.plane.netns, "addr", "del", s.plane.address(1)+"/24", "dev", "eth0")
	ip(t, "-n", s.plane.netns, "addr", "add", "10.99.0.77/24", "dev", "eth0")
	works("10.99.0.77")
}

// TestCertificateFollowsAddresses: whoever believes the CA gets to the API under every address that the board gets while it runs.
func TestCertificateFollowsAddresses(t *testing.T) {
	t.Parallel()
	s := newShed(t, "")
	ca := filepath.Join(s.plane.data, "pki", "ca.pem")
	answers := func(address string) error {
		out, err := exec.CommandContext(t.Context(), "nsenter", "--net=/run/netns/"+s.plane.netns, "curl", "-sS", "--max-time", "10",
			"--cacert", ca, fmt.Sprintf("https://%s:%d/version", address, shedPort)).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return contains(string(out), "gitVersion")
	}
	must(t, answers(s.plane.address(1)))
	ip(t, "-n", s.plane.netns, "addr", "add", "10.99.0.77/24", "dev", "eth0")
	ip(t, "-n", s.plane.netns, "addr", "add", "fd00:99::77/64", "dev", "eth0", "nodad")
	for _, address := range []string{"10.99.0.77", "[fd00:99::77]", s.plane.address(1), "127.0.0.1"} {
		s.plane.eventually("the certificate is good for "+address, func() error { return answers(address) })
	}
}
