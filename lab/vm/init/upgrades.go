package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// watchUpgrades says which version the board runs once all is well, and then has it take the other one, again and again: in the
// middle of that the plug is pulled.
func watchUpgrades() {
	version, pods := awaitWell("")
	fmt.Println("@@version", version)
	fmt.Println("@@well", len(pods))
	for {
		if err := awaitTrial(); err != nil {
			fmt.Println("@@fault:", err)
			return
		}
		args := []string{"upgrade", "--rollback"}
		if !strings.HasPrefix(version, "v9") {
			args = []string{"upgrade", "--keys", "/upgrade/keys", "/upgrade/ledge"}
		}
		if out, err := ledge(args...); err != nil {
			fmt.Println("@@fault:", args, err, strings.ReplaceAll(out, "\n", " "))
			return
		}
		var now []string
		if version, now = awaitWell(version); !slices.Equal(pods, now) {
			fmt.Println("@@fault: other containers:", pods, now)
			return
		}
		fmt.Println("@@changed", version)
	}
}

// ledge runs one on the board, whose root this process does not have.
func ledge(args ...string) (string, error) {
	cmd := exec.Command("/ledge", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: "/proc/1/root"}
	cmd.Dir, cmd.Stdin = "/", os.Stdin // there is no /dev/null here
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// awaitTrial waits until no version is on trial: the boot may be one.
func awaitTrial() error {
	for {
		out, err := ledge("upgrade", "--status")
		if err != nil {
			return fmt.Errorf("upgrade --status: %w: %s", err, out)
		}
		if !strings.Contains(out, "on trial") {
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// awaitWell gives the version when it is another one, the node has said in this boot that it is Ready, and all pods run.
func awaitWell(other string) (version string, pods []string) {
	for said := 0; ; said++ {
		ids, err := containers()
		if err == nil {
			version, err = ready()
		}
		if err == nil && version != other && len(ids) == 2 {
			return version, ids
		}
		if said%100 == 99 {
			fmt.Println("@@waiting:", version, len(ids), err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// ready gives the version of a node that is Ready, and has said so since the machine started.
func ready() (version string, err error) {
	boot, err := os.ReadFile("/proc/1/root/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	var node struct {
		Status struct {
			NodeInfo   struct{ BootID, KubeletVersion string }
			Conditions []struct{ Type, Status string }
		}
	}
	if err := ask("/api/v1/nodes/board", &node); err != nil {
		return "", err
	}
	info := node.Status.NodeInfo
	if info.BootID != strings.TrimSpace(string(boot)) {
		return "", errors.New("the Node is as the boot before left it")
	}
	for _, c := range node.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" {
			if _, own, ok := strings.Cut(info.KubeletVersion, "+ledge."); ok {
				return "v" + own, nil
			}
			return "", fmt.Errorf("the Node's kubeletVersion is %s", info.KubeletVersion)
		}
	}
	return "", errors.New("the node is not Ready")
}
