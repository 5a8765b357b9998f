package api

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func goodProbe() *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(80),
		Scheme: "HTTP"}},
		TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3}
}

// probing gives the first container a liveness probe.
func probing(edit func(*corev1.Probe)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		first(p).LivenessProbe = goodProbe()
		edit(first(p).LivenessProbe)
	}
}

// sidecar gives the pod an init container that stays.
func sidecar(edit func(*corev1.Container)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := first(p).DeepCopy()
		c.Name, c.RestartPolicy = "side", ptr(corev1.ContainerRestartPolicyAlways)
		edit(c)
		p.Spec.InitContainers = []corev1.Container{*c}
	}
}

// ruling gives the first container a rule for its exit codes.
func ruling(edit func(*corev1.Container, *corev1.ContainerRestartRule)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := first(p)
		c.RestartPolicy = ptr(corev1.ContainerRestartPolicyNever)
		r := corev1.ContainerRestartRule{Action: "Restart",
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: "In", Values: []int32{1}}}
		edit(c, &r)
		c.RestartPolicyRules = append(c.RestartPolicyRules, r)
	}
}

func hooked(h corev1.LifecycleHandler) func(*corev1.Pod) {
	return func(p *corev1.Pod) { first(p).Lifecycle = &corev1.Lifecycle{PreStop: &h} }
}

// TestValidateLife: what Kubernetes refuses of probes, hooks and restart policies, in its words (N-7.2, N-7.9, N-7.20).
func TestValidateLife(t *testing.T) {
	const live = c0 + "livenessProbe"
	for _, tc := range []struct {
		name        string
		change      func(*corev1.Pod)
		field, text string
	}{
		{"probe", probing(func(*corev1.Probe) {}), "", ""},
		{"probe without handler", probing(func(p *corev1.Probe) { p.HTTPGet = nil }), live, "must specify a handler type"},
		{"two handlers", probing(func(p *corev1.Probe) { p.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromInt32(1)} }), live + ".tcpSocket",
			"may not specify more than 1"},
		{"path", probing(func(p *corev1.Probe) { p.HTTPGet.Path = "" }), live + ".httpGet.path", "Required"},
		{"scheme", probing(func(p *corev1.Probe) { p.HTTPGet.Scheme = "FTP" }), live + ".httpGet.scheme", "Unsupported"},
		{"port", probing(func(p *corev1.Probe) { p.HTTPGet.Port = intstr.FromInt32(0) }), live + ".httpGet.port", "between 1 and 65535"},
		{"port name", probing(func(p *corev1.Probe) { p.HTTPGet.Port = intstr.FromString("a b") }), live + ".httpGet.port", ""},
		{"header", probing(func(p *corev1.Probe) { p.HTTPGet.HTTPHeaders = []corev1.HTTPHeader{{Name: "a b"}} }),
			live + ".httpGet.httpHeaders[0].name", ""},
		{"command", probing(func(p *corev1.Probe) { p.ProbeHandler = corev1.ProbeHandler{Exec: &corev1.ExecAction{}} }), live + ".exec.command",
			"Required"},
		{"grpc port", probing(func(p *corev1.Probe) { p.ProbeHandler = corev1.ProbeHandler{GRPC: &corev1.GRPCAction{}} }), live + ".grpc.port",
			""},
		{"period", probing(func(p *corev1.Probe) { p.PeriodSeconds = -1 }), live + ".periodSeconds", "greater than or equal to 0"},
		{"success threshold", probing(func(p *corev1.Probe) { p.SuccessThreshold = 2 }), live + ".successThreshold", "must be 1"},
		{"probe grace", probing(func(p *corev1.Probe) { p.TerminationGracePeriodSeconds = ptr(int64(0)) }),
			live + ".terminationGracePeriodSeconds", "must be greater than 0"},
		{"readiness grace", func(p *corev1.Pod) {
			first(p).ReadinessProbe = goodProbe()
			first(p).ReadinessProbe.TerminationGracePeriodSeconds = ptr(int64(1))
		}, c0 + "readinessProbe.terminationGracePeriodSeconds", "must not be set for readinessProbes"},
		{"readiness threshold", func(p *corev1.Pod) {
			first(p).ReadinessProbe = goodProbe()
			first(p).ReadinessProbe.SuccessThreshold = 2
		}, "", ""},
		{"sidecar", sidecar(func(c *corev1.Container) { c.StartupProbe = goodProbe() }), "", ""},
		{"probe of an init container", sidecar(func(c *corev1.Container) { c.RestartPolicy, c.StartupProbe = nil, goodProbe() }),
			"spec.initContainers[0].startupProbe", "may not be set for init containers without restartPolicy=Always"},
		{"rules of a sidecar", sidecar(func(c *corev1.Container) {
			c.RestartPolicyRules = []corev1.ContainerRestartRule{{Action: "Restart",
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: "In", Values: []int32{1}}}}
		}), "", ""},
		{"container policy", func(p *corev1.Pod) { first(p).RestartPolicy = ptr(corev1.ContainerRestartPolicy("x")) }, c0 + "restartPolicy",
			"Unsupported"},
		{"rule", ruling(func(*corev1.Container, *corev1.ContainerRestartRule) {}), "", ""},
		{"rule without policy", ruling(func(c *corev1.Container, _ *corev1.ContainerRestartRule) { c.RestartPolicy = nil }), c0 + "restartPolicy",
			"must specify restartPolicy"},
		{"rule without codes", ruling(func(_ *corev1.Container, r *corev1.ContainerRestartRule) { r.ExitCodes = nil }),
			c0 + "restartPolicyRules[0].exitCodes", "Required"},
		{"rule of all", ruling(func(_ *corev1.Container, r *corev1.ContainerRestartRule) { r.Action = "RestartAllContainers" }), "", ""},
		{"rule of none", ruling(func(_ *corev1.Container, r *corev1.ContainerRestartRule) { r.Action = "Stop" }),
			c0 + "restartPolicyRules[0].action", "Unsupported"},
		{"hook", hooked(corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 30}}), "", ""},
		{"long sleep", hooked(corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 31}}), c0 + "lifecycle.preStop.sleep.seconds",
			"must be non-negative and less than terminationGracePeriodSeconds (30)"},
		{"no hook", hooked(corev1.LifecycleHandler{}), c0 + "lifecycle.preStop", "must specify a handler type"},
		{"stop signal", func(p *corev1.Pod) {
			p.Spec.OS = &corev1.PodOS{Name: "linux"}
			first(p).Lifecycle = &corev1.Lifecycle{StopSignal: ptr(corev1.Signal("SIGRTMIN+3"))}
		}, "", ""},
		{"stop signal of no system", func(p *corev1.Pod) { first(p).Lifecycle = &corev1.Lifecycle{StopSignal: ptr(corev1.SIGUSR1)} },
			c0 + "lifecycle.stopSignal", "empty `spec.os.name`"},
		{"unknown stop signal", func(p *corev1.Pod) {
			p.Spec.OS = &corev1.PodOS{Name: "linux"}
			first(p).Lifecycle = &corev1.Lifecycle{StopSignal: ptr(corev1.Signal("SIGNOPE"))}
		}, c0 + "lifecycle.stopSignal", "Unsupported"},
		{"readiness gate", func(p *corev1.Pod) { p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "a b"}} },
			"spec.readinessGates[0].conditionType", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := validPod()
			tc.change(p)
			wants(t, validate(p), tc.field, tc.text)
		})
	}
}

