// Package valid has the checks that the kinds of several API groups make. It knows no kind, and imports nothing of ledge.
package valid

import (
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

// NotNegative reports a number below 0.
func NotNegative(n int32, at *field.Path) field.ErrorList {
	if n >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, n, "must be greater than or equal to 0")}
}
