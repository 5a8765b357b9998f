package page

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"ledge/api"
)

const (
	firstLines = 200       // of a log, when it is opened
	mostLog    = 128 << 10 // bytes of it in a page
	mostLine   = 8 << 10   // bytes of a line in a stream; what is longer is cut
	mostBatch  = 64        // lines that are sent together
	mostSent   = 64 << 10  // bytes of them
)

// log shows what a container has written, and goes on while it is watched.
func (p *Page) log(w http.ResponseWriter, r *http.Request) {
	lines, q := int64(firstLines), r.URL.Query()
	opts := api.LogOptions{Container: q.Get("container"), Previous: q.Get("previous") == "true", TailLines: &lines}
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		p.follow(w, r, namespace, name, opts)
		return
	}
	log, err := p.c.API.Logs(r.Context(), namespace, name, opts)
	if err != nil {
		fail(w, r, err)
		return
	}
	defer log.Close()
	data, err := io.ReadAll(io.LimitReader(log, mostLog))
	if err != nil {
		fail(w, r, err)
		return
	}
	if wantsJSON(r) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"lines": strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")})
		return
	}
	if strings.HasPrefix(r.Header.Get("Accept"), "text/plain") {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(data)
		return
	}
	back := "/pods/" + pathOf(namespace) + "/" + pathOf(name)
	p.write(w, r, http.StatusOK, "Log of "+name, []markup{el("p", link(back, "To the pod")),
		el("pre", at("id", "log"), class("log"), at("tabindex", "0"), at("aria-label", "log"), strings.ToValidUTF8(string(data), "\uFFFD"))}, !opts.Previous)
}

// follow sends each line, as events of some lines each.
func (p *Page) follow(w http.ResponseWriter, r *http.Request, namespace, name string, opts api.LogOptions) {
	ctx, cancel := p.until(r)
	defer cancel()
	opts.Follow = true
	log, err := p.c.API.Logs(ctx, namespace, name, opts)
	if err != nil {
		fail(w, r, err)
		return
	}
	defer log.Close()
	out, leave, err := p.begin(w)
	if err != nil {
		fail(w, r, err)
		return
	}
	defer leave()
	if out.event("lines", []string{}) != nil { // what follows begins anew
		return
	}
	lines := make(chan string, mostBatch)
	go read(ctx, log, lines)
	quiet := time.NewTicker(beat)
	defer quiet.Stop()
	for {
		var batch []string
		size := 0
		select {
		case <-ctx.Done():
			return
		case <-quiet.C:
			if out.event("beat", "") != nil {
				return
			}
			continue
		case line, open := <-lines:
			if !open {
				_ = out.event("end", "the log has ended")
				return
			}
			batch, size = append(batch, line), len(line)
		}
		for more := true; more && len(batch) < mostBatch && size < mostSent; {
			select {
			case line, open := <-lines:
				if more = open; open {
					batch, size = append(batch, line), size+len(line)
				}
			default:
				more = false
			}
		}
		if out.event("more", batch) != nil {
			return
		}
	}
}

// read hands on the lines of a log until it or ctx ends. What is beyond mostLine of one is left out.
func read(ctx context.Context, log io.Reader, lines chan<- string) {
	defer close(lines)
	in := bufio.NewReaderSize(log, mostLine)
	for {
		line, err := in.ReadSlice('\n')
		text := strings.ToValidUTF8(strings.TrimSuffix(string(line), "\n"), "\uFFFD")
		for cut := false; errors.Is(err, bufio.ErrBufferFull); _, err = in.ReadSlice('\n') {
			if !cut {
				text, cut = text+" …", true
			}
		}
		if err != nil && text == "" {
			return
		}
		select {
		case lines <- text:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}
