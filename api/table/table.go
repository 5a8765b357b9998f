// Package table has the words for the tables that kubectl shows of objects (N-11.18, N-11.19): columns, and how cells say
// things. Each kind has its own columns and cells; api/httpd makes a Table of them. It imports nothing of ledge.
package table

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Columns are those of one kind.
type Columns = []metav1.TableColumnDefinition

// Look is how the cells of a row are made.
type Look struct {
	Now time.Time
	// Stock shows things as Kubernetes does also where there is something better to say (N-11.26).
	Stock bool
}

// What cells say when there is nothing to say.
const (
	None    = "<none>"
	Unknown = "<unknown>"
)

// Column describes one column.
func Column(name, kind, text string) metav1.TableColumnDefinition {
	c := metav1.TableColumnDefinition{Name: name, Type: kind, Description: text}
	if name == "Name" {
		c.Format = "name"
	}
	return c
}

// Wide describes a column that is shown with -o wide only.
func Wide(name, kind, text string) metav1.TableColumnDefinition {
	c := Column(name, kind, text)
	c.Priority = 1
	return c
}

// The columns that most kinds have.
var (
	Name = Column("Name", "string", "The name of the object, unique within its namespace and kind.")
	Age  = Column("Age", "string", "The time since the object was created.")
)

// Created are the columns of kinds that have no others, and CreatedRow their cells.
var Created = Columns{Name, Column("Created At", "date", "When it was made.")}

// CreatedRow is a row under Created.
func CreatedRow(obj metav1.Object) []any {
	return []any{obj.GetName(), obj.GetCreationTimestamp().UTC().Format(time.RFC3339)}
}

// AgeOf is how long ago an object was made.
func (l Look) AgeOf(obj metav1.Object) string { return l.Since(obj.GetCreationTimestamp().Time) }

// Since is how long ago something happened.
func (l Look) Since(t time.Time) string {
	if t.IsZero() {
		return Unknown
	}
	return duration.HumanDuration(l.Now.Sub(t))
}

// OrNone is a text, or that there is none.
func OrNone(s string) string { return OrElse(s, None) }

// OrElse is a text, or another where it is empty.
func OrElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// FirstOf is the first of some texts, and how many more there are.
func FirstOf(list []string, most int) string {
	if more := len(list) - most; more > 0 {
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:most], ","), more)
	}
	return strings.Join(list, ",")
}

// Selector is how kubectl shows a set of labels.
func Selector(set map[string]string) string {
	if len(set) == 0 {
		return None
	}
	parts := make([]string, 0, len(set))
	for _, k := range slices.Sorted(maps.Keys(set)) {
		parts = append(parts, labels.Set{k: set[k]}.String())
	}
	return strings.Join(parts, ",")
}

// Containers is the names and the images of a template's containers.
func Containers(s *corev1.PodSpec) (names, images string) {
	for i, c := range s.Containers {
		if i > 0 {
			names, images = names+",", images+","
		}
		names, images = names+c.Name, images+c.Image
	}
	return names, images
}
