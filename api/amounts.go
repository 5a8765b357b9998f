package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	kjson "sigs.k8s.io/json"
)

// An amount is read and compared by multiplying it out: "1e-1000000000" takes all processors and all memory for minutes, inside of the
// function that reads it. So nothing that holds such an exponent is read as an amount. Kubernetes has no such bound.

// mostExponent is far beyond what an amount can come to (Quantity holds 64 bits and thousandths of millionths).
const mostExponent = 100

// CheckAmounts refuses JSON that has amounts nobody can read in the places where obj, a pointer, has amounts.
func CheckAmounts(data []byte, obj any) error {
	if !farExponent(data) && !bytes.Contains(data, []byte(`\u00`)) { // an "e" may be written so
		return nil
	}
	var tree any
	strict, err := kjson.UnmarshalStrict(data, &tree, kjson.DisallowDuplicateFields)
	if err = errors.Join(append(strict, err)...); err != nil { // of two values of one key only one is looked at
		return err
	}
	exact := json.NewDecoder(bytes.NewReader(data))
	exact.UseNumber()
	if err := exact.Decode(&tree); err != nil {
		return err
	}
	return checkAmounts(tree, reflect.TypeOf(obj), "")
}

var amountType = reflect.TypeFor[resource.Quantity]()

func checkAmounts(tree any, t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == amountType {
		if text := fmt.Sprint(tree); farExponent([]byte(text)) {
			return fmt.Errorf("%s: %.40q has an exponent beyond %d: write the amount with a unit, such as 100m or 2Gi", path, text, mostExponent)
		}
		return nil
	}
	switch tree := tree.(type) {
	case []any:
		if t.Kind() != reflect.Slice {
			return nil
		}
		for i, v := range tree {
			if err := checkAmounts(v, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, v := range tree {
			for _, to := range typesOf(t, name) {
				if err := checkAmounts(v, to, strings.TrimPrefix(path+"."+name, ".")); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// typesOf are what a value of that name may be read into. Some readers do not ask how a name is written.
func typesOf(t reflect.Type, name string) (out []reflect.Type) {
	if t.Kind() == reflect.Map {
		return []reflect.Type{t.Elem()}
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for f := range t.Fields() {
		called, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && called == "":
			in := f.Type
			for in.Kind() == reflect.Pointer {
				in = in.Elem()
			}
			out = append(out, typesOf(in, name)...)
		case strings.EqualFold(called, name) || called == "" && strings.EqualFold(f.Name, name):
			out = append(out, f.Type)
		}
	}
	return out
}

// CheckProtobufAmounts is CheckAmounts for the binary form, where an amount is the first field of its message: any text at such a place
// that reads as one is refused.
func CheckProtobufAmounts(data []byte) error {
	for rest := data; ; {
		at := bytes.IndexByte(rest, 1<<3|2) // field 1, and its length
		if at < 0 || at+1 >= len(rest) {
			return nil
		}
		rest = rest[at+1:]
		if n := int(rest[0]); n < 128 && n < len(rest) && isAmount(rest[1:1+n]) && farExponent(rest[1:1+n]) {
			return fmt.Errorf("%.40q has an exponent beyond %d: write the amount with a unit, such as 100m or 2Gi", rest[1:1+n], mostExponent)
		}
	}
}

func isAmount(text []byte) bool {
	return len(bytes.Trim(text, "0123456789.eE+-")) == 0 && bytes.ContainsAny(text, "0123456789")
}

// farExponent says whether a number with an exponent beyond the bound stands anywhere in a text.
func farExponent(text []byte) bool {
	for {
		at := bytes.IndexAny(text, "eE")
		if at < 0 {
			return false
		}
		number := at > 0 && (text[at-1] >= '0' && text[at-1] <= '9' || text[at-1] == '.')
		if text = text[at+1:]; !number {
			continue
		}
		digits, exponent := bytes.TrimLeft(text, "+-"), 0
		for i := 0; i < len(digits) && digits[i] >= '0' && digits[i] <= '9' && exponent <= mostExponent; i++ {
			exponent = 10*exponent + int(digits[i]-'0')
		}
		if exponent > mostExponent {
			return true
		}
	}
}
