package httpd

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"ledge/api"
)

// strictness is fieldValidation: what becomes of unknown and duplicate fields (N-11.15).
type strictness string

const (
	ignore strictness = "Ignore"
	warn   strictness = "Warn"
	strict strictness = "Strict"
)

func strictnessOf(r *request) (strictness, error) {
	v := strictness(r.query.Get("fieldValidation"))
	switch v {
	case "":
		return warn, nil
	case ignore, warn, strict:
		return v, nil
	}
	return "", invalidOption("CreateOptions", field.NotSupported(field.NewPath("fieldValidation"), v, []strictness{ignore, strict, warn}))
}

// readObject reads the request's body into obj. The body must be of one of the kinds, or name none.
func (in *intake) readObject(w *response, r *request, b bound, obj runtime.Object, kinds ...schema.GroupVersionKind) error {
	fields, err := strictnessOf(r)
	if err != nil {
		return err
	}
	media, err := mediaType(r.Header)
	if err != nil {
		return err
	}
	if !slices.Contains([]string{mediaJSON, mediaYAML, mediaProtobuf}, media) {
		return errMediaType("the Content-Type %q is not one of %s, %s, %s", media, mediaJSON, mediaYAML, mediaProtobuf)
	}
	data, free, err := in.readBody(w, r, b.bytes)
	if err != nil {
		return err
	}
	defer free()
	if len(data) == 0 {
		return &emptyBody{badRequest("the body is empty: a %s was expected", kinds[0].Kind)}
	}
	done, err := in.limits.decoding(r.Request, weightOf(data, media, b))
	if err != nil {
		return err
	}
	w.hold(done)
	problems, err := decode(data, media, b, obj, kinds)
	if err != nil {
		return badRequest("%s in version %q cannot be handled: %v", kinds[0].Kind, kinds[0].GroupVersion(), err)
	}
	return judge(w, fields, problems, kinds[0])
}

// emptyBody is the 400 of a body that is missing, for those who can do without.
type emptyBody struct{ error }

func (e *emptyBody) Unwrap() error { return e.error }

// judge does with unknown and duplicate fields what the caller asked for.
func judge(w *response, fields strictness, problems []string, kind schema.GroupVersionKind) error {
	if len(problems) == 0 {
		return nil
	}
	switch fields {
	case strict:
		return badRequest("%s in version %q cannot be handled as a %s: strict decoding error: %s",
			kind.Kind, kind.GroupVersion(), kind.Kind, strings.Join(problems, ", "))
	case warn:
		w.warned = append(w.warned, problems...)
		addWarnings(w.Header(), problems)
	}
	return nil
}

// addWarnings writes Warning headers (RFC 7234, code 299), which kubectl prints.
func addWarnings(head http.Header, problems []string) {
	const most = 10
	for i, p := range problems {
		if i == most {
			head.Add("Warning", fmt.Sprintf(`299 - "and %d more"`, len(problems)-most))
			return
		}
		head.Add("Warning", "299 - "+quoteWarning(p, 256))
	}
}

// maxWarning is the length of a warning of ours. Those that a client writes itself are shorter.
const maxWarning = 1024

// quoteWarning makes a quoted-string of a text that may hold anything the client sent.
func quoteWarning(s string, most int) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c < ' ' || c == 0x7f:
			b.WriteByte(' ')
		default:
			b.WriteRune(c)
		}
		if b.Len() > most {
			b.WriteString("...")
			break
		}
	}
	b.WriteByte('"')
	return b.String()
}

// decode reads an object in one of the media types. problems are the unknown and duplicate fields.
func decode(data []byte, media string, b bound, obj runtime.Object, kinds []schema.GroupVersionKind) (problems []string, err error) {
	switch media {
	case mediaProtobuf:
		err = decodeProtobuf(data, b, obj, kinds)
	case mediaYAML:
		problems, err = decodeYAML(data, b.elements, obj)
	default:
		problems, err = decodeJSON(data, b.elements, obj)
	}
	if err != nil {
		return nil, err
	}
	if err := checkKind(obj.GetObjectKind().GroupVersionKind(), kinds); err != nil {
		return nil, err
	}
	return problems, nil
}

// checkKind: a body may leave out its kind, but not name another one.
func checkKind(got schema.GroupVersionKind, want []schema.GroupVersionKind) error {
	if got.Empty() || slices.Contains(want, got) {
		return nil
	}
	for _, w := range want {
		if got.Kind == w.Kind && got.GroupVersion().Empty() || got.Kind == "" && got.GroupVersion() == w.GroupVersion() {
			return nil
		}
	}
	return fmt.Errorf("the body is a %s of %s, a %s of %s was expected", got.Kind, got.GroupVersion(), want[0].Kind, want[0].GroupVersion())
}

func decodeJSON(data []byte, most int, obj any) ([]string, error) {
	if err := prescan(data, most); err != nil {
		return nil, err
	}
	if err := api.CheckAmounts(data, obj); err != nil {
		return nil, err
	}
	found, err := kjson.UnmarshalStrict(data, obj)
	if err != nil {
		return nil, err
	}
	problems := make([]string, len(found))
	for i, f := range found {
		problems[i] = f.Error()
	}
	return problems, nil
}

func decodeYAML(data []byte, most int, obj any) ([]string, error) {
	if err := checkYAML(data, most); err != nil {
		return nil, err
	}
	var duplicates []string
	out, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		// Duplicate keys are the only thing the strict form refuses and the other does not.
		duplicates = []string{strings.ReplaceAll(err.Error(), "\n", " ")}
		if out, err = yaml.YAMLToJSON(data); err != nil {
			return nil, err
		}
	}
	problems, err := decodeJSON(out, most, obj)
	return append(duplicates, problems...), err
}

// decodeProtobuf opens the envelope and has the type read its own wire form. Fields this build does not know are
// skipped, as on Kubernetes: protobuf gives them no name to report.
func decodeProtobuf(data []byte, b bound, obj runtime.Object, kinds []schema.GroupVersionKind) error {
	envelope, err := api.OpenProtobuf(data)
	if err != nil {
		return err
	}
	kind := schema.FromAPIVersionAndKind(envelope.APIVersion, envelope.Kind)
	if err := checkKind(kind, kinds); err != nil {
		return err
	}
	m, ok := obj.(interface{ Unmarshal([]byte) error })
	if !ok {
		return fmt.Errorf("%s has no protobuf form", kinds[0].Kind)
	}
	if err := countProtobuf(envelope.Raw, b.elements, b.messages); err != nil {
		return err
	}
	if err := api.CheckProtobufAmounts(envelope.Raw); err != nil {
		return err
	}
	if err := m.Unmarshal(envelope.Raw); err != nil {
		return err
	}
	obj.GetObjectKind().SetGroupVersionKind(kind)
	return nil
}
