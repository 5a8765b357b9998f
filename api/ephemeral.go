package api

import (
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Ephemeral is the subresource through which containers are put into a pod that runs, to look at it.
const Ephemeral = "ephemeralcontainers"

// asContainer shows an ephemeral container as the container it nearly is.
func asContainer(e *corev1.EphemeralContainer) *corev1.Container {
	return (*corev1.Container)(&e.EphemeralContainerCommon)
}

// validateNewEphemeral: they come later, through their own subresource.
func validateNewEphemeral(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	if len(s.EphemeralContainers) == 0 {
		return nil
	}
	return field.ErrorList{field.Forbidden(at.Child("ephemeralContainers"), "cannot be set on create")}
}

// validateEphemeral lets ephemeral containers come, and neither change nor go.
func validateEphemeral(p, old *corev1.Pod) field.ErrorList {
	at := field.NewPath("spec", "ephemeralContainers")
	errs := Unsupported(p)
	if IsMirror(old) {
		errs = append(errs, field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers"))
	}
	names, now := sets.New[string](), map[string]*corev1.EphemeralContainer{}
	eachContainer(&corev1.Pod{Spec: corev1.PodSpec{Containers: p.Spec.Containers, InitContainers: p.Spec.InitContainers}},
		func(c *corev1.Container, _ *field.Path) { names.Insert(c.Name) })
	targets := names.Clone()
	for i := range p.Spec.EphemeralContainers {
		e, at := &p.Spec.EphemeralContainers[i], at.Index(i)
		if names.Has(e.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), e.Name))
		}
		names.Insert(e.Name)
		now[e.Name] = e
		errs = append(errs, validateOneEphemeral(e, &p.Spec, targets, at)...)
	}
	for i := range old.Spec.EphemeralContainers {
		was := &old.Spec.EphemeralContainers[i]
		switch e := now[was.Name]; {
		case e == nil:
			errs = append(errs, field.Forbidden(at, "existing ephemeral containers \""+was.Name+"\" may not be removed\n"))
		case !apiequality.Semantic.DeepEqual(e, was):
			errs = append(errs, field.Forbidden(at, "existing ephemeral containers \""+was.Name+"\" may not be changed\n"))
		}
	}
	return errs
}

func validateOneEphemeral(e *corev1.EphemeralContainer, s *corev1.PodSpec, targets sets.Set[string], at *field.Path) field.ErrorList {
	volumes := map[string]bool{}
	for _, v := range s.Volumes {
		volumes[v.Name] = ofClaim(&v)
	}
	c := asContainer(e)
	errs := validateContainer(c, volumes, false, at)
	if t := e.TargetContainerName; t != "" && !targets.Has(t) {
		errs = append(errs, field.NotFound(at.Child("targetContainerName"), t))
	}
	for _, x := range []struct {
		name string
		set  bool
	}{
		{"ports", len(c.Ports) > 0}, {"livenessProbe", c.LivenessProbe != nil}, {"readinessProbe", c.ReadinessProbe != nil},
		{"startupProbe", c.StartupProbe != nil}, {"lifecycle", c.Lifecycle != nil}, {"resizePolicy", len(c.ResizePolicy) > 0},
		{"resources", len(c.Resources.Limits)+len(c.Resources.Requests)+len(c.Resources.Claims) > 0},
		{"restartPolicy", c.RestartPolicy != nil}, {"restartPolicyRules", len(c.RestartPolicyRules) > 0},
	} {
		if x.set {
			errs = append(errs, field.Forbidden(at.Child(x.name), "cannot be set for an Ephemeral Container"))
		}
	}
	for i, m := range c.VolumeMounts {
		if m.SubPath != "" || m.SubPathExpr != "" {
			errs = append(errs, field.Forbidden(at.Child("volumeMounts").Index(i).Child("subPath"), "cannot be set for an Ephemeral Container"))
		}
	}
	return errs
}
