package config

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"ledge/host"
)

// A file may say what it is, as a kubelet's has to.
const (
	configVersion = "kubelet.config.k8s.io/v1beta1"
	configKind    = "KubeletConfiguration"
)

// checkNode checks what the file says of itself and of the Node.
func (c File) checkNode() error {
	if c.APIVersion != "" && c.APIVersion != configVersion {
		return fmt.Errorf("apiVersion: %q is not that of this file: say %s, or nothing", c.APIVersion, configVersion)
	}
	if c.Kind != "" && c.Kind != configKind {
		return fmt.Errorf("kind: %q is not what this file is: say %s, or nothing", c.Kind, configKind)
	}
	for _, n := range []struct {
		key      string
		is       int64
		zero, of string
	}{{"maxPods", c.MaxPods, "110", "pods"}, {"podsPerCore", c.PodsPerCore, "no such bound", "pods"},
		{"nodeLeaseDurationSeconds", int64(c.NodeLeaseDurationSeconds), "40", "seconds"}} {
		if n.is < 0 || n.is > math.MaxInt32 {
			return fmt.Errorf("%s: %d is no number of %s: say 1 to %d, or 0 for %s", n.key, n.is, n.of, math.MaxInt32, n.zero)
		}
	}
	if d := c.NodeStatusUpdateFrequency.Duration; d != 0 && d < time.Second {
		return fmt.Errorf("nodeStatusUpdateFrequency: %s is less than 1s, the least", d)
	}
	if d := c.NodeStatusReportFrequency.Duration; d < 0 {
		return fmt.Errorf("nodeStatusReportFrequency: %s is negative: say such as 5m, or 0s for the default", d)
	}
	if err := checkTaints(c.RegisterWithTaints); err != nil {
		return fmt.Errorf("registerWithTaints: %w", err)
	}
	return nil
}

// checkTaints says which of them the API would not take.
func checkTaints(list []corev1.Taint) error {
	for i, t := range list {
		text := t.ToString()
		switch {
		case t.Effect == "":
			return fmt.Errorf("taint %q has no effect: write key=value:NoSchedule, in a file {key: KEY, value: VALUE, effect: NoSchedule}", text)
		case !slices.Contains([]corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute},
			t.Effect):
			return fmt.Errorf("taint %q: the effect must be NoSchedule, PreferNoSchedule or NoExecute", text)
		}
		if msgs := append(validation.IsQualifiedName(t.Key), validation.IsValidLabelValue(t.Value)...); len(msgs) > 0 {
			return fmt.Errorf("taint %q: %s", text, strings.Join(msgs, "; "))
		}
		if slices.ContainsFunc(list[:i], func(o corev1.Taint) bool { return o.MatchTaint(&t) }) {
			return fmt.Errorf("taint %q is given twice", text)
		}
	}
	return nil
}

// checkReserved refuses to keep more from pods than there is (N-1.60). What cannot be read is not judged here: the agent looks again.
func (s *Settings) checkReserved(machine *host.Host) error {
	have := map[corev1.ResourceName]*resource.Quantity{corev1.ResourceCPU: resource.NewQuantity(int64(machine.CPUs()), resource.DecimalSI)}
	if m, err := machine.Memory(); err == nil {
		have[corev1.ResourceMemory] = resource.NewQuantity(m.Total, resource.BinarySI)
	}
	if most, _, err := machine.PIDs(); err == nil {
		have["pid"] = resource.NewQuantity(most, resource.DecimalSI)
	}
	dir, err := filepath.Abs(s.DataDir)
	if err != nil {
		return err
	}
	if disk, err := machine.Filesystem(host.Existing(dir)); err == nil {
		have[corev1.ResourceEphemeralStorage] = resource.NewQuantity(disk.Capacity, resource.BinarySI)
	}
	for _, name := range reservable {
		most, kube, system := have[corev1.ResourceName(name)], s.Status.KubeReserved[corev1.ResourceName(name)],
			s.Status.SysReserved[corev1.ResourceName(name)]
		sum := kube.DeepCopy()
		sum.Add(system)
		if most == nil || sum.Cmp(*most) <= 0 {
			continue
		}
		var keys []string
		for key, q := range map[string]resource.Quantity{"kubeReserved": kube, "systemReserved": system} {
			if !q.IsZero() {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		return fmt.Errorf("%s: %s: %s is more than there is, %s", strings.Join(keys, " and "), name, sum.String(), most.String())
	}
	return nil
}
