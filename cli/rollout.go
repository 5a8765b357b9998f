package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"ledge/api"
	"ledge/api/apps"
	"ledge/config"
)

type rolloutOpts struct {
	namespace string
	revision  int64
	watch     bool
	timeout   time.Duration
}

func rolloutFlags(c *Command) {
	o := &rolloutOpts{}
	namespaceFlag(c, &o.namespace)
	c.Flags.Int64Var(&o.revision, "revision", 0, "history: show the template of this one; undo: go back to it. 0: all, or the one before")
	c.Flags.BoolVar(&o.watch, "wait", true, "status: return when the rollout is done")
	c.Flags.DurationVar(&o.timeout, "timeout", 0, "status: wait no longer than this; 0: for ever")
	c.Opts = o
}

// roller is what rollout must know of a kind of objects that have rollouts.
type roller struct {
	kind *api.Kind
	// status says how far a rollout is, and whether it is done; err: it is stuck.
	status func(api.Object) (says string, done bool, err error)
	// revisions are the templates that the object has had, and its present one, the oldest first.
	revisions func(context.Context, api.Client, api.Object) ([]revision, error)
	// pause stops an object's rollouts, or has them go on; nil: they cannot be stopped.
	pause func(api.Object, bool)
}

// revision is one template that an object has had.
type revision struct {
	number   int64
	cause    string // that somebody gave for it
	template *corev1.PodTemplateSpec
	now      bool
}

func rollers() []roller {
	return []roller{
		{apps.Deployments, deploymentStatus, deploymentRevisions, pauseDeployment},
		{apps.StatefulSets, statefulSetStatus, rememberedBy(apps.StatefulSets), nil},
		{apps.DaemonSets, daemonSetStatus, rememberedBy(apps.DaemonSets), nil},
	}
}

const (
	changeCause = "kubernetes.io/change-cause"
	// restartedAt is written into a template to have its pods replaced. kubectl writes it too.
	restartedAt = "kubectl.kubernetes.io/restartedAt"
)

