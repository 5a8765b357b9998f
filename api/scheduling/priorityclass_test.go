package scheduling

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// class is a good one, as edit changes it.
func class(edit func(*schedulingv1.PriorityClass)) *schedulingv1.PriorityClass {
	c := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "x", ResourceVersion: "1"}, Value: 1}
	PriorityClasses.Default(c)
	edit(c)
	return c
}

// wants checks that an error says a thing; "" is no error.
func wants(t *testing.T, name string, err error, text string) {
	t.Helper()
	if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
		t.Errorf("%s: %v, want %q", name, err, text)
	}
}

func TestPriorityClass(t *testing.T) {
	if c := class(func(*schedulingv1.PriorityClass) {}); *c.PreemptionPolicy != corev1.PreemptLowerPriority {
		t.Errorf("by default %+v", c)
	}
	odd := corev1.PreemptionPolicy("x")
	for text, edit := range map[string]func(*schedulingv1.PriorityClass){
		"is 1000000000":         func(c *schedulingv1.PriorityClass) { c.Value = 1000000001 }, // N-10.14
		"metadata.name: Forbid": func(c *schedulingv1.PriorityClass) { c.Name = "system-x" },  // N-10.15
		"preemptionPolicy: Uns": func(c *schedulingv1.PriorityClass) { c.PreemptionPolicy = &odd },
		"":                      func(c *schedulingv1.PriorityClass) { c.Value = -5 }, //
	} {
		wants(t, "make", PriorityClasses.Validate(class(edit)), text)
	}
	for _, c := range SystemPriorityClasses() {
		wants(t, c.Name, PriorityClasses.Validate(c), "")
	}
}

func TestPriorityClassUpdate(t *testing.T) {
	never := corev1.PreemptNever
	for text, edit := range map[string]func(*schedulingv1.PriorityClass){
		"value: Forbidden": func(c *schedulingv1.PriorityClass) { c.Value = 2 },
		"preemptionPolicy": func(c *schedulingv1.PriorityClass) { c.PreemptionPolicy = &never },
		"":                 func(c *schedulingv1.PriorityClass) { c.Description = "x" },
	} {
		wants(t, "change", PriorityClasses.ValidateUpdate(class(edit), class(func(*schedulingv1.PriorityClass) {}), ""), text)
	}
}
