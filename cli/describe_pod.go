package cli

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

func (p *page) pod(o *corev1.Pod) {
	p.line("Node", "%s", o.Spec.NodeName)
	p.line("Status", "%s", strings.TrimSpace(string(o.Status.Phase)+" "+o.Status.Reason))
	if o.Status.Message != "" {
		p.line("Message", "%s", o.Status.Message)
	}
	var ips []string
	for _, ip := range o.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	p.line("IPs", "%s", strings.Join(ips, ", "))
	p.line("QoS Class", "%s", o.Status.QOSClass)
	if o.Spec.Priority != nil {
		p.line("Priority", "%s", strings.TrimSpace(fmt.Sprint(*o.Spec.Priority, " ", o.Spec.PriorityClassName)))
	}
	if owner := metav1.GetControllerOf(o); owner != nil {
		p.line("Controlled By", "%s/%s", owner.Kind, owner.Name)
	}
	p.containers("Init Containers", o.Spec.InitContainers, o.Status.InitContainerStatuses)
	p.containers("Containers", o.Spec.Containers, o.Status.ContainerStatuses)
	var looking []corev1.Container
	for _, e := range o.Spec.EphemeralContainers {
		looking = append(looking, corev1.Container(e.EphemeralContainerCommon))
	}
	p.containers("Ephemeral Containers", looking, o.Status.EphemeralContainerStatuses)
	p.section("Conditions")
	p.row("TYPE", "STATUS", "SINCE", "REASON", "MESSAGE")
	for _, c := range o.Status.Conditions {
		p.row(c.Type, c.Status, p.ago(c.LastTransitionTime.Time), c.Reason, c.Message)
	}
	if len(o.Spec.Volumes) > 0 {
		p.section("Volumes")
	}
	for _, v := range o.Spec.Volumes {
		p.row(v.Name, sourceOf(v))
	}
}

// sourceOf names what a volume is made of.
func sourceOf(v corev1.Volume) string {
	switch s := v.VolumeSource; {
	case s.EmptyDir != nil:
		return strings.TrimSpace("emptyDir " + string(s.EmptyDir.Medium))
	case s.HostPath != nil:
		return "hostPath " + s.HostPath.Path
	case s.NFS != nil:
		return "nfs " + s.NFS.Server + ":" + s.NFS.Path
	case s.ConfigMap != nil:
		return "configMap " + s.ConfigMap.Name
	case s.Secret != nil:
		return "secret " + s.Secret.SecretName
	case s.Projected != nil:
		return "projected"
	case s.DownwardAPI != nil:
		return "downwardAPI"
	case s.Image != nil:
		return "image " + s.Image.Reference
	case s.PersistentVolumeClaim != nil:
		return "claim " + s.PersistentVolumeClaim.ClaimName
	}
	return "other"
}

func (p *page) containers(name string, specs []corev1.Container, statuses []corev1.ContainerStatus) {
	if len(specs) == 0 {
		return
	}
	p.section(name)
	for _, c := range specs {
		fmt.Fprintf(p.w, "  %s:\n", inLine(c.Name))
		p.line("    Image", "%s", c.Image)
		if words := slices.Concat(c.Command, c.Args); len(words) > 0 {
			p.line("    Command", "%q", words)
		}
		var ports []string
		for _, port := range c.Ports {
			ports = append(ports, fmt.Sprintf("%d/%s", port.ContainerPort, port.Protocol))
		}
		if ports != nil {
			p.line("    Ports", "%s", strings.Join(ports, ", "))
		}
		if i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name }); i >= 0 {
			s := statuses[i]
			p.line("    State", "%s", p.state(s.State))
			if last := s.LastTerminationState; last.Terminated != nil {
				p.line("    Last State", "%s", p.state(last))
			}
			p.line("    Ready", "%t", s.Ready)
			p.line("    Restarts", "%d", s.RestartCount)
		}
		p.amounts("    Requests", c.Resources.Requests)
		p.amounts("    Limits", c.Resources.Limits)
		for _, m := range c.VolumeMounts {
			p.line("    Mount", "%s from %s", m.MountPath, m.Name)
		}
		for _, d := range c.VolumeDevices {
			p.line("    Device", "%s from %s", d.DevicePath, d.Name)
		}
	}
}

func (p *page) state(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return fmt.Sprintf("Running for %s", p.ago(s.Running.StartedAt.Time))
	case s.Terminated != nil:
		t := s.Terminated
		return strings.TrimSpace(fmt.Sprintf("Terminated %s ago: %s, exit code %d %s", p.ago(t.FinishedAt.Time), t.Reason, t.ExitCode, t.Message))
	case s.Waiting != nil:
		return strings.TrimSpace(fmt.Sprintf("Waiting: %s %s", s.Waiting.Reason, s.Waiting.Message))
	}
	return "Waiting"
}

func (p *page) amounts(name string, of corev1.ResourceList) {
	var all []string
	for k, q := range of {
		all = append(all, string(k)+" "+q.String())
	}
	if slices.Sort(all); all != nil {
		p.line(name, "%s", strings.Join(all, ", "))
	}
}

func (p *page) node(o *corev1.Node, pods []api.Object) {
	var taints []string
	for _, t := range o.Spec.Taints {
		taints = append(taints, t.ToString())
	}
	p.line("Taints", "%s", strings.Join(taints, ", "))
	p.line("Unschedulable", "%t", o.Spec.Unschedulable)
	p.section("Conditions")
	p.row("TYPE", "STATUS", "SINCE", "REASON", "MESSAGE")
	for _, c := range o.Status.Conditions {
		p.row(c.Type, c.Status, p.ago(c.LastTransitionTime.Time), c.Reason, c.Message)
	}
	p.section("Addresses")
	for _, a := range o.Status.Addresses {
		p.row(a.Type, a.Address)
	}
	i := o.Status.NodeInfo
	p.section("System")
	p.row("Kernel", i.KernelVersion)
	p.row("OS", i.OSImage+" ("+i.OperatingSystem+"/"+i.Architecture+")")
	p.row("Runtime", i.ContainerRuntimeVersion)
	p.row("Version", i.KubeletVersion)
	p.row("Boot ID", i.BootID)
	p.section("Pods")
	p.row("NAMESPACE", "NAME", "CPU REQUESTS", "CPU LIMITS", "MEMORY REQUESTS", "MEMORY LIMITS")
	asked, bounded := corev1.ResourceList{}, corev1.ResourceList{}
	for _, obj := range pods {
		pod := obj.(*corev1.Pod)
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		req, lim := api.Requests(pod), api.Limits(pod)
		sum(asked, req)
		sum(bounded, lim)
		p.row(pod.Namespace, pod.Name, req.Cpu(), lim.Cpu(), req.Memory(), lim.Memory())
	}
	p.section("Resources")
	p.row("RESOURCE", "CAPACITY", "ALLOCATABLE", "REQUESTED", "LIMITS")
	var names []string
	for k := range o.Status.Capacity {
		names = append(names, string(k))
	}
	slices.Sort(names)
	for _, name := range names {
		k := corev1.ResourceName(name)
		all, can, req, lim := o.Status.Capacity[k], o.Status.Allocatable[k], asked[k], bounded[k]
		share := "0%" // of nothing, as kubectl has it
		if can.Sign() > 0 {
			share = percent(req.MilliValue(), can.MilliValue())
		}
		p.row(name, all.String(), can.String(), req.String()+" ("+share+")", lim.String())
	}
}

func sum(to, from corev1.ResourceList) {
	for k, q := range from {
		n := to[k]
		n.Add(q)
		to[k] = n
	}
}
