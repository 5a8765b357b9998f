package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// TestAtPIDLimit: when pods have taken the last process number that there is, for the brain and the keeper too, the API answers,
// takes writes and can end who took them; nothing that was acknowledged is lost, and others' pods run on. A cgroup above all of
// the board stands for the kernel's own limit: fork fails in the same way.
func TestAtPIDLimit(t *testing.T) {
	b := newBoard(t)
	top := "/sys/fs/cgroup/pids"
	if _, err := os.Stat(top); err != nil {
		top = "/sys/fs/cgroup" // version 2, where no process may stand in the board's group itself
	}
	group := filepath.Join(top, b.name)
	b.serve()
	b.importRough()
	b.apply(roughPod("innocent", `"run"`, ""))
	b.running("innocent")
	own := filepath.Join(group, "board")
	must(t, os.Mkdir(own, 0o755))
	stand := func(group string) {
		t.Helper()
		for _, pid := range []int{b.cmd.Process.Pid, b.keeperPID()} {
			if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), fmt.Append(nil, pid), 0); err != nil {
				t.Errorf("move a process: %v", err)
			}
		}
	}
	t.Cleanup(func() { // before the board ends, which looks for leftovers
		stand(top)
		if err := unix.Rmdir(own); err != nil {
			t.Errorf("remove %s: %v", own, err)
		}
	})
	stand(own)
	tasks := func() int {
		text, err := os.ReadFile(group + "/pids.current")
		must(t, err)
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		must(t, err)
		return n
	}
	most := tasks() + 150
	must(t, os.WriteFile(group+"/pids.max", fmt.Append(nil, most), 0))
	stop := b.answers()
	b.apply(roughPod("crowd", `"crowd"`, ""))
	wrote := 0
	write := func() {
		b.apply(fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\n", wrote))
		wrote++
	}
	b.eventually("the limit is reached", func() error {
		write()
		if n := tasks(); n < most {
			return fmt.Errorf("%d tasks of %d", n, most)
		}
		return nil
	})
	for range 20 {
		write()
	}
	if n := tasks(); n < most*9/10 { // places are free for a moment
		t.Errorf("%d tasks of %d: that is not the limit", n, most)
	}
	b.must("delete", "pod", "crowd")
	b.eventually("the crowd is gone", func() error {
		write()
		if pids := b.processes("/kubepods/"); len(pids) != 1 {
			return fmt.Errorf("there are still %d processes", len(pids))
		}
		return nil
	})
	n, longest := stop()
	var list corev1.ConfigMapList
	must(t, json.Unmarshal([]byte(b.must("get", "configmaps", "-o", "json")), &list))
	have := 0
	for _, c := range list.Items {
		if strings.HasPrefix(c.Name, "c") {
			have++
		}
	}
	if have != wrote {
		t.Errorf("%d of %d acknowledged objects are there", have, wrote)
	}
	b.unhurt("innocent")
	t.Logf("%d tasks at the most; %d writes, %d answers, the slowest in %v", most, wrote, n, longest)
}
