package httpd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"

	"ledge/api"
)

// wire tells whether this request may have JSON as the store has it, without a decode and an encode, and gives the client that hands it
// out. A board that asks for pods of others is shown a part of each, so its answers are made anew.
func (h *handler) wire(r *request) (api.Wire, form, bool) {
	wire, ok := h.client.(api.Wire)
	form, err := r.form()
	return wire, form, ok && err == nil && form.as == asObject && !r.binary() && !r.showsPeers()
}

// lengthOf is sizeOf for objects in JSON.
func lengthOf(objs ...[]byte) (n int) {
	for _, o := range objs {
		n += len(o)
	}
	return n
}

func getJSON(w *response, r *request, places *answers, wire api.Wire, form form) error {
	pretty, err := queryBool(r.query, "pretty")
	if err != nil {
		return err
	}
	data, err := readInPlace(r.Context(), places, w, new(atomic.Bool),
		func() ([]byte, error) { return wire.GetJSON(r.Context(), r.kind, r.namespace, r.name) },
		func(data []byte) int { return len(data) },
		func([]byte) {})
	if err != nil {
		return err
	}
	var indented bytes.Buffer
	if pretty && json.Indent(&indented, data, "", "  ") == nil {
		data = indented.Bytes()
	}
	w.body(http.StatusOK, form.contentType(), append(data, '\n'))
	return nil
}

func listJSON(w *response, r *request, form form, list api.Page[[]byte]) error {
	w.release()
	w.Header().Set("Content-Type", form.contentType())
	w.Header().Set("Cache-Control", "no-cache, private")
	return writeList(w, headOf(r.kind, list), "items", len(list.Items), func(out *bufio.Writer, i int) error {
		_, err := out.Write(list.Items[i])
		return err
	})
}

// lineJSON writes one event of a watch.
func lineJSON(out io.Writer, e api.EventOf[[]byte], _ bool) error {
	for _, part := range [][]byte{[]byte(`{"type":"` + string(e.Type) + `","object":`), e.Object, []byte("}\n")} {
		if _, err := out.Write(part); err != nil {
			return err
		}
	}
	return nil
}
