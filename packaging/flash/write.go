package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// chunk is written and compared at a time: cards are fast in pieces of their erase blocks.
const chunk = 4 << 20

// sums are of the chunks as they were written; the last may be shorter.
type sums struct {
	size int64
	of   [][sha256.Size]byte
}

// forget wipes the table of partitions that some disks have a copy of at their end: it would outlive the image.
func forget(card io.WriterAt, size int64) error {
	n := min(size, 1<<20)
	_, err := card.WriteAt(make([]byte, n), size-n)
	return err
}

// write copies the image, and fails where it is shorter or longer than it said.
func write(ctx context.Context, card io.WriterAt, im *image, b *bar) (sums, error) {
	var s sums
	buf := make([]byte, chunk)
	for {
		if err := ctx.Err(); err != nil {
			return s, fmt.Errorf("stopped after %s: the card is not usable now", inWords(s.size))
		}
		n, err := io.ReadFull(im.data, buf)
		if n > 0 {
			if _, err := card.WriteAt(buf[:n], s.size); err != nil {
				return s, fmt.Errorf("at %s: %w", inWords(s.size), err)
			}
			s.size += int64(n)
			s.of = append(s.of, sha256.Sum256(buf[:n]))
			b.add(int64(n))
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return s, err
		}
	}
	if err := im.end(); err != nil {
		return s, err
	}
	if s.size != im.size {
		return s, fmt.Errorf("the image was to have %d bytes and had %d", im.size, s.size)
	}
	return s, nil
}

// compare reads back what write has written.
func compare(ctx context.Context, card io.ReaderAt, s sums, b *bar) error {
	buf := make([]byte, chunk)
	for i, want := range s.of {
		if ctx.Err() != nil {
			return errors.New("stopped: the card was written, but not compared")
		}
		at := int64(i) * chunk
		part := buf[:min(chunk, s.size-at)]
		if _, err := card.ReadAt(part, at); err != nil {
			return fmt.Errorf("at %s: %w", inWords(at), err)
		}
		if sha256.Sum256(part) != want {
			return fmt.Errorf("between %s and %s it is not what was written: the card is worn out or smaller than it says; take another",
				inWords(at), inWords(at+int64(len(part))))
		}
		b.add(int64(len(part)))
	}
	return nil
}

// bar shows how far it is: one line that moves on a terminal, a line for each tenth elsewhere.
type bar struct {
	out         io.Writer
	moves       bool
	what        string
	begin, last time.Time
	all, now    int64
	tenth       int64
}

func newBar(out io.Writer, what string, all int64) *bar {
	b := &bar{out: out, what: what, all: all, begin: time.Now()}
	if f, ok := out.(*os.File); ok {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		b.moves = err == nil
	}
	return b
}

func (b *bar) add(n int64) {
	b.now += n
	tenth := b.now * 10 / b.all
	if b.moves && (time.Since(b.last) > 100*time.Millisecond || b.now == b.all) || !b.moves && tenth != b.tenth {
		b.last, b.tenth = time.Now(), tenth
		b.show()
	}
}

func (b *bar) show() {
	took := time.Since(b.begin).Seconds()
	text := fmt.Sprintf("%-12s %3d %%  %s of %s", b.what, b.now*100/b.all, inWords(b.now), inWords(b.all))
	if took > 0.5 {
		speed := float64(b.now) / took
		text += fmt.Sprintf("  %s/s  %.0f s left", inWords(int64(speed)), float64(b.all-b.now)/speed)
	}
	if !b.moves {
		fmt.Fprintln(b.out, text)
		return
	}
	const width = 24
	full := int(b.now * width / b.all)
	fmt.Fprintf(b.out, "\r\x1b[K[%s%s] %s", strings.Repeat("#", full), strings.Repeat(".", width-full), text)
	if b.now == b.all {
		fmt.Fprintln(b.out)
	}
}

func (b *bar) say(text string) { fmt.Fprintln(b.out, text) }
