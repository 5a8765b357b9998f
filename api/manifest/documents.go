package manifest

import (
	"bytes"
	"fmt"
)

// Document is one of those that a file of YAML has.
type Document struct {
	Number int // from 0; what is empty between two lines of dashes counts
	Above  int // lines of the file
	Data   []byte
	Bad    error // why it is none
}

// Documents cuts a file where a line of dashes stands, maybe with a comment behind them. Whoever reads manifests asks it: what one
// takes for a document, and says to be wrong with it, is the same for all.
func Documents(file []byte) (out []Document) {
	file = bytes.ReplaceAll(bytes.TrimPrefix(file, []byte("\ufeff")), []byte("\r\n"), []byte("\n"))
	now := Document{}
	end := func(line, from, to int) {
		if now.Data = file[from:to]; len(now.Data) > 0 {
			out = append(out, now)
		}
		now = Document{Number: len(out), Above: line}
	}
	start, at := 0, 0
	for n := 1; at < len(file); n++ {
		line, _, _ := bytes.Cut(file[at:], []byte("\n"))
		next := min(at+len(line)+1, len(file))
		if rest, cut := bytes.CutPrefix(line, []byte("---")); cut {
			rest = bytes.TrimSpace(rest)
			switch {
			case len(rest) > 0 && rest[0] != '#':
				if now.Bad == nil {
					now.Bad = fmt.Errorf("yaml: line %d: behind --- may stand nothing but a comment", n-now.Above)
				}
			case start < at: // else it is the line that a document begins with
				end(n, start, at)
				start = next
			}
		}
		at = next
	}
	end(0, start, len(file))
	return out
}
