package firstboot

import "strings"

// OneLine is an error as a line of a list.
func OneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
