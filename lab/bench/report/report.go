// Package report writes tables of measurements into a page that people read.
package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Table is a Markdown table. Rows have as many cells as head.
func Table(head []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) {
		for _, c := range cells {
			b.WriteString("| " + strings.ReplaceAll(c, "|", `\|`) + " ")
		}
		b.WriteString("|\n")
	}
	line(head)
	b.WriteString(strings.Repeat("|---", len(head)) + "|\n")
	for _, r := range rows {
		line(r)
	}
	return b.String()
}

// Replace puts text into the section of that name in a page: between two comments, which are added at the end when
// they are not there. What stands outside of them is left alone.
func Replace(path, name, text string) error {
	begin, end := fmt.Sprintf("<!-- %s: written by make bench -->\n", name), fmt.Sprintf("<!-- end of %s -->\n", name)
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	page := string(old)
	section := begin + strings.TrimSuffix(text, "\n") + "\n" + end
	before, rest, ok := strings.Cut(page, begin)
	if !ok {
		if page != "" {
			page = strings.TrimSuffix(page, "\n") + "\n\n"
		}
		return os.WriteFile(path, []byte(page+section), 0o644)
	}
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		return fmt.Errorf("%s: the section %s has no end", path, name)
	}
	return os.WriteFile(path, []byte(before+section+after), 0o644)
}