// rollout looks at how the pods of an object are replaced by those of another template, and steers it.
func rollout(ctx context.Context, c *Command) error {
	deeds := map[string]func(context.Context, api.Client, roller, api.Object) error{"status": c.rolloutStatus, "history": c.rolloutHistory,
		"undo": c.rolloutUndo, "pause": c.rolloutPause, "resume": c.rolloutResume, "restart": c.rolloutRestart}
	if len(c.args) < 2 || deeds[c.args[0]] == nil {
		return config.Usagef("rollout: write status, history, undo, pause, resume or restart, and of what: ledge rollout status deployment NAME")
	}
	kind, name, err := kindAndName(c.args[1:])
	if err != nil {
		return err
	}
	i := slices.IndexFunc(rollers(), func(r roller) bool { return r.kind == kind })
	switch {
	case i < 0:
		return config.Usagef("rollout: %s have no rollouts", kind.Resource)
	case name == "":
		return config.Usagef("rollout: name the %s", kind.Singular)
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	obj, err := cl.Get(ctx, kind, c.Opts.(*rolloutOpts).namespace, name)
	if err != nil {
		return err
	}
	return deeds[c.args[0]](ctx, cl, rollers()[i], obj)
}

func (c *Command) rolloutStatus(ctx context.Context, cl api.Client, r roller, obj api.Object) error {
	o := c.Opts.(*rolloutOpts)
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	for said := ""; ; {
		says, done, err := r.status(obj)
		if says != said && says != "" {
			say(c.out, "%s\n", says)
		}
		if done || err != nil || !o.watch {
			return err
		}
		said = says
		select {
		case <-ctx.Done():
			return fmt.Errorf("the rollout of %s/%s is not done after %v: ledge describe %s %s", r.kind.Singular, obj.GetName(), o.timeout,
				r.kind.Singular, obj.GetName())
		case <-time.After(200 * time.Millisecond):
		}
		now, err := cl.Get(ctx, r.kind, obj.GetNamespace(), obj.GetName())
		if err == nil {
			obj = now
		} else if ctx.Err() == nil {
			return err
		}
	}
}

func (c *Command) rolloutHistory(ctx context.Context, cl api.Client, r roller, obj api.Object) error {
	all, err := r.revisions(ctx, cl, obj)
	if err != nil {
		return err
	}
	if n := c.Opts.(*rolloutOpts).revision; n != 0 {
		i := slices.IndexFunc(all, func(rev revision) bool { return rev.number == n })
		if i < 0 {
			return noRevision(r, obj, n, all)
		}
		data, err := yaml.Marshal(all[i].template)
		if err != nil {
			return err
		}
		_, err = c.out.Write(data)
		return err
	}
	w := tabwriter.NewWriter(c.out, 0, 8, 3, ' ', 0)
	row(w, "REVISION", "CHANGE-CAUSE")
	for _, rev := range all {
		cause := rev.cause
		if cause == "" {
			cause = "<none>"
		}
		row(w, rev.number, cause)
	}
	return w.Flush()
}

func noRevision(r roller, obj api.Object, n int64, all []revision) error {
	var there []string
	for _, rev := range all {
		there = append(there, fmt.Sprint(rev.number))
	}
	return fmt.Errorf("%s/%s has no revision %d; there are %s", r.kind.Singular, obj.GetName(), n, strings.Join(there, ", "))
}

// rolloutUndo gives an object a template back that it has had.
func (c *Command) rolloutUndo(ctx context.Context, cl api.Client, r roller, obj api.Object) error {
	all, err := r.revisions(ctx, cl, obj)
	if err != nil {
		return err
	}
	to, err := goBackTo(r, obj, all, c.Opts.(*rolloutOpts).revision)
	if err != nil {
		return err
	}
	if to.now {
		_, err := say(c.out, "%s/%s is at revision %d\n", r.kind.Singular, obj.GetName(), to.number)
		return err
	}
	return c.change(ctx, cl, r, obj, fmt.Sprintf("rolled back to revision %d", to.number), func(obj api.Object) {
		*r.kind.Template(obj) = *to.template
		annotate(obj, changeCause, to.cause)
	})
}

// goBackTo is the revision of that number; 0: the newest but the present one.
func goBackTo(r roller, obj api.Object, all []revision, n int64) (revision, error) {
	for _, rev := range slices.Backward(all) {
		if rev.number == n || n == 0 && !rev.now {
			return rev, nil
		}
	}
	if n == 0 {
		return revision{}, fmt.Errorf("%s/%s has had no other template", r.kind.Singular, obj.GetName())
	}
	return revision{}, noRevision(r, obj, n, all)
}

// annotate gives an object, or a template, an annotation; an empty one is taken away.
func annotate(it interface {
	GetAnnotations() map[string]string
	SetAnnotations(map[string]string)
}, key, value string) {
	all := maps.Clone(it.GetAnnotations())
	if all == nil {
		all = map[string]string{}
	}
	if all[key] = value; value == "" {
		delete(all, key)
	}
	it.SetAnnotations(all)
}

func (c *Command) rolloutPause(ctx context.Context, cl api.Client, r roller, obj api.Object) error {
	return c.pause(ctx, cl, r, obj, true)
}

func (c *Command) rolloutResume(ctx context.Context, cl api.Client, r roller, obj api.Object) error {
	return c.pause(ctx, cl, r, obj, false)
}

func (c *Command) pause(ctx context.Context, cl api.Client, r roller, obj api.Object, on bool) error {
	if r.pause == nil {
		return config.Usagef("rollout: those of %s cannot be paused", r.kind.Resource)
	}
	done := "resumed"
	if on {
		done = "paused"
	}
	return c.change(ctx, cl, r, obj, done, func(obj api.Object) { r.pause(obj, on) })
}

// rolloutRestart has all pods replaced, though their template says the same.
func (c *Command) rolloutRestart(ctx context.Context, cl api.Client, r roller, obj api.Object) error {
	now := time.Now().UTC().Format(time.RFC3339)
	return c.change(ctx, cl, r, obj, "restarted", func(obj api.Object) { annotate(r.kind.Template(obj), restartedAt, now) })
}

// changeTries is how often a change is made again to an object that somebody else has changed.
const changeTries = 10

func (c *Command) change(ctx context.Context, cl api.Client, r roller, obj api.Object, done string, edit func(api.Object)) error {
	for try := 1; ; try++ {
		edit(obj)
		_, err := cl.Update(ctx, r.kind, obj, api.WriteOptions{Manager: "ledge"})
		if apierrors.IsConflict(err) && try < changeTries {
			obj, err = cl.Get(ctx, r.kind, obj.GetNamespace(), obj.GetName())
			if err == nil {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("change %s/%s: %w", r.kind.Singular, obj.GetName(), err)
		}
		_, err = say(c.out, "%s/%s %s\n", r.kind.Singular, obj.GetName(), done)
		return err
	}
}
