package mirror

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// token is the first token that was made for a volume of a pod. After a reboot without the server the pod gets it again:
// it may have ended, but the pod can begin, and nobody is there to take it anyway. Further tokens are not written down: a
// card must not bear one an hour for each pod.
type token struct {
	Pod    types.UID                     `json:"pod"`
	Answer authenticationv1.TokenRequest `json:"answer"`
}

const tokenShelf = "tokens"

// Create implements api.Client.
func (c *Client) Create(ctx context.Context, kind *api.Kind, obj api.Object, opts api.WriteOptions) (api.Object, error) {
	out, err := c.Client.Create(ctx, kind, obj, opts)
	asked, ok := obj.(*authenticationv1.TokenRequest)
	if !ok || opts.DryRun || asked.Spec.BoundObjectRef == nil || asked.Spec.BoundObjectRef.UID == "" {
		return out, err
	}
	key := tokenKey(asked)
	c.mu.Lock()
	defer c.mu.Unlock()
	have, is := c.tokens[key]
	if err != nil {
		if is && unreachable(err) && ctx.Err() == nil {
			return have.Answer.DeepCopy(), nil
		}
		return out, err
	}
	if got, ok := out.(*authenticationv1.TokenRequest); ok && !is {
		t := token{Pod: asked.Spec.BoundObjectRef.UID, Answer: *got.DeepCopy()}
		c.tokens[key] = t
		data, err := json.Marshal(t)
		if err == nil {
			err = c.cfg.Table.Put(tokenShelf+split+key, data)
		}
		c.disk(err)
	}
	return out, nil
}

func tokenKey(r *authenticationv1.TokenRequest) string {
	seconds := int64(0)
	if r.Spec.ExpirationSeconds != nil {
		seconds = *r.Spec.ExpirationSeconds
	}
	return fmt.Sprintf("%s %s %s %d", r.Spec.BoundObjectRef.UID, r.Name, strings.Join(r.Spec.Audiences, ","), seconds)
}

// tidyTokens forgets those of pods that are no more.
func (c *Client) tidyTokens() {
	here := map[types.UID]bool{}
	for _, s := range c.shelves {
		for _, r := range s.rows {
			here[r.obj.GetUID()] = true
		}
	}
	for key, t := range c.tokens {
		if !here[t.Pod] {
			delete(c.tokens, key)
			c.remove(tokenShelf, key)
		}
	}
}
