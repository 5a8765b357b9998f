package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientrest "k8s.io/client-go/rest"
	kjson "sigs.k8s.io/json"

	"ledge/api"
	"ledge/api/coordination"
)

// Get reads one object.
func (c *Client) Get(ctx context.Context, kind *api.Kind, namespace, name string) (api.Object, error) {
	req, err := c.object("GET", kind, namespace, name, "")
	if err != nil {
		return nil, err
	}
	return c.doObject(ctx, req, kind)
}

// List reads one page of objects.
func (c *Client) List(ctx context.Context, kind *api.Kind, opts api.ListOptions) (api.List, error) {
	var out api.List
	req, err := c.collection("GET", kind, opts.Namespace)
	if err != nil {
		return out, err
	}
	selectors(req, opts.Selection)
	if opts.Limit > 0 {
		req.Param("limit", strconv.FormatInt(opts.Limit, 10))
	}
	param(req, "continue", opts.Continue)
	param(req, "resourceVersion", opts.Revision)
	param(req, "resourceVersionMatch", string(opts.Match))
	data, err := c.do(ctx, req)
	if err != nil {
		return out, err
	}
	// The items are decoded one by one: the list's own Go type would hold them all a second time.
	var body struct {
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return out, badAnswer(kind, err)
	}
	out = api.List{Revision: body.Metadata.ResourceVersion, Continue: body.Metadata.Continue, Remaining: body.Metadata.RemainingItemCount}
	for _, item := range body.Items {
		obj, err := decode(kind, item)
		if err != nil {
			return api.List{}, err
		}
		out.Items = append(out.Items, obj)
	}
	return out, nil
}

// Create makes an object, or acts on a pod through binding and eviction.
func (c *Client) Create(ctx context.Context, kind *api.Kind, obj api.Object, opts api.WriteOptions) (api.Object, error) {
	var req *clientrest.Request
	var err error
	if opts.Subresource == "" {
		req, err = c.collection("POST", kind, obj.GetNamespace())
	} else {
		req, err = c.object("POST", kind, obj.GetNamespace(), obj.GetName(), opts.Subresource)
	}
	if err != nil {
		return nil, err
	}
	if kind.Namespaced && obj.GetNamespace() == "" {
		return nil, apierrors.NewBadRequest("an object of a namespaced kind must have a namespace")
	}
	if err := body(req, kind.As(opts.Subresource), obj); err != nil {
		return nil, err
	}
	writeParams(req, opts)
	if opts.Subresource == api.Binding || opts.Subresource == api.Eviction {
		_, err := c.do(ctx, req) // the answer is a Status
		return nil, err
	}
	return c.doObject(ctx, req, kind.As(opts.Subresource))
}

// Update replaces an object or its status.
func (c *Client) Update(ctx context.Context, kind *api.Kind, obj api.Object, opts api.WriteOptions) (api.Object, error) {
	req, err := c.object("PUT", kind, obj.GetNamespace(), obj.GetName(), opts.Subresource)
	if err != nil {
		return nil, err
	}
	if err := body(req, kind.As(opts.Subresource), obj); err != nil {
		return nil, err
	}
	writeParams(req, opts)
	return c.doObject(ctx, req, kind.As(opts.Subresource))
}

// renewal makes of a request with a Lease one in protobuf: each board sends one every ten seconds, and it is read and written
// several times as fast. A server may answer in JSON all the same.
func renewal(req *clientrest.Request, obj api.Object) error {
	data, err := api.ToProtobuf(coordination.Leases, obj)
	if err != nil {
		return err
	}
	req.SetHeader("Content-Type", api.MediaProtobuf).SetHeader("Accept", api.MediaProtobuf, "application/json;q=0.9").Body(data)
	return nil
}

// Patch changes an object on the server.
func (c *Client) Patch(ctx context.Context, kind *api.Kind, namespace, name string, patch api.Patch, opts api.WriteOptions) (api.Object,
	error) {
	req, err := c.object("PATCH", kind, namespace, name, opts.Subresource)
	if err != nil {
		return nil, err
	}
	req.SetHeader("Content-Type", string(patch.Type)).Body(patch.Data)
	writeParams(req, opts)
	if opts.Force {
		req.Param("force", "true")
	}
	data, code, err := c.doCode(ctx, req)
	if err != nil {
		return nil, err
	}
	if opts.Made != nil {
		*opts.Made = code == http.StatusCreated
	}
	return decode(kind.As(opts.Subresource), data)
}

// Delete removes an object, or begins to.
func (c *Client) Delete(ctx context.Context, kind *api.Kind, namespace, name string, opts api.DeleteOptions) (api.Object, error) {
	req, err := c.object("DELETE", kind, namespace, name, "")
	if err != nil {
		return nil, err
	}
	del := metav1.DeleteOptions{
		TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}, GracePeriodSeconds: opts.Grace,
	}
	if opts.UID != nil || opts.Revision != nil {
		del.Preconditions = &metav1.Preconditions{UID: opts.UID, ResourceVersion: opts.Revision}
	}
	if opts.Propagation != "" {
		del.PropagationPolicy = &opts.Propagation
	}
	if opts.DryRun {
		del.DryRun = []string{metav1.DryRunAll}
	}
	data, err := json.Marshal(del)
	if err != nil {
		return nil, api.NewInternal("encode delete options: %v", err)
	}
	req.SetHeader("Content-Type", "application/json").Body(data)
	answer, err := c.do(ctx, req)
	if err != nil {
		return nil, err
	}
	return deleted(kind, namespace, name, answer)
}

