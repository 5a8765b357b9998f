package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The list of what is in an image is SPDX 2.3: Debian's packages, and the Go modules that are in the binary itself.

type spdx struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      spdxCreation   `json:"creationInfo"`
	Packages      []spdxPackage  `json:"packages"`
	Relationships []spdxRelation `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID        string    `json:"SPDXID"`
	Name      string    `json:"name"`
	Version   string    `json:"versionInfo"`
	Location  string    `json:"downloadLocation"`
	Analyzed  bool      `json:"filesAnalyzed"`
	Concluded string    `json:"licenseConcluded"`
	Declared  string    `json:"licenseDeclared"`
	Copyright string    `json:"copyrightText"`
	Refs      []spdxRef `json:"externalRefs"`
}

type spdxRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelation struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// inventory lists debs ("name version" a line) and the modules of the binary, in the order they come.
func inventory(name string, v version, arch, debs string, info *buildinfo.BuildInfo) spdx {
	const none = "NOASSERTION"
	s := spdx{Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		Creation: spdxCreation{Created: time.Unix(v.epoch, 0).UTC().Format(time.RFC3339), Creators: []string{"Tool: ledge-scripts-image"}}}
	add := func(kind, name, version, purl string) {
		id := fmt.Sprintf("SPDXRef-%s-%d", kind, len(s.Packages))
		s.Packages = append(s.Packages, spdxPackage{ID: id, Name: name, Version: version, Location: none, Concluded: none, Declared: none,
			Copyright: none, Refs: []spdxRef{{"PACKAGE-MANAGER", "purl", purl}}})
		s.Relationships = append(s.Relationships, spdxRelation{s.ID, "DESCRIBES", id})
	}
	add("ledge", "ledge", v.name, "pkg:generic/ledge@"+v.name)
	for line := range strings.Lines(debs) {
		if name, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			add("deb", name, version, "pkg:deb/debian/"+name+"@"+strings.NewReplacer("+", "%2B", ":", "%3A").Replace(version)+"?arch="+arch+"&distro=bookworm")
		}
	}
	add("go", "std", strings.TrimPrefix(info.GoVersion, "go"), "pkg:golang/std@"+strings.TrimPrefix(info.GoVersion, "go"))
	for _, m := range info.Deps {
		add("go", m.Path, m.Version, "pkg:golang/"+m.Path+"@"+m.Version)
	}
	text, _ := json.Marshal(s.Packages)
	s.Namespace = fmt.Sprintf("https://spdx.org/spdxdocs/%s-%x", name, sha256.Sum256(text))
	return s
}

func (im *image) writeInventory(debs string) error {
	info, err := buildinfo.ReadFile(im.ledge)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(inventory(filepath.Base(im.base), im.version, im.board.arch, debs, info), "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(im.base+".spdx.json", append(text, '\n'), 0o644)
}
