package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ledge/api/board"
	"ledge/images"
)

// pullImage pulls an image and shows how it goes: bars on a terminal, lines elsewhere.
func (c *Command) pullImage(ctx context.Context, name string, pin bool) error {
	resp, err := c.Raw(ctx, "POST", board.PullPath, url.Values{"name": {name}, "pin": {strconv.FormatBool(pin)}}, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	width, bars := terminalWidth(stream(c.out))
	p := &pullView{out: stream(c.out), bars: bars, width: width}
	for dec := json.NewDecoder(resp.Body); ; {
		var news board.PullNews
		if err := dec.Decode(&news); err != nil {
			return fmt.Errorf("pull %s: the node's answer ended early: %w", name, err)
		}
		switch {
		case news.Status != nil:
			p.show(*news.Status, time.Now())
		case news.Error != "":
			p.clear()
			return errors.New(news.Error)
		default:
			p.clear()
			p.end(name, news)
			return nil
		}
	}
}

// terminalWidth says whether out is a terminal, and how wide.
func terminalWidth(out io.Writer) (int, bool) {
	f, ok := out.(*os.File)
	if !ok {
		return 0, false
	}
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return max(int(ws.Col), 40), true
}

// pullView shows a pull.
type pullView struct {
	out   io.Writer
	bars  bool
	width int

	lines int       // of bars that stand on the screen
	said  time.Time // when the last line was written, without bars
	rates map[string]rate
}

// rate is how far a layer was at a moment.
type rate struct {
	at    time.Time
	bytes int64
}

// everyLine is how often a pull is told of where there are no bars: in a log, each line stays.
const everyLine = 10 * time.Second

func (p *pullView) show(st images.PullStatus, now time.Time) {
	if !p.bars {
		if now.Sub(p.said) >= everyLine {
			p.said = now
			say(p.out, "%s\n", summary(st))
		}
		return
	}
	var b strings.Builder
	if p.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", p.lines)
	}
	lines := p.bar(st, now)
	for _, l := range lines {
		b.WriteString("\x1b[2K" + l + "\n")
	}
	for range p.lines - len(lines) {
		b.WriteString("\x1b[2K\n")
	}
	p.lines = max(len(lines), p.lines)
	fmt.Fprint(p.out, b.String())
}

// clear takes the bars away.
func (p *pullView) clear() {
	if p.lines > 0 {
		fmt.Fprintf(p.out, "\x1b[%dA\x1b[J", p.lines)
		p.lines = 0
	}
}

func (p *pullView) end(name string, n board.PullNews) {
	if n.Present {
		say(p.out, "%s is up to date (%s)\n", name, short(n.Image.ID))
		return
	}
	say(p.out, "%s pulled (%s): %s downloaded, %s on disk, %v\n", name, short(n.Image.ID), megabytes(n.Bytes), megabytes(n.Image.Size),
		n.Took.Round(100*time.Millisecond))
}

func short(id string) string { return fmt.Sprintf("%.12s", strings.TrimPrefix(id, "sha256:")) }

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// summary is a pull in a line.
func summary(st images.PullStatus) string {
	if st.Waiting {
		return st.Ref + ": waiting for another pull to end"
	}
	var done, all int64
	ready, trouble := 0, ""
	for _, l := range st.Layers {
		done, all = done+l.Fetched, all+l.Size
		if l.Ready {
			ready++
		}
		if l.Trouble != "" {
			trouble = "; " + l.Trouble
		}
	}
	if len(st.Layers) == 0 {
		return st.Ref + ": asking the registry"
	}
	return fmt.Sprintf("%s: %s of %s downloaded, %d of %d layers unpacked%s", st.Ref, megabytes(done), megabytes(all), ready, len(st.Layers),
		trouble)
}

// bar is a pull as lines of a terminal: one for each layer that is on its way, and what is left in one more.
func (p *pullView) bar(st images.PullStatus, now time.Time) []string {
	out := []string{cut(inLine(summary(st)), p.width)}
	if p.rates == nil {
		p.rates = map[string]rate{}
	}
	for _, l := range st.Layers {
		if l.Ready || l.Fetched == 0 || len(out) > 8 {
			continue
		}
		first, ok := p.rates[l.Digest]
		if !ok {
			first = rate{now, l.Fetched}
			p.rates[l.Digest] = first
		}
		speed := ""
		if s := now.Sub(first.at).Seconds(); s >= 1 && l.Fetched < l.Size {
			speed = fmt.Sprintf(" %s/s", megabytes(int64(float64(l.Fetched-first.bytes)/s)))
		}
		if l.Fetched == l.Size {
			speed = " unpacking"
		}
		room := max(p.width-50, 10)
		full := int(int64(room) * l.Fetched / max(l.Size, 1))
		out = append(out, cut(fmt.Sprintf("%s [%s%s] %s of %s%s", inLine(short(l.Digest)), strings.Repeat("=", full),
			strings.Repeat(" ", room-full),
			megabytes(l.Fetched), megabytes(l.Size), speed), p.width))
	}
	return out
}

func cut(s string, width int) string {
	if r := []rune(s); len(r) >= width {
		return string(r[:width-1])
	}
	return s
}
