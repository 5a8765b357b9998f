package networking

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// Wishes are what the annotations of an Ingress ask for beyond its spec, as far as ledge's own controller does it.
type Wishes struct {
	Redirect bool   // plain requests are sent to https
	MostBody *int64 // bytes of a request's body; nil: the usual bound, 0: none
}

// The annotations that mean something to it: the most usual ones, of the controller that most people have.
const (
	sslRedirect      = "nginx.ingress.kubernetes.io/ssl-redirect"
	forceSSLRedirect = "nginx.ingress.kubernetes.io/force-ssl-redirect"
	proxyBodySize    = "nginx.ingress.kubernetes.io/proxy-body-size"
)

// controllers have annotations under these domains that change what they do with a request. Others' (cert-manager.io, external-dns)
// are for somebody else.
var controllers = []string{"alb.ingress.kubernetes.io", "haproxy-ingress.github.io", "haproxy.org", "ingress.kubernetes.io", "konghq.com",
	"nginx.ingress.kubernetes.io", "nginx.org", "projectcontour.io", "traefik.ingress.kubernetes.io"}

// mostUnheeded is how many annotations a warning names.
const mostUnheeded = 10

// WishesOf reads them; unheeded says in words which are not followed.
func WishesOf(i *networkingv1.Ingress) (w Wishes, unheeded []string) {
	var unknown []string
	for _, key := range slices.Sorted(maps.Keys(i.Annotations)) {
		text, err := i.Annotations[key], error(nil)
		switch key {
		case sslRedirect:
			on, bad := strconv.ParseBool(text)
			w.Redirect, err = w.Redirect || on && len(i.Spec.TLS) > 0, bad
		case forceSSLRedirect:
			on, bad := strconv.ParseBool(text)
			w.Redirect, err = w.Redirect || on, bad
		case proxyBodySize:
			n, bad := bytesOf(text)
			if err = bad; err == nil {
				w.MostBody = &n
			}
		default:
			if domain, _, ok := strings.Cut(key, "/"); ok && slices.Contains(controllers, domain) {
				unknown = append(unknown, key)
			}
		}
		if err != nil {
			unheeded = append(unheeded, fmt.Sprintf("metadata.annotations[%s]: %.40q is not understood, and not followed", key, text))
		}
	}
	for n, key := range unknown {
		if n == mostUnheeded {
			unheeded = append(unheeded, fmt.Sprintf("metadata.annotations: %d more are not followed by ledge's ingress controller", len(unknown)-n))
			break
		}
		unheeded = append(unheeded, fmt.Sprintf("metadata.annotations[%s]: not followed by ledge's ingress controller", key))
	}
	return w, unheeded
}

// bytesOf reads a size as nginx has it: 8m, 1g, 0.
func bytesOf(text string) (int64, error) {
	number, unit := strings.ToLower(text), int64(1)
	for suffix, n := range map[string]int64{"k": 1 << 10, "m": 1 << 20, "g": 1 << 30} {
		if rest, ok := strings.CutSuffix(number, suffix); ok {
			number, unit = rest, n
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is no size", text)
	}
	return n * unit, nil
}
