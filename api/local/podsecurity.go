package local

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"ledge/api"
	"ledge/storage"
)

// checks are Kubernetes' own, made when a namespace first asks for them: on most boards none does.
var checks = sync.OnceValues(func() (policy.Evaluator, error) { return policy.NewEvaluator(policy.DefaultChecks(), nil) })

// violations lists what in a pod a level forbids; "" when it is fine. why gives the reasons alone, for many pods at
// once, or with the details of this one.
func violations(lv podsecurity.LevelVersion, meta *metav1.ObjectMeta, spec *corev1.PodSpec, details bool) (string, error) {
	if lv.Level == podsecurity.LevelPrivileged {
		return "", nil
	}
	evaluator, err := checks()
	if err != nil {
		return "", api.NewInternal("ledge bug: cannot make the checks of pod security: %w", err)
	}
	result := policy.AggregateCheckResults(evaluator.EvaluatePod(lv, meta, spec))
	if details {
		return result.ForbiddenDetail(), nil
	}
	return result.ForbiddenReason(), nil
}

// podSecurity is Kubernetes' pod security admission.
type podSecurity struct {
	level string // of namespaces that say nothing, the system's own aside; "": privileged
}

// policyOf is what a namespace asks of its pods: by its labels, or else what the board asks of every namespace but the
// system's own, whose pods keep the board running.
func (s podSecurity) policyOf(name string, labels map[string]string) (podsecurity.Policy, field.ErrorList) {
	latest := func(l podsecurity.Level) podsecurity.LevelVersion {
		return podsecurity.LevelVersion{Level: l, Version: podsecurity.LatestVersion()}
	}
	p := podsecurity.Policy{Enforce: latest(podsecurity.LevelPrivileged), Audit: latest(podsecurity.LevelPrivileged),
		Warn: latest(podsecurity.LevelPrivileged)}
	if s.level != "" && name != metav1.NamespaceSystem {
		p.Enforce.Level = podsecurity.Level(s.level)
	}
	return podsecurity.PolicyToEvaluate(labels, p)
}

// checkPodSecurity says whether this level of pod security is one.
func checkPodSecurity(level string) error {
	if level == "" {
		return nil
	}
	if _, err := podsecurity.ParseLevel(level); err != nil {
		return fmt.Errorf("pod security %q: %w", level, err)
	}
	return nil
}

// admit holds pods to what their namespace asks, and the labels of
// namespaces to what they may say.
func (s podSecurity) admit(ctx context.Context, tx *storage.Tx, g gate, a admission) error {
	if g.secure != nil {
		return g.secure(s, ctx, tx, a)
	}
	if t := a.kind.Template(a.obj); t != nil && a.sub == "" {
		return s.holdToPolicy(ctx, tx, a, &t.ObjectMeta, &t.Spec)
	}
	return nil
}

func (s podSecurity) namespace(ctx context.Context, tx *storage.Tx, a admission) error {
	if a.sub != "" {
		return nil
	}
	was, _ := a.old.(*corev1.Namespace)
	return s.labels(ctx, tx, a.obj.(*corev1.Namespace), was)
}

func (s podSecurity) pod(ctx context.Context, tx *storage.Tx, a admission) error {
	p := a.obj.(*corev1.Pod)
	was, _ := a.old.(*corev1.Pod)
	if a.sub == api.StatusSub || was != nil && !otherImages(&p.Spec, &was.Spec) {
		return nil
	}
	return s.holdToPolicy(ctx, tx, a, &p.ObjectMeta, &p.Spec)
}

