package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"ledge/api/manifest"
	"ledge/firstboot"
)

// ReadKeys reads one file of the configuration, as keys and values that fit. Its errors name the key as it stands in the file: those of
// the decoders name fields of Go.
func ReadKeys(data []byte) (map[string]any, error) {
	docs := slices.DeleteFunc(manifest.Documents(data), func(d manifest.Document) bool {
		var v any
		return yaml.Unmarshal(d.Data, &v) == nil && v == nil // comments
	})
	if len(docs) > 1 {
		return nil, errors.New("more than one document stands in it: remove the lines of dashes, or what follows the first")
	}
	raw, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		text := firstboot.OneLine(err)
		for _, noise := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors: "} {
			text = strings.TrimPrefix(text, noise)
		}
		return nil, errors.New(text)
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	keys, ok := v.(map[string]any)
	if v != nil && !ok {
		return nil, fmt.Errorf("keys and their values are wanted, as in maxPods: 20; %s stands there", shown(v))
	}
	_, err = fit("", keys, reflect.TypeFor[File]())
	return keys, err
}

// fit gives a value as a type wants it, or says why it cannot be. A null is nothing, wherever it stands.
func fit(key string, v any, t reflect.Type) (any, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	text, isText := v.(string)
	number, isNumber := v.(float64)
	_, isBool := v.(bool)
	want, fits := "", v == nil
	switch k := t.Kind(); {
	case t == reflect.TypeFor[metav1.Duration]():
		_, err := time.ParseDuration(text)
		want, fits = "is no duration such as 5s or 1m30s", fits || isText && err == nil
	case t == reflect.TypeFor[metav1.Time]():
		_, err := time.Parse(time.RFC3339, text)
		want, fits = "is no time such as 2026-01-31T15:04:05Z", fits || isText && err == nil
	case k == reflect.Struct || k == reflect.Map:
		if of, ok := v.(map[string]any); ok {
			return of, fitKeys(key, of, t)
		}
		want = "is no map of keys and values"
	case k == reflect.Slice:
		list, ok := v.([]any)
		for i := range list {
			var err error
			if list[i], err = fit(fmt.Sprintf("%s[%d]", key, i), list[i], t.Elem()); err != nil {
				return v, err
			}
		}
		want, fits = "is no list", fits || ok
	case k == reflect.String && (isNumber || isBool) && key == "page.password": // YAML has another text for some of those than was typed
		return v, fmt.Errorf("%s: put it in quotes", key)
	case k == reflect.String && isNumber:
		return strconv.FormatFloat(number, 'f', -1, 64), nil
	case k == reflect.String && isBool:
		return fmt.Sprint(v), nil
	case k == reflect.String:
		want, fits = "is no text", fits || isText
	case k == reflect.Bool:
		want, fits = "is neither true nor false", fits || isBool
	case k == reflect.Float64:
		want, fits = "is no number", fits || isNumber
	case isNumber && number == math.Trunc(number):
		want, fits = "is too large", math.Abs(number) < 1<<62 && !reflect.Zero(t).OverflowInt(int64(number))
	default:
		want = "is no whole number"
	}
	if fits {
		return v, nil
	}
	return v, fmt.Errorf("%s: %s %s", key, shown(v), want)
}

// fitKeys looks at each key, of a map or of a struct. As with a kubelet, small and capital letters are not the same.
func fitKeys(key string, of map[string]any, t reflect.Type) (err error) {
	fields := map[string]reflect.Type{}
	if t.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				fields[name] = f.Type
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		at := strings.TrimPrefix(key+"."+name, ".")
		field, known := fields[name]
		if t.Kind() == reflect.Map {
			field, known = t.Elem(), true
		}
		if !known {
			return errors.New(strings.TrimSuffix(fmt.Sprintf("key %q is not known. %s", at, firstboot.Suggest(name, fields)), ". "))
		}
		if of[name], err = fit(at, of[name], field); err != nil {
			return err
		}
	}
	return nil
}

// shown is a value for a line of people's.
func shown(v any) string {
	const most = 40
	text, err := json.Marshal(v)
	if err != nil || len(text) > most {
		return strings.ToValidUTF8(string(text[:min(len(text), most)]), "") + "..."
	}
	return string(text)
}

// Keys are those of the configuration file.
func Keys() (keys []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[File]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" && !slices.Contains([]string{"server", "tokenFile", "listen"}, name) { // these have words of their own
			keys = append(keys, name)
		}
	}
	return keys
}
