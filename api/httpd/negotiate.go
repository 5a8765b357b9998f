package httpd

import (
	"mime"
	"slices"
	"sort"
	"strconv"
	"strings"

	"ledge/api/coordination"
)

// The forms an object can be answered in (N-11.18).
const (
	asObject   = ""
	asTable    = "Table"
	asMetadata = "PartialObjectMetadata" // for lists PartialObjectMetadataList
)

// form is what Accept was negotiated to.
type form struct {
	as      string
	version string // of meta.k8s.io, v1 or v1beta1
	include string // includeObject: what a table row carries of its object
}

func (f form) apiVersion() string { return "meta.k8s.io/" + f.version }

func (f form) contentType() string { return mediaJSON }

// form negotiates the form of an answer: the first offer of Accept that can be met, as kubectl orders them.
func (r *request) form() (form, error) {
	include := r.query.Get("includeObject")
	if !slices.Contains([]string{"", "None", "Metadata", "Object"}, include) {
		return form{}, badRequest("unrecognized includeObject value %q: None, Metadata or Object", include)
	}
	accept := r.Header.Values("Accept")
	for _, o := range offers(accept) {
		if o.media != mediaJSON && o.media != "application/*" && o.media != "*/*" {
			continue
		}
		as := o.params["as"]
		version := o.params["v"]
		meta := o.params["g"] == "meta.k8s.io" && (version == "v1" || version == "v1beta1")
		switch {
		case as == "":
			return form{as: asObject}, nil
		case as == asTable && meta:
			return form{as: asTable, version: version, include: include}, nil
		case meta && (as == asMetadata || as == asMetadata+"List"):
			return form{as: asMetadata, version: version}, nil
		}
	}
	return form{}, errNotAcceptable(strings.Join(accept, ", "))
}

// binary says that an answer goes out in protobuf: a Lease does for those who want that most. Renewals are nearly all that boards
// write, and a shed full of them is heard by one small one. Of other kinds JSON is the only form.
func (r *request) binary() bool {
	if r.kind != coordination.Leases {
		return false
	}
	wanted := offers(r.Header.Values("Accept"))
	return len(wanted) > 0 && wanted[0].media == mediaProtobuf && wanted[0].params["as"] == asObject
}

// offer is one media type of an Accept header.
type offer struct {
	media  string
	params map[string]string
	q      float64
}

// offers lists what Accept asks for, most wanted first. Without the header everything is welcome.
func offers(accept []string) []offer {
	var out []offer
	for _, part := range strings.Split(strings.Join(accept, ","), ",") {
		media, params, err := mime.ParseMediaType(strings.Replace(part, "@v", ".v", 1)) // see openAPIProtobuf
		if err != nil {
			continue
		}
		o := offer{media: media, params: params, q: 1}
		if v, ok := params["q"]; ok {
			if o.q, err = strconv.ParseFloat(v, 64); err != nil || o.q <= 0 {
				continue
			}
		}
		out = append(out, o)
	}
	if out == nil && strings.TrimSpace(strings.Join(accept, "")) == "" {
		return []offer{{media: "*/*", q: 1}}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].q > out[j].q })
	return out
}
