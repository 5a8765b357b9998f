package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
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
// that reads as one is refused. Numbers of fields and lengths count in all the ways in which readers take them: more bytes than are needed
// for one are read as well.
func CheckProtobufAmounts(data []byte) error {
	for from := 0; from < len(data); {
		if !isAmountByte(data[from]) {
			from++
			continue
		}
		to := from + 1
		for to < len(data) && isAmountByte(data[to]) {
			to++
		}
		// The last byte of the length, and that of the field before it, may look like the first of an amount.
		for at := from; at < min(from+3, to); at++ {
			if text, ok := amountAt(data, at, to); ok && farExponent(text) {
				return fmt.Errorf("%.40q has an exponent beyond %d: write the amount with a unit, such as 100m or 2Gi", text, mostExponent)
			}
		}
		from = to
	}
	return nil
}

// amountAt is the longest text at a place of a message, and before end, which stands there as a first field.
func amountAt(data []byte, at, end int) (text []byte, ok bool) {
	for start, size := range varintsBefore(data, at) {
		if size == 0 || size > uint64(end-at) || size <= uint64(len(text)) {
			continue
		}
		for _, tag := range varintsBefore(data, start) {
			if tag&7 == 2 && int32(tag>>3) == 1 {
				text = data[at : at+int(size)]
			}
		}
	}
	return text, text != nil
}

// varintsBefore are the numbers that end before a place, with where they begin.
func varintsBefore(data []byte, at int) iter.Seq2[int, uint64] {
	return func(yield func(int, uint64) bool) {
		n := uint64(0)
		for i := at - 1; i >= 0 && i >= at-10 && (data[i] < 0x80) == (i == at-1); i-- {
			if n = n<<7 | uint64(data[i]&0x7f); !yield(i, n) {
				return
			}
		}
	}
}

func isAmountByte(b byte) bool {
	return b >= '0' && b <= '9' || b == '.' || b == '+' || b == '-' || b == 'e' || b == 'E'
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