// deleted reads the answer to a delete. A kube-apiserver answers most of them with a Status that only names the
// object: then that much is handed on.
func deleted(kind *api.Kind, namespace, name string, answer []byte) (api.Object, error) {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Details         metav1.StatusDetails `json:"details"`
	}
	if err := json.Unmarshal(answer, &head); err != nil {
		return nil, badAnswer(kind, err)
	}
	if head.Kind != "Status" {
		return decode(kind, answer)
	}
	obj := kind.New()
	kind.Stamp(obj)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	obj.SetUID(head.Details.UID)
	return obj, nil
}

// collection starts a request on all objects of a kind, in one namespace or everywhere.
func (c *Client) collection(verb string, kind *api.Kind, namespace string) (*clientrest.Request, error) {
	return c.request(verb, kind, namespace, kind.Resource)
}

// object starts a request on one object or subresource.
func (c *Client) object(verb string, kind *api.Kind, namespace, name, sub string) (*clientrest.Request, error) {
	if name == "" {
		return nil, apierrors.NewBadRequest("resource name may not be empty")
	}
	if kind.Namespaced && namespace == "" {
		return nil, apierrors.NewBadRequest("an object of a namespaced kind must have a namespace")
	}
	segments := []string{kind.Resource, name}
	if sub != "" {
		segments = append(segments, sub)
	}
	return c.request(verb, kind, namespace, segments...)
}

func (c *Client) request(verb string, kind *api.Kind, namespace string, segments ...string) (*clientrest.Request, error) {
	base := []string{"api", kind.Version}
	if kind.Group != "" {
		base = []string{"apis", kind.Group, kind.Version}
	}
	if kind.Namespaced && namespace != "" {
		base = append(base, "namespaces", namespace)
	}
	segments = append(base, segments...)
	for _, s := range segments {
		// A name with a slash would be a request on something else.
		if problems := clientrest.IsValidPathSegmentName(s); len(problems) > 0 {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid name %q: %v", s, problems))
		}
	}
	return c.rest.Verb(verb).AbsPath(segments...), nil
}

func selectors(req *clientrest.Request, s api.Selection) {
	if s.Labels != nil {
		param(req, "labelSelector", s.Labels.String())
	}
	if s.Fields != nil {
		param(req, "fieldSelector", s.Fields.String())
	}
}

func param(req *clientrest.Request, name, value string) {
	if value != "" {
		req.Param(name, value)
	}
}

func writeParams(req *clientrest.Request, opts api.WriteOptions) {
	if opts.DryRun {
		req.Param("dryRun", metav1.DryRunAll)
	}
	param(req, "fieldManager", opts.Manager)
}

// body encodes an object as the body of a request. It must carry its kind, which Go types leave empty; the
// caller's object is not changed.
func body(req *clientrest.Request, kind *api.Kind, obj api.Object) error {
	if kind == coordination.Leases {
		return renewal(req, obj)
	}
	copied, ok := obj.DeepCopyObject().(api.Object)
	if !ok {
		return api.NewInternal("ledge bug: the copy of a %T is no object", obj)
	}
	kind.Stamp(copied)
	data, err := json.Marshal(copied)
	if err != nil {
		return api.NewInternal("encode %T: %v", obj, err)
	}
	req.SetHeader("Content-Type", "application/json").Body(data)
	return nil
}

func (c *Client) doObject(ctx context.Context, req *clientrest.Request, kind *api.Kind) (api.Object, error) {
	data, err := c.do(ctx, req)
	if err != nil {
		return nil, err
	}
	return decode(kind, data)
}

// do sends a request and reads the whole answer.
func (c *Client) do(ctx context.Context, req *clientrest.Request) ([]byte, error) {
	data, _, err := c.doCode(ctx, req)
	return data, err
}

// retries are made when the server asks for one by Retry-After. Not client-go's ten: every caller has a back-off of its own,
// and wants to know.
const retries = 2

// doCode is do, but also returns the status code.
func (c *Client) doCode(ctx context.Context, req *clientrest.Request) (data []byte, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	result := req.MaxRetries(retries).Do(ctx)
	if err := result.StatusCode(&code).Error(); err != nil {
		return nil, code, asStatus(err)
	}
	data, err = result.Raw()
	return data, code, err
}

func decode(kind *api.Kind, data []byte) (api.Object, error) {
	if bytes.HasPrefix(data, []byte(api.ProtobufMark)) {
		obj, err := api.FromProtobuf(kind, data)
		if err != nil {
			return nil, badAnswer(kind, err)
		}
		return obj, nil
	}
	obj := kind.New()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, obj); err != nil {
		return nil, badAnswer(kind, err)
	}
	kind.Stamp(obj)
	return obj, nil
}

func badAnswer(kind *api.Kind, err error) error {
	return api.NewInternal("the server's answer about %s cannot be read: %v", kind, err)
}

// asStatus makes every error an API status, as Client promises. What never reached the server, or whose answer
// never reached us, is "service unavailable": try again.
func asStatus(err error) error {
	var s apierrors.APIStatus
	if err == nil || errors.As(err, &s) {
		return err
	}
	return &unreachable{StatusError: apierrors.NewServiceUnavailable(err.Error()), cause: err}
}

// unreachable keeps the cause beside the status, so that callers can still tell their own end of a context.
type unreachable struct {
	*apierrors.StatusError
	cause error
}

func (e *unreachable) Unwrap() []error { return []error{e.StatusError, e.cause} }
