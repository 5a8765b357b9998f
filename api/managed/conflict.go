package managed

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"ledge/api"
)

// conflictError is the 409 of an apply, which names each field and whose it is, as Kubernetes words it.
func conflictError(conflicts merge.Conflicts) error {
	sort.Slice(conflicts, func(i, j int) bool {
		a, b := conflicts[i], conflicts[j]
		if a.Manager != b.Manager {
			return a.Manager < b.Manager
		}
		return a.Path.Compare(b.Path) < 0
	})
	var causes []metav1.StatusCause
	var lines []string
	manager := ""
	for i, c := range conflicts {
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict,
			Message: "conflict with " + nameOf(c.Manager), Field: c.Path.String()})
		if i == 0 || c.Manager != manager {
			manager = c.Manager
			lines = append(lines, "conflicts with "+nameOf(manager)+":")
		}
		lines = append(lines, "- "+c.Path.String())
	}
	text := fmt.Sprintf("Apply failed with %d conflicts: %s", len(conflicts), strings.Join(lines, "\n"))
	if len(conflicts) == 1 {
		text = fmt.Sprintf("Apply failed with 1 conflict: %s: %s", causes[0].Message, causes[0].Field)
	}
	return apierrors.NewApplyConflict(causes, text)
}

func nameOf(owner string) string {
	e := entryOf(owner)
	name := fmt.Sprintf("%q", e.Manager)
	if e.Subresource != "" {
		name += fmt.Sprintf(" with subresource %q", e.Subresource)
	}
	if e.Operation == metav1.ManagedFieldsOperationUpdate {
		name += " using " + e.APIVersion
	}
	return name
}

// appliedByClient: kubectl apply keeps in this annotation what it applied last.
func appliedByClient(obj api.Object) bool { return obj.GetAnnotations()[lastApplied] != "" }

// notFromClient leaves the conflicts over fields that kubectl did not apply itself before, on the client's side: those it
// may take along when it moves to the server's.
func (w *work) notFromClient(conflicts merge.Conflicts, live api.Object) merge.Conflicts {
	tree, err := treeOf(live.GetAnnotations()[lastApplied])
	if err != nil || tree["apiVersion"] != w.kind.APIVersion() {
		return conflicts
	}
	was, err := w.typ.FromUnstructured(tree)
	if err != nil {
		return conflicts
	}
	is, err := w.typ.FromStructured(live, typed.AllowDuplicates)
	if err != nil {
		return conflicts
	}
	own, err := was.ToFieldSet()
	if err != nil {
		return conflicts
	}
	changed, err := was.Compare(is)
	if err != nil {
		return conflicts
	}
	own = own.Difference(changed.Modified).Difference(changed.Added).Difference(changed.Removed)
	return slices.DeleteFunc(slices.Clone(conflicts), func(c merge.Conflict) bool { return own.Has(c.Path) })
}

// setLastApplied keeps the annotation of kubectl in step with what it applied on the server's side, so that it can go
// back.
func setLastApplied(obj api.Object, applied map[string]any) error {
	config := map[string]any{}
	for k, v := range applied {
		config[k] = v
	}
	if meta, ok := config["metadata"].(map[string]any); ok {
		copied := map[string]any{}
		for k, v := range meta {
			copied[k] = v
		}
		if annotations, ok := meta["annotations"].(map[string]any); ok {
			left := map[string]any{}
			for k, v := range annotations {
				if k != lastApplied {
					left[k] = v
				}
			}
			copied["annotations"] = left
		}
		config["metadata"] = copied
	}
	data, err := json.Marshal(config)
	if err != nil {
		return api.NewInternal("encode what was applied: %w", err)
	}
	annotations := obj.GetAnnotations()
	annotations[lastApplied] = string(data) + "\n"
	obj.SetAnnotations(annotations)
	return nil
}
