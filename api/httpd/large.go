package httpd

import (
	"bytes"
	"compress/flate"
	"context"
	"io"
	"net/http"
	"sync"
)

// largeDocument is made out of megabytes when it is first asked for, and kept packed: few ask for it, and as it is it would
// be the largest thing in memory.
type largeDocument struct {
	build func() ([]byte, error)

	mu     sync.Mutex
	packed []byte // nil: not made yet
	length int
}

func (d *largeDocument) serve(w *response, r *request, media string, l *limits) error {
	packed, length, err := d.get(r.Context(), l)
	if err != nil {
		return err
	}
	w.head(http.StatusOK, media, length)
	_, _ = io.Copy(&pacer{w}, flate.NewReader(bytes.NewReader(packed))) // the client is gone
	return nil
}

// get gives it packed, and how long it is. It is made while nothing is decoded.
func (d *largeDocument) get(ctx context.Context, l *limits) (packed []byte, length int, err error) {
	if packed, length := d.kept(); packed != nil {
		return packed, length, nil
	}
	done, err := acquire(ctx, l.decodes, maxDecoding, nil)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	if packed, length := d.kept(); packed != nil {
		return packed, length, nil
	}
	body, err := d.build()
	if err != nil {
		return nil, 0, err
	}
	var out bytes.Buffer
	z, err := flate.NewWriter(&out, flate.BestSpeed)
	if err == nil {
		_, err = z.Write(body)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return nil, 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.packed, d.length = bytes.Clone(out.Bytes()), len(body)
	return d.packed, d.length, nil
}

func (d *largeDocument) kept() ([]byte, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.packed, d.length
}
