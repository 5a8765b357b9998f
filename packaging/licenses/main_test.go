package main

import (
	"os"
	"strings"
	"testing"
)

// NOTICE goes out with every binary, so it must name what is in it.
func TestNoticeNamesWhatIsLinked(t *testing.T) {
	text, err := os.ReadFile("../../NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	modules, err := linked()
	if err != nil {
		t.Fatal(err)
	}
	if len(modules) < 10 {
		t.Fatalf("only %d modules are linked?", len(modules))
	}
	for _, m := range modules {
		if !strings.Contains(string(text), "\n"+m.path+" "+m.version+": ") {
			t.Errorf("NOTICE does not name %s %s: make licenses", m.path, m.version)
		}
	}
}

func TestKindRefusesCopyleftAndTheUnknown(t *testing.T) {
	for text, want := range map[string]string{
		"GNU GENERAL PUBLIC LICENSE Version 3":                                            "",
		"All rights reserved.":                                                            "",
		"Apache License\n Version 2.0, January 2004":                                      "Apache-2.0",
		"Redistribution and use in source and binary\nforms ... Neither the name of":      "BSD-3-Clause",
		"Redistribution and use in source and binary forms, with or without modification": "BSD-2-Clause",
	} {
		if got := kind(text); got != want {
			t.Errorf("kind(%q) = %q, want %q", text, got, want)
		}
	}
}