func TestLifeDefaults(t *testing.T) { // N-7.2
	p := validPod()
	c := first(p)
	c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(1)}}}
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1}}, FailureThreshold: 7}
	c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{}}}
	fill(p)
	l, r := c.LivenessProbe, c.ReadinessProbe
	if l.TimeoutSeconds != 1 || l.PeriodSeconds != 10 || l.SuccessThreshold != 1 || l.FailureThreshold != 3 || l.InitialDelaySeconds != 0 ||
		l.HTTPGet.Path != "/" || l.HTTPGet.Scheme != "HTTP" || r.FailureThreshold != 7 || r.GRPC.Service == nil ||
		c.Lifecycle.PostStart.HTTPGet.Scheme != "HTTP" {
		t.Errorf("%+v %+v %+v", l, r, c.Lifecycle.PostStart.HTTPGet)
	}
}

// TestGates: scheduling gates may go and never come; behind them a pod's place may be narrowed (N-10.4).
func TestGates(t *testing.T) {
	gated := func() *corev1.Pod {
		p := validPod()
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/a"}, {Name: "example.com/b"}}
		p.Spec.NodeSelector = map[string]string{"a": "b"}
		affinity(p, corev1.NodeSelectorRequirement{Key: "k", Operator: "Exists"})
		return p
	}
	required := func(p *corev1.Pod) *corev1.NodeSelectorTerm { return &requiredTerms(&p.Spec)[0] }
	for _, tc := range []struct {
		name        string
		change      func(p, old *corev1.Pod)
		field, text string
	}{
		{"nothing", func(_, _ *corev1.Pod) {}, "", ""},
		{"one opens", func(p, _ *corev1.Pod) { p.Spec.SchedulingGates = p.Spec.SchedulingGates[1:] }, "", ""},
		{"all open", func(p, _ *corev1.Pod) { p.Spec.SchedulingGates = nil }, "", ""},
		{"a new one", func(p, _ *corev1.Pod) { p.Spec.SchedulingGates[0].Name = "example.com/c" }, "spec.schedulingGates",
			"only deletion is allowed, but found new scheduling gate 'example.com/c'"},
		{"selector narrower", func(p, _ *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b", "c": "d"} }, "", ""},
		{"selector other", func(p, _ *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "c"} }, "spec.nodeSelector", "only additions"},
		{"selector after the gates", func(p, old *corev1.Pod) {
			old.Spec.SchedulingGates, p.Spec.SchedulingGates, p.Spec.NodeSelector = nil, nil, map[string]string{"a": "b", "c": "d"}
		}, "spec", "pod updates may not change fields"},
		{"affinity narrower", func(p, _ *corev1.Pod) {
			required(p).MatchExpressions = append(required(p).MatchExpressions, corev1.NodeSelectorRequirement{Key: "l", Operator: "Exists"})
		}, "", ""},
		{"affinity other", func(p, _ *corev1.Pod) { required(p).MatchExpressions[0].Key = "l" },
			"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms", "only additions"},
		{"affinity gone", func(p, _ *corev1.Pod) { p.Spec.Affinity = nil },
			"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms", "only additions"},
		{"other affinity", func(p, _ *corev1.Pod) { p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{} }, "spec.affinity", "may not change"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			old := gated()
			p := gated()
			old.ResourceVersion, p.ResourceVersion = "1", "1"
			tc.change(p, old)
			wants(t, validateUpdate(p, old, ""), tc.field, tc.text)
		})
	}
	p := gated()
	p.Spec.NodeName = "n"
	wants(t, validate(p), "spec.nodeName", "cannot be set until all schedulingGates have been cleared")
	p = gated()
	p.Spec.SchedulingGates[1] = p.Spec.SchedulingGates[0]
	wants(t, validate(p), "spec.schedulingGates[1]", "Duplicate")
}
