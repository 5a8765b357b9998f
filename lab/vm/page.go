package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// The page of a board from a card, and how people ask for it there.
const (
	pagePort     = 8443
	pagePassword = "eight or more"
	flashedPage  = "configuration:\n  page: {listen: \":8443\", password: " + pagePassword + "}\n"
)

// openPage says the password at a board's page, and looks at what that shows.
func openPage(ctx context.Context, client http.Client, enter string) error {
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	ask := func(method, at, body string, head ...string) (*http.Response, string, error) {
		r, err := http.NewRequestWithContext(ctx, method, at, strings.NewReader(body))
		if err != nil {
			return nil, "", err
		}
		for i := 0; i+1 < len(head); i += 2 {
			r.Header.Set(head[i], head[i+1])
		}
		resp, err := client.Do(r)
		if err != nil {
			return nil, "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return resp, string(text), err
	}
	resp, text, err := ask(http.MethodPost, enter, url.Values{"password": {pagePassword}}.Encode(), "Content-Type", "application/x-www-form-urlencoded")
	if err != nil {
		return fmt.Errorf("the page: %w", err)
	}
	if resp.StatusCode != http.StatusSeeOther || len(resp.Cookies()) != 1 {
		return fmt.Errorf("the page does not take its password: %s: %.300s", resp.Status, text)
	}
	c := resp.Cookies()[0]
	resp, text, err = ask(http.MethodGet, strings.TrimSuffix(enter, "enter"), "", "Accept", "text/html", "Cookie", c.Name+"="+c.Value)
	if err != nil {
		return fmt.Errorf("the page: %w", err)
	}
	if resp.StatusCode != http.StatusOK || !strings.Contains(text, "This board") {
		return fmt.Errorf("the page shows no board: %s: %.300s", resp.Status, text)
	}
	return nil
}
