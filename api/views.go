package api

// Form says how a kind shows the objects of another one.
type Form struct {
	Of   *Kind
	Show func(Object) Object // an object of Of in this form
	Read func(Object) Object // and back
	// Fields are the names that fields of a selector have here, where they are called otherwise in one over Of, by those.
	Fields map[string]string
	// Renamed are the fields of an object that are called otherwise in one of Of, by their names there.
	Renamed map[string]string
	// Configure turns a configuration that is to be applied into one of Of, where names of its own are not all that differs.
	Configure func(config map[string]any) error
}

// shown is the name here of a field of a selector over Of.
func (f *Form) shown(name string) string {
	if here, ok := f.Fields[name]; ok {
		return here
	}
	return name
}

// field is the name over Of of a field of a selector here.
func (f *Form) field(name string) string {
	for of, here := range f.Fields {
		if here == name {
			return of
		}
	}
	return name
}

// OverOf is a selection over the objects of Of that picks what one here does.
func (f *Form) OverOf(s Selection) (Selection, error) {
	var err error
	if s.Fields != nil {
		s.Fields, err = s.Fields.Transform(func(name, value string) (string, string, error) { return f.field(name), value, nil })
	}
	return s, err
}
