// Package sbom lists what is in something that ships, in SPDX 2.3: Debian's packages, and the Go modules that the binary itself names.
package sbom

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Thing is what is listed.
type Thing struct {
	Name    string // of the file, without what it ends with
	Version string // of ledge
	Epoch   int64  // when its commit was made
	Arch    string // Debian's name
	Debs    string // "name version" a line
	Binary  *buildinfo.BuildInfo
}

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

// Of lists packages and modules in the order they come. The same thing gives the same bytes.
func Of(t Thing) ([]byte, error) {
	text, err := json.MarshalIndent(list(t), "", " ")
	return append(text, '\n'), err
}

func list(t Thing) spdx {
	const none = "NOASSERTION"
	s := spdx{Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: t.Name,
		Creation: spdxCreation{Created: time.Unix(t.Epoch, 0).UTC().Format(time.RFC3339), Creators: []string{"Tool: ledge-scripts-sbom"}}}
	add := func(kind, name, version, purl string) {
		id := fmt.Sprintf("SPDXRef-%s-%d", kind, len(s.Packages))
		s.Packages = append(s.Packages, spdxPackage{ID: id, Name: name, Version: version, Location: none, Concluded: none, Declared: none,
			Copyright: none, Refs: []spdxRef{{"PACKAGE-MANAGER", "purl", purl}}})
		s.Relationships = append(s.Relationships, spdxRelation{s.ID, "DESCRIBES", id})
	}
	add("ledge", "ledge", t.Version, "pkg:generic/ledge@"+t.Version)
	for line := range strings.Lines(t.Debs) {
		if name, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			add("deb", name, version, "pkg:deb/debian/"+name+"@"+strings.NewReplacer("+", "%2B", ":", "%3A").Replace(version)+"?arch="+t.Arch+
				"&distro=bookworm")
		}
	}
	add("go", "std", strings.TrimPrefix(t.Binary.GoVersion, "go"), "pkg:golang/std@"+strings.TrimPrefix(t.Binary.GoVersion, "go"))
	for _, m := range t.Binary.Deps {
		add("go", m.Path, m.Version, "pkg:golang/"+m.Path+"@"+m.Version)
	}
	text, _ := json.Marshal(s.Packages)
	s.Namespace = fmt.Sprintf("https://spdx.org/spdxdocs/%s-%x", t.Name, sha256.Sum256(text))
	return s
}
