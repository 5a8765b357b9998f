package page

import (
	"html"
	"strings"
)

// markup is a piece of a page that a browser may read as it stands. Texts become markup by el alone, which escapes them.
type markup string

// attr is an attribute of an element; one without a value that counts is left out by not giving it.
type attr struct{ name, value string }

// at is an attribute.
func at(name, value string) attr { return attr{name, value} }

// class is the attribute that style.css goes by.
func class(names string) attr { return attr{"class", names} }

// void elements have nothing in them, and no end.
var void = map[string]bool{"meta": true, "link": true, "input": true, "br": true}

// el is an element: its attributes, and what stands in it in the order given. Strings are text.
func el(tag string, parts ...any) markup {
	var head, body strings.Builder
	for _, p := range parts {
		switch p := p.(type) {
		case attr:
			head.WriteString(" " + p.name + `="` + text(p.value) + `"`)
		case markup:
			body.WriteString(string(p))
		case []markup:
			for _, m := range p {
				body.WriteString(string(m))
			}
		case string:
			body.WriteString(text(p))
		}
	}
	if void[tag] {
		return markup("<" + tag + head.String() + ">")
	}
	return markup("<" + tag + head.String() + ">" + body.String() + "</" + tag + ">")
}

// text shows what somebody wrote: signs that would be markup stand for themselves, and those that no page may hold are replaced.
func text(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' && c != '\n' && c != '\t' || c == 0x7f || 0x202a <= c && c <= 0x202e || 0x2066 <= c && c <= 0x2069 {
			return '\uFFFD' // control characters, and what turns the direction of a line round
		}
		return c
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return html.EscapeString(s)
}

// link leads to a place of this page. Segments of path are escaped by who makes it.
func link(path string, parts ...any) markup {
	return el("a", append([]any{at("href", path)}, parts...)...)
}

// rows is a table; a cell is a string or markup.
func rows(head []string, lines [][]any) markup {
	if len(lines) == 0 {
		return el("p", class("none"), "none")
	}
	var top, body []markup
	for _, h := range head {
		top = append(top, el("th", at("scope", "col"), h))
	}
	for _, line := range lines {
		var cells []markup
		for i, c := range line {
			label := ""
			if i < len(head) {
				label = head[i]
			}
			cells = append(cells, el("td", at("data-label", label), c))
		}
		body = append(body, el("tr", cells))
	}
	return el("div", class("wide"), at("tabindex", "0"), el("table", el("thead", el("tr", top)), el("tbody", body)))
}

// facts is a list of names and what they are.
func facts(pairs ...any) markup {
	var out []markup
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" || pairs[i+1] == markup("") {
			continue
		}
		out = append(out, el("div", el("dt", pairs[i]), el("dd", pairs[i+1])))
	}
	return el("dl", out)
}

// badge is a word that is seen from afar. Colour says nothing that the word does not.
func badge(level, word string) markup { return el("span", class("badge "+level), word) }
