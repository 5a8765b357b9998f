package api

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

// validateLife checks what a pod says about the life of its containers: probes, hooks, restarts, gates.
func validateLife(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range s.InitContainers {
		c, at := &s.InitContainers[i], at.Child("initContainers").Index(i)
		errs = append(errs, validateRestarts(c, at)...)
		if IsSidecar(c) {
			errs = append(errs, validateProbesAndHooks(c, s, at)...)
			continue
		}
		for name, set := range map[string]bool{"livenessProbe": c.LivenessProbe != nil, "readinessProbe": c.ReadinessProbe != nil,
			"startupProbe": c.StartupProbe != nil, "lifecycle": c.Lifecycle != nil && (c.Lifecycle.PostStart != nil || c.Lifecycle.PreStop != nil)} {
			if set {
				errs = append(errs, field.Forbidden(at.Child(name), "may not be set for init containers without restartPolicy=Always"))
			}
		}
		errs = append(errs, validateStopSignal(c.Lifecycle, s.OS, at.Child("lifecycle"))...)
	}
	for i := range s.Containers {
		c, at := &s.Containers[i], at.Child("containers").Index(i)
		errs = append(errs, validateRestarts(c, at)...)
		errs = append(errs, validateProbesAndHooks(c, s, at)...)
	}
	for i, g := range s.ReadinessGates {
		errs = append(errs, valid.Each(validation.IsQualifiedName(string(g.ConditionType)), func(msg string) *field.Error {
			return field.Invalid(at.Child("readinessGates").Index(i).Child("conditionType"), string(g.ConditionType), msg)
		})...)
	}
	errs = append(errs, validateSchedulingGates(s.SchedulingGates, at.Child("schedulingGates"))...)
	if s.NodeName != "" && len(s.SchedulingGates) > 0 {
		errs = append(errs, field.Forbidden(at.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
	}
	return errs
}

// gatesOnlyOpen: a pod's scheduling gates may go and never come (N-10.4).
func gatesOnlyOpen(now, old []corev1.PodSchedulingGate, at *field.Path) field.ErrorList {
	for _, g := range now {
		if !slices.Contains(old, g) {
			return field.ErrorList{field.Forbidden(at, fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", g.Name))}
		}
	}
	return nil
}

func validateSchedulingGates(gates []corev1.PodSchedulingGate, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, g := range gates {
		errs = append(errs, valid.Each(validation.IsQualifiedName(g.Name),
			func(msg string) *field.Error { return field.Invalid(at.Index(i), g.Name, msg) })...)
		if seen.Has(g.Name) {
			errs = append(errs, field.Duplicate(at.Index(i), g.Name))
		}
		seen.Insert(g.Name)
	}
	return errs
}

// maxRestartRules and maxExitCodes are Kubernetes' bounds on a container's rules.
const (
	maxRestartRules = 20
	maxExitCodes    = 255
)

func validateRestarts(c *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.RestartPolicy != nil {
		errs = append(errs, valid.OneOf(*c.RestartPolicy, at.Child("restartPolicy"), corev1.ContainerRestartPolicyAlways,
			corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever)...)
	}
	rules := at.Child("restartPolicyRules")
	switch {
	case len(c.RestartPolicyRules) == 0:
		return errs
	case c.RestartPolicy == nil:
		errs = append(errs, field.Required(at.Child("restartPolicy"), "must specify restartPolicy when restart rules are used"))
	}
	if len(c.RestartPolicyRules) > maxRestartRules {
		errs = append(errs, field.TooMany(rules, len(c.RestartPolicyRules), maxRestartRules))
	}
	for i, r := range c.RestartPolicyRules {
		at := rules.Index(i)
		errs = append(errs, valid.OneOf(r.Action, at.Child("action"), corev1.ContainerRestartRuleActionRestart,
			corev1.ContainerRestartRuleActionRestartAllContainers)...)
		if r.ExitCodes == nil {
			errs = append(errs, field.Required(at.Child("exitCodes"), "must be specified"))
			continue
		}
		errs = append(errs, valid.OneOf(r.ExitCodes.Operator, at.Child("exitCodes", "operator"),
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)...)
		switch n := len(r.ExitCodes.Values); {
		case n == 0:
			errs = append(errs, field.Required(at.Child("exitCodes", "values"), "must specify at least one value"))
		case n > maxExitCodes:
			errs = append(errs, field.TooMany(at.Child("exitCodes", "values"), n, maxExitCodes))
		}
	}
	return errs
}

func validateProbesAndHooks(c *corev1.Container, s *corev1.PodSpec, at *field.Path) field.ErrorList {
	errs := validateProbe(c.LivenessProbe, true, at.Child("livenessProbe"))
	errs = append(errs, validateProbe(c.StartupProbe, true, at.Child("startupProbe"))...)
	errs = append(errs, validateProbe(c.ReadinessProbe, false, at.Child("readinessProbe"))...)
	if c.Lifecycle == nil {
		return errs
	}
	at = at.Child("lifecycle")
	for name, h := range map[string]*corev1.LifecycleHandler{"postStart": c.Lifecycle.PostStart, "preStop": c.Lifecycle.PreStop} {
		if h != nil {
			errs = append(errs, validateHandler(handler{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep}, s, at.Child(name))...)
		}
	}
	return append(errs, validateStopSignal(c.Lifecycle, s.OS, at)...)
}

// validateProbe checks a probe; deadly says that its failure ends the container (N-7.2).
func validateProbe(p *corev1.Probe, deadly bool, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := validateHandler(handler{p.Exec, p.HTTPGet, p.TCPSocket, p.GRPC, nil}, nil, at)
	for _, n := range []struct {
		name  string
		value int32
	}{{"initialDelaySeconds", p.InitialDelaySeconds}, {"timeoutSeconds", p.TimeoutSeconds}, {"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold}, {"failureThreshold", p.FailureThreshold}} {
		if n.value < 0 {
			errs = append(errs, field.Invalid(at.Child(n.name), n.value, "must be greater than or equal to 0"))
		}
	}
	grace := p.TerminationGracePeriodSeconds
	switch {
	case grace != nil && !deadly:
		errs = append(errs, field.Invalid(at.Child("terminationGracePeriodSeconds"), *grace, "must not be set for readinessProbes"))
	case grace != nil && *grace <= 0:
		errs = append(errs, field.Invalid(at.Child("terminationGracePeriodSeconds"), *grace, "must be greater than 0"))
	}
	if deadly && p.SuccessThreshold != 1 {
		errs = append(errs, field.Invalid(at.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	return errs
}

// handler is what probes and hooks have in common.
type handler struct {
	exec  *corev1.ExecAction
	http  *corev1.HTTPGetAction
	tcp   *corev1.TCPSocketAction
	grpc  *corev1.GRPCAction
	sleep *corev1.SleepAction
}

func validateHandler(h handler, s *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	n := 0
	one := func(set bool, name string, check func(at *field.Path) field.ErrorList) {
		switch {
		case !set:
			return
		case n > 0:
			errs = append(errs, field.Forbidden(at.Child(name), "may not specify more than 1 handler type"))
		default:
			errs = append(errs, check(at.Child(name))...)
		}
		n++
	}
	one(h.exec != nil, "exec", func(at *field.Path) field.ErrorList {
		if len(h.exec.Command) == 0 {
			return field.ErrorList{field.Required(at.Child("command"), "")}
		}
		return nil
	})
	one(h.http != nil, "httpGet", func(at *field.Path) field.ErrorList { return validateHTTPGet(h.http, at) })
	one(h.tcp != nil, "tcpSocket", func(at *field.Path) field.ErrorList { return validateAnyPort(h.tcp.Port, at.Child("port")) })
	one(h.grpc != nil, "grpc", func(at *field.Path) field.ErrorList { return isPort(h.grpc.Port, at.Child("port")) })
	one(h.sleep != nil, "sleep", func(at *field.Path) field.ErrorList {
		grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
		if g := s.TerminationGracePeriodSeconds; g != nil {
			grace = *g
		}
		if sec := h.sleep.Seconds; sec < 0 || sec > grace {
			return field.ErrorList{field.Invalid(at.Child("seconds"), sec,
				fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", grace))}
		}
		return nil
	})
	if n == 0 {
		errs = append(errs, field.Required(at, "must specify a handler type"))
	}
	return errs
}

func validateHTTPGet(h *corev1.HTTPGetAction, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if h.Path == "" {
		errs = append(errs, field.Required(at.Child("path"), ""))
	}
	errs = append(errs, validateAnyPort(h.Port, at.Child("port"))...)
	errs = append(errs, valid.OneOf(h.Scheme, at.Child("scheme"), corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
	for i, kv := range h.HTTPHeaders {
		errs = append(errs, valid.Each(validation.IsHTTPHeaderName(kv.Name), func(msg string) *field.Error {
			return field.Invalid(at.Child("httpHeaders").Index(i).Child("name"), kv.Name, msg)
		})...)
	}
	return errs
}

func validateAnyPort(p intstr.IntOrString, at *field.Path) field.ErrorList {
	if p.Type == intstr.Int {
		return isPort(p.IntVal, at)
	}
	return valid.Each(validation.IsValidPortName(p.StrVal), func(msg string) *field.Error { return field.Invalid(at, p.StrVal, msg) })
}

// validateStopSignal: a signal has a meaning only on an operating system that the pod names.
func validateStopSignal(l *corev1.Lifecycle, os *corev1.PodOS, at *field.Path) field.ErrorList {
	if l == nil || l.StopSignal == nil {
		return nil
	}
	at = at.Child("stopSignal")
	if os == nil || os.Name == "" {
		return field.ErrorList{field.Forbidden(at, "may not be set for containers with empty `spec.os.name`")}
	}
	if name := string(*l.StopSignal); !slices.Contains(stopSignals(), name) {
		return field.ErrorList{field.NotSupported(at, name, stopSignals())}
	}
	return nil
}

// stopSignals are the names a pod may give: Linux' own, and the real-time signals counted from both ends.
func stopSignals() []string {
	list := strings.Fields(`SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL SIGPIPE
		SIGPOLL SIGPROF SIGPWR SIGQUIT SIGSEGV SIGSTKFLT SIGSTOP SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1
		SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ SIGRTMIN SIGRTMAX`)
	for i := 1; i <= 15; i++ {
		list = append(list, fmt.Sprintf("SIGRTMIN+%d", i))
	}
	for i := 1; i <= 14; i++ {
		list = append(list, fmt.Sprintf("SIGRTMAX-%d", i))
	}
	return list
}

// placementOnlyNarrower: of a pod behind scheduling gates the node selector may get more keys, and required node affinity
// may be added, or its terms get more requirements. Anything else of the affinity has to stay.
func placementOnlyNarrower(s, old *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for k, v := range old.NodeSelector {
		if s.NodeSelector[k] != v {
			errs = append(errs, field.Invalid(at.Child("nodeSelector"), s.NodeSelector,
				"only additions to spec.nodeSelector are allowed (no mutations or deletions)"))
			break
		}
	}
	now, was := requiredTerms(s), requiredTerms(old)
	ok := len(was) == 0 || len(now) == len(was)
	for i := 0; ok && i < len(was); i++ {
		ok = holdsAll(now[i].MatchExpressions, was[i].MatchExpressions) && holdsAll(now[i].MatchFields, was[i].MatchFields)
	}
	if !ok {
		errs = append(errs, field.Invalid(at.Child("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution",
			"nodeSelectorTerms"),
			now, "only additions are allowed (no mutations or deletions)"))
	}
	if !apiequality.Semantic.DeepEqual(withoutRequired(s.Affinity), withoutRequired(old.Affinity)) {
		errs = append(errs, field.Forbidden(at.Child("affinity"), podUpdateForbidden))
	}
	return errs
}

func requiredTerms(s *corev1.PodSpec) []corev1.NodeSelectorTerm {
	if s.Affinity == nil || s.Affinity.NodeAffinity == nil || s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// holdsAll: list begins with all of old.
func holdsAll(list, old []corev1.NodeSelectorRequirement) bool {
	return len(list) >= len(old) && apiequality.Semantic.DeepEqual(list[:len(old)], old)
}

// withoutRequired is an affinity without its required node affinity; what is then empty is nothing.
func withoutRequired(a *corev1.Affinity) corev1.Affinity {
	var out corev1.Affinity
	if a != nil {
		a.DeepCopyInto(&out)
	}
	if n := out.NodeAffinity; n != nil {
		if n.RequiredDuringSchedulingIgnoredDuringExecution = nil; len(n.PreferredDuringSchedulingIgnoredDuringExecution) == 0 {
			out.NodeAffinity = nil
		}
	}
	return out
}
