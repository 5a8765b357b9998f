package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// ApplyPatch computes what a patch makes of an object (N-11.33, N-11.34); obj is not changed. dropped names
// the fields of the patch that the kind does not have, or has twice: whoever asked for strictness refuses
// them, others are warned (N-11.15).
func ApplyPatch(kind *Kind, obj Object, p Patch) (patched Object, dropped []string, err error) {
	doc, err := toTree(obj)
	if err != nil {
		return nil, nil, err
	}
	var result any
	switch p.Type {
	case types.JSONPatchType:
		result, dropped, err = applyJSONPatch(doc, p.Data)
	case types.MergePatchType:
		var patch map[string]any
		if patch, dropped, err = patchTree(p.Data); err == nil {
			result = mergeJSON(doc, patch)
		}
	case types.StrategicMergePatchType:
		var patch map[string]any
		if patch, dropped, err = patchTree(p.Data); err == nil {
			result, err = strategic(kind, doc, patch)
		}
	default:
		return nil, nil, UnsupportedPatch(p.Type)
	}
	if err != nil {
		return nil, nil, err
	}
	patched, more, err := fromTree(kind, result)
	return patched, append(dropped, more...), err
}

// toTree is an object as JSON maps and lists, whole numbers kept whole.
func toTree(obj any) (map[string]any, error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, NewInternal("encode %T: %w", obj, err)
	}
	var tree map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &tree); err != nil {
		return nil, NewInternal("decode %T: %w", obj, err)
	}
	return tree, nil
}

func fromTree(kind *Kind, tree any) (Object, []string, error) {
	data, err := json.Marshal(tree)
	if err != nil {
		return nil, nil, NewInternal("encode patched %s: %w", kind, err)
	}
	obj := kind.New()
	var strict []error
	if err = CheckAmounts(data, obj); err == nil {
		strict, err = kjson.UnmarshalStrict(data, obj, kjson.DisallowUnknownFields)
	}
	if err != nil {
		return nil, nil, apierrors.NewInvalid(kind.GVK().GroupKind(), "", field.ErrorList{
			field.Invalid(field.NewPath("patch"), "", err.Error())})
	}
	return obj, messages(strict), nil
}

func patchTree(data []byte) (map[string]any, []string, error) {
	var tree map[string]any
	strict, err := kjson.UnmarshalStrict(data, &tree, kjson.DisallowDuplicateFields)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	if tree == nil {
		return nil, nil, apierrors.NewBadRequest("error decoding patch: a JSON object was expected")
	}
	return tree, messages(strict), nil
}

func messages(errs []error) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return out
}

func strategic(kind *Kind, doc, patch map[string]any) (map[string]any, error) {
	out, err := mergeStrategic(reflect.TypeOf(kind.New()), doc, patch)
	if err != nil { // whoever asks so made the mistake
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot apply strategic merge patch to %s: %v", kind.Singular, err))
	}
	return out, nil
}

// mergeJSON is RFC 7386: null removes, objects merge, everything else replaces.
func mergeJSON(target any, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out, ok := target.(map[string]any)
	if !ok {
		out = map[string]any{}
	}
	for k, v := range changes {
		if v == nil {
			delete(out, k)
		} else {
			out[k] = mergeJSON(out[k], v)
		}
	}
	return out
}

// UnsupportedPatch is the 415 of a patch format that is not spoken here.
func UnsupportedPatch(t types.PatchType) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure,
		Code:   http.StatusUnsupportedMediaType,
		Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unknown format (%s) - accepted media types include: %s, %s, %s",
			t, types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType),
	}}
}

// patchRefused is the 422 of a JSON patch that can be read but not applied.
func patchRefused(format string, args ...any) error {
	err := apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "", 0, false)
	err.ErrStatus.Message = fmt.Sprintf(format, args...)
	return err
}
