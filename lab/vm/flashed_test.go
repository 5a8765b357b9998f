package main

import (
	"strings"
	"testing"
)

func TestWritten(t *testing.T) {
	for answer, want := range map[string]string{
		`[{"device":"disk","stats":{"wr_bytes":4096,"rd_bytes":7}},{"device":"sd0","stats":{"wr_bytes":1}}]`: "",
		`[]`: "knows no disk",
		`[{"device":"disk","stats":{"rd_bytes":7}}]`: "does not say",
		`{}`: "cannot unmarshal",
	} {
		got, err := written([]byte(answer))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err == nil && got != 4097 {
			t.Errorf("%s: %d, %v", answer, got, err)
		}
	}
}
