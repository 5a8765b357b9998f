// Package valid has the checks that the kinds of several API groups make. It knows no kind, and imports nothing of ledge.
package valid

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Name reports what is wrong with a name that points to another object.
func Name(name string, at *field.Path) field.ErrorList {
	return Each(validation.IsDNS1123Subdomain(name), func(msg string) *field.Error { return field.Invalid(at, name, msg) })
}

// Each makes one error of each message.
func Each(msgs []string, err func(msg string) *field.Error) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range msgs {
		errs = append(errs, err(msg))
	}
	return errs
}

// OneOf reports a value outside a set. Empty is required to be set.
func OneOf[T ~string](v T, at *field.Path, valid ...T) field.ErrorList {
	if v == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	for _, ok := range valid {
		if v == ok {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(at, v, valid)}
}

// Required reports a text that is empty.
func Required(text string, at *field.Path) field.ErrorList {
	if text == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return nil
}

// Segment reports a name that cannot stand between two slashes of a path. Empty is required to be set.
func Segment(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return Each(content.IsPathSegmentName(name), func(msg string) *field.Error { return field.Invalid(at, name, msg) })
}

// NotNegative reports a number below 0.
func NotNegative(n int32, at *field.Path) field.ErrorList {
	if n >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, n, "must be greater than or equal to 0")}
}

// Amount reports what is neither a number of pods nor a part of them in percent.
func Amount(v intstr.IntOrString, at *field.Path) field.ErrorList {
	if v.Type == intstr.Int {
		return NotNegative(v.IntVal, at)
	}
	return Each(validation.IsValidPercent(v.StrVal), func(msg string) *field.Error { return field.Invalid(at, v, msg) })
}

// AtMostAll reports a percentage above 100.
func AtMostAll(v intstr.IntOrString, at *field.Path) field.ErrorList {
	if v.Type == intstr.Int || len(validation.IsValidPercent(v.StrVal)) > 0 {
		return nil
	}
	if n, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%")); err != nil || n > 100 {
		return field.ErrorList{field.Invalid(at, v, "must not be greater than 100%")}
	}
	return nil
}

// Count is how many of the replicas of a status are something.
type Count struct {
	Name string
	N    int32
}

// Counts reports numbers of pods in a status that are negative, and those that are more than there are.
func Counts(at *field.Path, replicas int32, of ...Count) field.ErrorList {
	errs := NotNegative(replicas, at.Child("replicas"))
	for _, c := range of {
		errs = append(errs, NotNegative(c.N, at.Child(c.Name))...)
		if c.N > replicas {
			errs = append(errs, field.Invalid(at.Child(c.Name), c.N, "cannot be greater than status.replicas"))
		}
	}
	return errs
}
