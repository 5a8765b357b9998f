package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"ledge/api/board"
)

const sinceLayout = "2006-01-02 15:04 -0700" // the board's time, not the reader's

func printWrites(out io.Writer, r board.Writes) error {
	tw := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "WRITER\tTODAY\tSINCE BOOT\tOF")
	for _, w := range r.Writers {
		row(tw, w.Name, megabytes(w.Today), megabytes(w.SinceBoot), w.What)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if !r.Boot.IsZero() {
		say(out, "today: since %s; the boot: %s\n", r.Today.Format(sinceLayout), r.Boot.Format(sinceLayout))
	}
	_, err := say(out, "%s\n", wearLine(r))
	return err
}

func wearLine(r board.Writes) string {
	switch w := r.Wear; {
	case r.Disk == "":
		return "the data directory is not on a disk of its own: what it wears cannot be told"
	case w == nil:
		return r.Disk + " does not tell its wear"
	case w.Exceeded:
		return r.Disk + " has worn beyond the life it was made for: replace it" + reserve(w)
	case w.UsedPercent == 0:
		return r.Disk + " does not tell its wear" + reserve(w)
	default:
		return fmt.Sprintf("%s has used up to %d %% of its life%s", r.Disk, w.UsedPercent, reserve(w))
	}
}

func reserve(w *board.Wear) string {
	if w.Reserve == "" {
		return ""
	}
	return ", its reserve of spare blocks is " + w.Reserve
}