// holdToPolicy refuses a pod that the namespace's enforce level forbids, and warns about one that its warn level
// forbids. Of a template it only warns: what is made from it is asked again.
func (s podSecurity) holdToPolicy(ctx context.Context, tx *storage.Tx, a admission, meta *metav1.ObjectMeta, spec *corev1.PodSpec) error {
	namespace := a.obj.GetNamespace()
	found, err := tx.Get(api.Namespaces, "", namespace)
	if err != nil {
		return storeError(err, api.Namespaces, "", namespace)
	}
	p, _ := s.policyOf(namespace, found.GetLabels()) // a label that cannot be read means the strictest
	if a.kind == api.Pods {
		bad, err := violations(p.Enforce, meta, spec, true)
		if err != nil {
			return err
		}
		api.Note(ctx, "pod-security.kubernetes.io/enforce-policy", p.Enforce.String())
		if bad != "" {
			return forbidden(a.kind, a.obj.GetName(), "violates PodSecurity %q: %s", p.Enforce.String(), bad)
		}
	}
	bad, err := violations(p.Audit, meta, spec, true)
	if err != nil {
		return err
	}
	if bad != "" {
		api.Note(ctx, "pod-security.kubernetes.io/audit-violations", fmt.Sprintf("would violate PodSecurity %q: %s", p.Audit.String(), bad))
	}
	bad, err = violations(p.Warn, meta, spec, true)
	if err == nil && bad != "" {
		api.Warn(ctx, fmt.Sprintf("would violate PodSecurity %q: %s", p.Warn.String(), bad))
	}
	return err
}

// otherImages says whether a change of a pod brings another image or another container. Only then pod security looks again.
func otherImages(now, was *corev1.PodSpec) bool {
	images := func(s *corev1.PodSpec) map[string]string {
		out := map[string]string{}
		for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
			for _, c := range list {
				out[c.Name] = c.Image
			}
		}
		for _, c := range s.EphemeralContainers {
			out[c.Name] = c.Image
		}
		return out
	}
	had := images(was)
	for name, image := range images(now) {
		if before, ok := had[name]; !ok || before != image {
			return true
		}
	}
	return false
}

// labels refuses labels that cannot be read, and warns when pods that are there would not be let in now.
func (s podSecurity) labels(ctx context.Context, tx *storage.Tx, ns, was *corev1.Namespace) error {
	now, errs := s.policyOf(ns.Name, ns.Labels)
	if was == nil {
		return invalidLabels(ns, errs)
	}
	before, oldErrs := s.policyOf(was.Name, was.Labels)
	if errs.ToAggregate() != nil && (oldErrs.ToAggregate() == nil || errs.ToAggregate().Error() != oldErrs.ToAggregate().Error()) {
		return invalidLabels(ns, errs)
	}
	relaxed := now.Enforce.Version == before.Enforce.Version && podsecurity.CompareLevels(now.Enforce.Level, before.Enforce.Level) < 1
	if relaxed || now.Enforce.Level == podsecurity.LevelPrivileged {
		return nil
	}
	pods, err := list(tx, api.Pods, ns.Name)
	if err != nil {
		return err
	}
	byReason := map[string][]string{}
	for _, obj := range pods {
		pod := obj.(*corev1.Pod)
		why, err := violations(now.Enforce, &pod.ObjectMeta, &pod.Spec, false)
		if err != nil {
			return err
		}
		if why != "" {
			byReason[why] = append(byReason[why], pod.Name)
		}
	}
	for _, text := range podWarnings(ns.Name, now.Enforce.String(), byReason) {
		api.Warn(ctx, text)
	}
	return nil
}

// podWarnings says which pods violate a new level, one line for each kind of reasons.
func podWarnings(namespace, level string, byReason map[string][]string) []string {
	if len(byReason) == 0 {
		return nil
	}
	var lines []string
	for why, names := range byReason {
		slices.Sort(names)
		who := names[0]
		switch more := len(names) - 1; more {
		case 0:
		case 1:
			who += " (and 1 other pod)"
		default:
			who += fmt.Sprintf(" (and %d other pods)", more)
		}
		lines = append(lines, who+": "+why)
	}
	slices.SortFunc(lines, strings.Compare)
	return append([]string{fmt.Sprintf("existing pods in namespace %q violate the new PodSecurity enforce level %q", namespace, level)},
		lines...)
}

func invalidLabels(ns *corev1.Namespace, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(api.Namespaces.GVK().GroupKind(), ns.Name, errs)
}
