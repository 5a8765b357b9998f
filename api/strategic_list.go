package api

import (
	"errors"
	"fmt"
	"slices"
)

// mergeList applies the patch of a list. order, if there is one, says how the elements stand that it names.
func (m patchMeta) mergeList(doc, patch, order []any) ([]any, error) {
	if err := followsOrder(patch, order, m.key); err != nil {
		return nil, err
	}
	if m.strategy != "merge" {
		if order == nil {
			return patch, nil
		}
		return arrange(patch, doc, order, m.key)
	}
	if len(doc) == 0 && len(patch) == 0 {
		return doc, nil
	}
	objects, err := ofObjects(doc, patch)
	if err != nil {
		return nil, err
	}
	merged := doc
	if !objects {
		merged, err = union(doc, patch)
	} else {
		doc, patch, merged, err = m.mergeObjects(doc, patch)
	}
	if err != nil {
		return nil, err
	}
	if order == nil {
		order = patch
	}
	return arrange(merged, doc, order, m.key)
}

// ofObjects tells lists of objects from lists of plain values; a mixture or a list of lists is neither.
func ofObjects(lists ...[]any) (bool, error) {
	var objects, scalars bool
	for _, list := range lists {
		for _, item := range list {
			switch item.(type) {
			case map[string]any:
				objects = true
			case []any, nil:
				return false, errors.New("a list to be merged holds a list or null")
			default:
				scalars = true
			}
		}
	}
	if objects && scalars {
		return false, errors.New("a list to be merged holds objects and plain values")
	}
	return objects, nil
}

// union is one list after the other, without what was there already.
func union(doc, patch []any) ([]any, error) {
	var out []any
	for _, v := range slices.Concat(doc, patch) {
		if !slices.ContainsFunc(out, func(o any) bool { return sameScalar(o, v) }) {
			out = append(out, v)
		}
	}
	return out, nil
}

// mergeObjects obeys the directives among the elements and merges the others by key. It returns the list as it was
// without what the directives took, the patch without the directives, and the two merged.
func (m patchMeta) mergeObjects(doc, patch []any) (before, wanted, merged []any, err error) {
	if m.key == "" {
		return nil, nil, nil, errors.New("the list has no merge key")
	}
	replace := false
	for _, item := range patch {
		obj := item.(map[string]any)
		d, ok := obj[patchDirective]
		switch {
		case !ok:
			wanted = append(wanted, item)
		case d == "replace":
			replace = true
		case d == "delete":
			key, err := keyOf(item, m.key)
			if err != nil {
				return nil, nil, nil, err
			}
			doc = slices.DeleteFunc(doc, func(v any) bool { k, err := keyOf(v, m.key); return err == nil && k == key })
		default:
			return nil, nil, nil, fmt.Errorf("%s: %v is neither replace nor delete", patchDirective, d)
		}
	}
	if replace {
		doc, wanted = wanted, nil
	}
	merged = slices.Clone(doc)
	for _, item := range wanted {
		key, err := keyOf(item, m.key)
		if err != nil {
			return nil, nil, nil, err
		}
		i := slices.IndexFunc(merged, func(v any) bool { k, err := keyOf(v, m.key); return err == nil && k == key })
		if i < 0 {
			merged = append(merged, withoutDirectives(item, false))
			continue
		}
		obj, err := mergeStrategic(m.t, merged[i].(map[string]any), item.(map[string]any))
		if err != nil {
			return nil, nil, nil, fmt.Errorf("%v: %w", key, err)
		}
		merged[i] = obj
	}
	return doc, wanted, merged, nil
}

// keyOf is what tells an element from others: its merge key, or without one itself.
func keyOf(item any, key string) (any, error) {
	if key != "" {
		obj, ok := item.(map[string]any)
		if !ok {
			return nil, errors.New("an object was expected in the list")
		}
		if item, ok = obj[key]; !ok {
			return nil, fmt.Errorf("an element has no %s, by which the list is merged", key)
		}
	}
	switch item.(type) {
	case map[string]any, []any:
		return nil, fmt.Errorf("a plain value was expected for %s", key)
	}
	return item, nil
}

func sameScalar(a, b any) bool {
	ka, err := keyOf(a, "")
	if err != nil {
		return false
	}
	kb, err := keyOf(b, "")
	return err == nil && ka == kb
}

// followsOrder: what a patch sets must be named by the order it gives, in that order.
func followsOrder(patch, order []any, key string) error {
	if len(order) == 0 {
		return nil
	}
	at := 0
	for _, item := range patch {
		if obj, ok := item.(map[string]any); ok {
			if _, directive := obj[patchDirective]; directive {
				continue
			}
		}
		k, err := keyOf(item, key)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(order[at:], func(o any) bool { ok, err := keyOf(o, key); return err == nil && ok == k })
		if i < 0 {
			return fmt.Errorf("%s does not name %v, or names it elsewhere", orderDirective, k)
		}
		at += i + 1
	}
	return nil
}

// arrange puts the elements that order names in its order and leaves the others in that of before; an element of these
// stands before the first of those that it stood before.
func arrange(items, before, order []any, key string) ([]any, error) {
	place := func(list []any) (map[any]int, error) {
		out := map[any]int{}
		for i, v := range list {
			k, err := keyOf(v, key)
			if err != nil {
				return nil, err
			}
			if _, ok := out[k]; !ok {
				out[k] = i
			}
		}
		return out, nil
	}
	asOrdered, err := place(order)
	if err != nil {
		return nil, err
	}
	asBefore, err := place(before)
	if err != nil {
		return nil, err
	}
	if _, err := place(items); err != nil { // every element has a key from here on
		return nil, err
	}
	k := func(v any) any { out, _ := keyOf(v, key); return out }
	var named, others []any
	for _, v := range items {
		if _, ok := asOrdered[k(v)]; ok {
			named = append(named, v)
		} else {
			others = append(others, v)
		}
	}
	slices.SortStableFunc(named, func(a, b any) int { return asOrdered[k(a)] - asOrdered[k(b)] })
	slices.SortStableFunc(others, func(a, b any) int { return asBefore[k(a)] - asBefore[k(b)] })
	out := make([]any, 0, len(items))
	for len(others) > 0 && len(named) > 0 {
		o, known := asBefore[k(others[0])]
		n, wasThere := asBefore[k(named[0])]
		if known && wasThere && o < n {
			out, others = append(out, others[0]), others[1:]
		} else {
			out, named = append(out, named[0]), named[1:]
		}
	}
	return append(append(out, named...), others...), nil
}
