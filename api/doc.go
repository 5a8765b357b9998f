// Package api holds the words every other package speaks: the kinds of object, the Client contract, errors,
// defaults and validation. It does no I/O and imports nothing else of ledge.
//
// The objects are Kubernetes' own types (k8s.io/api), so their JSON, selectors and patches are exact.
// Above storage there are several ways to reach them (api/local in process, api/rest over HTTP); all of them
// are a Client, and all of them pass api/apitest.
package api
