package apps

import (
	"encoding/json"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
)

// ControllerRevisions keep the templates that StatefulSets and DaemonSets have had, to go back to.
var ControllerRevisions = api.Define(api.Kind{Group: "apps", Version: "v1", Name: "ControllerRevision", Resource: "controllerrevisions",
	Singular: "controllerrevision", Namespaced: true},
	api.Rules[*appsv1.ControllerRevision]{
		New:     func() *appsv1.ControllerRevision { return &appsv1.ControllerRevision{} },
		NewList: func() api.ListObject { return &appsv1.ControllerRevisionList{} },
		Validate: func(r *appsv1.ControllerRevision) field.ErrorList {
			return append(validateRevision(r), validateData(r.Data.Raw)...)
		},
		ValidateUpdate: func(r, old *appsv1.ControllerRevision, _ string) field.ErrorList {
			errs := validateRevision(r)
			if !sameData(r.Data.Raw, old.Data.Raw) {
				errs = append(errs, field.Invalid(field.NewPath("data"), field.OmitValueType{}, apivalidation.FieldImmutableErrorMsg))
			}
			return errs
		},
		Columns: table.Columns{
			table.Name,
			table.Column("Controller", "string", "Whose template it is."),
			table.Column("Revision", "string", "Its number: the highest is the newest."),
			table.Age,
		},
		Cells: func(r *appsv1.ControllerRevision, l table.Look) []any {
			return []any{r.Name, controllerOf(r), r.Revision, l.AgeOf(r)}
		},
	})

func validateRevision(r *appsv1.ControllerRevision) field.ErrorList {
	return apivalidation.ValidateNonnegativeField(r.Revision, field.NewPath("revision"))
}

func validateData(data []byte) field.ErrorList {
	at := field.NewPath("data")
	var v any
	if len(data) == 0 {
		return field.ErrorList{field.Required(at, "data is mandatory")}
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "error parsing data: "+err.Error())}
	}
	if _, ok := v.(map[string]any); !ok {
		return field.ErrorList{field.Required(at, "data must be a valid JSON object")}
	}
	return nil
}

// sameData compares what two texts of JSON say: a client may write it with other blanks.
func sameData(a, b []byte) bool {
	var is, was any
	if json.Unmarshal(a, &is) != nil || json.Unmarshal(b, &was) != nil {
		return string(a) == string(b)
	}
	return apiequality.Semantic.DeepEqual(is, was)
}

// controllerOf is whose template it is, as kubectl writes it: statefulset.apps/web.
func controllerOf(r *appsv1.ControllerRevision) string {
	of := metav1.GetControllerOf(r)
	if of == nil {
		return table.None
	}
	kind := strings.ToLower(of.Kind)
	if group := schema.FromAPIVersionAndKind(of.APIVersion, of.Kind).Group; group != "" {
		kind += "." + group
	}
	return kind + "/" + of.Name
}
