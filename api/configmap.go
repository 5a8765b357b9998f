package api

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/table"
	"ledge/api/valid"
)

// ConfigMaps are data for pods.
var ConfigMaps = Define(Kind{Version: "v1", Name: "ConfigMap", Resource: "configmaps", Singular: "configmap", Short: []string{"cm"},
	Namespaced: true},
	Rules[*corev1.ConfigMap]{
		New: func() *corev1.ConfigMap { return &corev1.ConfigMap{} }, NewList: func() ListObject { return &corev1.ConfigMapList{} },
		Validate: validateConfigMap,
		ValidateUpdate: func(c, old *corev1.ConfigMap, _ string) field.ErrorList {
			return append(validateConfigMap(c), validateConfigMapUpdate(c, old)...)
		},
		Columns: table.Columns{table.Name, table.Column("Data", "string", "How many keys it has."), table.Age},
		Cells: func(c *corev1.ConfigMap, l table.Look) []any {
			return []any{c.Name, int64(len(c.Data) + len(c.BinaryData)), l.AgeOf(c)}
		},
	})

// maxPayload bounds ConfigMaps and Secrets, as Kubernetes does.
const maxPayload = 1 << 20

func validateConfigMap(c *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for _, k := range slices.Sorted(maps.Keys(c.Data)) {
		errs = append(errs, isConfigKey(k, field.NewPath("data"))...)
		if _, both := c.BinaryData[k]; both {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(k), k, "duplicate of key present in binaryData"))
		}
		size += len(c.Data[k])
	}
	for _, k := range slices.Sorted(maps.Keys(c.BinaryData)) {
		errs = append(errs, isConfigKey(k, field.NewPath("binaryData"))...)
		size += len(c.BinaryData[k])
	}
	if size > maxPayload {
		errs = append(errs, field.TooLong(field.NewPath("data"), "", maxPayload))
	}
	return errs
}

func isConfigKey(k string, at *field.Path) field.ErrorList {
	return valid.Each(validation.IsConfigMapKey(k), func(msg string) *field.Error { return field.Invalid(at.Key(k), k, msg) })
}

func validateConfigMapUpdate(c, old *corev1.ConfigMap) field.ErrorList {
	if !isTrue(old.Immutable) {
		return nil
	}
	var errs field.ErrorList
	errs = append(errs, frozen(isTrue(c.Immutable), field.NewPath("immutable"))...)
	errs = append(errs, frozen(apiequality.Semantic.DeepEqual(c.Data, old.Data), field.NewPath("data"))...)
	return append(errs, frozen(apiequality.Semantic.DeepEqual(c.BinaryData, old.BinaryData), field.NewPath("binaryData"))...)
}

func frozen(same bool, at *field.Path) field.ErrorList {
	if same {
		return nil
	}
	return field.ErrorList{field.Forbidden(at, "field is immutable when `immutable` is set")}
}

func isTrue(b *bool) bool { return b != nil && *b }
