package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/api/kinds"
	"ledge/api/local"
	"ledge/api/manifest"
	"ledge/api/rest"
	"ledge/storage"
)

// chart is the result of one chart.
type chart struct {
	source
	documents []document
}

// document is one object of a chart. It was taken if nothing stands against it.
type document struct {
	kind    string
	against []string // fields; "" is the kind itself
}

func (c chart) taken() int {
	n := 0
	for _, d := range c.documents {
		if len(d.against) == 0 {
			n++
		}
	}
	return n
}

func (c chart) whole() bool { return c.taken() == len(c.documents) }

// try applies a chart's documents in their order, as `ledge apply` does, to an API that has nothing but the namespaces that they name.
func try(ctx context.Context, s source, data []byte) (c chart, err error) {
	client, stop, err := serve(ctx)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	c.source = s
	for _, doc := range manifest.Documents(data) {
		var head metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(doc.Data, &head); err != nil {
			return c, fmt.Errorf("document %d: %w", doc.Number+1, err)
		}
		if head.Kind == "" {
			continue // comments
		}
		if err := haveNamespace(ctx, client, head.Namespace); err != nil {
			return c, err
		}
		c.documents = append(c.documents, document{head.Kind, apply(ctx, client, head, doc)})
	}
	return c, nil
}

// serve starts an API over an empty store. No controller looks at what is written, and there is no node.
func serve(ctx context.Context) (client *rest.Client, stop func() error, err error) {
	dir, err := os.MkdirTemp("", "ledge-charts.")
	if err != nil {
		return nil, nil, err
	}
	store, err := storage.Open(ctx, storage.Config{Dir: dir, NoSync: true})
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	end := func() error { return errors.Join(store.Close(), os.RemoveAll(dir)) }
	kept, err := local.New(local.Config{Store: store})
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	handler, err := httpd.New(httpd.Config{Client: kept})
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	listener, dial := httpd.Pipe(api.User{Name: "admin", Groups: []string{api.AdminGroup}})
	server := httpd.Server{Handler: handler, Listeners: []*httpd.Listener{listener}}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	end = func() error {
		cancel()
		return errors.Join(<-done, store.Close(), os.RemoveAll(dir))
	}
	if client, err = rest.New(rest.Config{Dial: dial, Warn: func(string) {}}); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return client, func() error { client.Close(); return end() }, nil
}

func haveNamespace(ctx context.Context, client api.Client, name string) error {
	if name == "" {
		name = metav1.NamespaceDefault
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.Create(ctx, api.Namespaces, ns, api.WriteOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the namespace %s: %w", name, err)
	}
	return nil
}

// apply applies a document and returns the reasons against it.
func apply(ctx context.Context, client api.Client, head metav1.PartialObjectMetadata, doc manifest.Document) []string {
	if kinds.All.Shown(head.GroupVersionKind()) == nil {
		return []string{""}
	}
	m, err := manifest.Parse(doc, metav1.NamespaceDefault)
	if err == nil {
		_, err = manifest.Apply(ctx, client, *m)
	}
	return fieldsOf(err)
}

// place tells two places of the same field apart.
var place = regexp.MustCompile(`\[[^\]]*\]`)

// fieldsOf are the fields that an error names, or the error itself.
func fieldsOf(err error) []string {
	if err == nil {
		return nil
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		text, _, _ := strings.Cut(err.Error(), "\n")
		return []string{text}
	}
	status := answer.Status()
	if status.Details == nil || len(status.Details.Causes) == 0 {
		return []string{status.Message}
	}
	var fields []string
	for _, cause := range status.Details.Causes {
		fields = append(fields, place.ReplaceAllString(cause.Field, "[]"))
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}
