package config

import (
	"strings"
	"testing"

	"ledge/api"
)

func TestDisks(t *testing.T) {
	for text, want := range map[string]string{
		"disks: [{name: usb, label: DATA}]":                           "",
		"disks: [{name: local, label: DATA}]":                         "is the class of the card",
		"disks: [{name: USB, label: DATA}]":                           "no name of a class",
		"disks: [{name: ../usb, label: DATA}]":                        "no name of a class",
		"disks: [{name: usb}]":                                        "no label",
		"disks: [{name: usb, label: 12345678901234567}]":              "no label",
		"disks: [{name: usb, label: ../../x}]":                        "no label",
		"disks: [{name: usb, label: A}, {name: usb, label: B}]":       "twice",
		"disks: [{name: usb, label: A}, {name: two, label: A}]":       "twice",
		"disks: [{name: usb, label: A, device: /dev/sda}]":            "device",
		"disks: [" + strings.Repeat("{name: a, label: B},", 17) + "]": "more than 16",
	} {
		_, err := Load(written(t, text+"\n"), "")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", text, err, want)
		}
	}
	s := Settings{Options: &Options{}, File: File{diskKeys: diskKeys{[]Disk{{"usb", "DATA"}}}}}
	if err := s.disks(); err != nil || s.Reg.Labels[api.DiskLabel+"usb"] != "true" {
		t.Errorf("%v %v", err, s.Reg.Labels)
	}
	if s.Kubeconfig = "/x"; s.disks() == nil {
		t.Error("a node of a Kubernetes took the key")
	}
}
