package autoscaling

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"ledge/api/table"
)

func read(t *testing.T, text string) *autoscalingv2.HorizontalPodAutoscaler {
	t.Helper()
	h := &autoscalingv2.HorizontalPodAutoscaler{}
	if err := yaml.UnmarshalStrict([]byte(text), h); err != nil {
		t.Fatal(err)
	}
	return h
}

const whole = `
metadata: {name: web, namespace: default, annotations: {own: "1"}}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 9
  metrics:
  - {type: Resource, resource: {name: memory, target: {type: AverageValue, averageValue: 100Mi}}}
  - {type: ContainerResource, containerResource: {name: cpu, container: main, target: {type: Utilization, averageUtilization: 70}}}
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}
  behavior:
    scaleUp: {stabilizationWindowSeconds: 30, selectPolicy: Min, tolerance: "0.05", policies: [{type: Pods, value: 2, periodSeconds: 60}]}
    scaleDown: {selectPolicy: Disabled, policies: [{type: Percent, value: 50, periodSeconds: 15}]}
status:
  observedGeneration: 3
  currentReplicas: 4
  desiredReplicas: 5
  currentMetrics:
  - {type: Resource, resource: {name: memory, current: {averageValue: 90Mi}}}
  - {type: ContainerResource, containerResource: {name: cpu, container: main, current: {averageUtilization: 75, averageValue: 75m}}}
  - {type: Resource, resource: {name: cpu, current: {averageUtilization: 50, averageValue: 500m}}}
  conditions:
  - {type: AbleToScale, status: "True", reason: ReadyForNewScale, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}
`

// TestOlderForm: what is shown as v1 and read back is what it was, whoever wrote the annotations.
func TestOlderForm(t *testing.T) {
	h := read(t, whole)
	HorizontalPodAutoscalers.Stamp(h)
	was := h.DeepCopy()
	shown := showV1(h).(*autoscalingv1.HorizontalPodAutoscaler)
	if !reflect.DeepEqual(h, was) {
		t.Error("to show it changes it")
	}
	if n := shown.Spec.TargetCPUUtilizationPercentage; n == nil || *n != 60 || *shown.Status.CurrentCPUUtilizationPercentage != 50 ||
		shown.Annotations["own"] != "1" {
		t.Errorf("%+v", shown)
	}
	for name, want := range map[string]string{ // as Kubernetes writes it
		behaviorAnnotation: `{"ScaleUp":{"StabilizationWindowSeconds":30,"SelectPolicy":"Min","Policies":[{"Type":"Pods","Value":2,"PeriodSeconds":60}],"Tolerance":"50m"},` +
			`"ScaleDown":{"StabilizationWindowSeconds":null,"SelectPolicy":"Disabled","Policies":[{"Type":"Percent","Value":50,"PeriodSeconds":15}],"Tolerance":null}}`,
		metricsAnnotation: `[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"100Mi"}},` +
			`{"type":"ContainerResource","containerResource":{"name":"cpu","targetAverageUtilization":70,"container":"main"}}]`,
	} {
		if got := shown.Annotations[name]; got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	back := readV1(shown).(*autoscalingv2.HorizontalPodAutoscaler)
	if !apiequality.Semantic.DeepEqual(back, was) {
		t.Errorf("came back as\n%+v\nwas\n%+v", back, was)
	}
	shown.Annotations[behaviorAnnotation] = "no JSON"
	if back := readV1(shown).(*autoscalingv2.HorizontalPodAutoscaler); back.Spec.Behavior != nil || back.Annotations["own"] != "1" ||
		len(back.Annotations) != 1 {
		t.Errorf("%+v", back)
	}
	plain := &autoscalingv1.HorizontalPodAutoscaler{}
	back = readV1(plain).(*autoscalingv2.HorizontalPodAutoscaler)
	defaultAutoscaler(back)
	if again := showV1(back).(*autoscalingv1.HorizontalPodAutoscaler); *again.Spec.TargetCPUUtilizationPercentage != defaultUtilization ||
		again.Annotations != nil {
		t.Errorf("%+v", again)
	}
}

// TestConfigureOlderForm: an applied configuration of v1 sets what it says, under the names that are kept.
func TestConfigureOlderForm(t *testing.T) {
	for in, want := range map[string]string{
		`{"metadata":{"name":"a","annotations":{"own":"1"}},"spec":{"maxReplicas":3,"targetCPUUtilizationPercentage":7}}`: `{"metadata":{"name":"a","annotations":{"own":"1"}},"spec":{"maxReplicas":3,` +
			`"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":7}}}]}}`,
		`{"metadata":{"annotations":{"autoscaling.alpha.kubernetes.io/behavior":"{\"ScaleDown\":{\"SelectPolicy\":\"Disabled\"}}"}},"spec":{"targetCPUUtilizationPercentage":7}}`: `{"metadata":{"annotations":{}},"spec":{` +
			`"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":7}}}],"behavior":{` +
			`"scaleUp":{"stabilizationWindowSeconds":0,"selectPolicy":"Max","policies":[{"type":"Pods","value":4,"periodSeconds":15},{"type":"Percent","value":100,"periodSeconds":15}]},` +
			`"scaleDown":{"selectPolicy":"Disabled","policies":[{"type":"Percent","value":100,"periodSeconds":15}]}}}}`,
		`{"spec":{"metrics":[]}}`:         "",
		`{"spec":{"maxReplicas":"many"}}`: "",
	} {
		var config, wanted map[string]any
		if err := json.Unmarshal([]byte(in), &config); err != nil {
			t.Fatal(err)
		}
		err := configureV1(config)
		if (err != nil) != (want == "") {
			t.Errorf("%s: %v", in, err)
		}
		if want == "" {
			continue
		}
		if err := json.Unmarshal([]byte(want), &wanted); err != nil {
			t.Fatal(err)
		}
		if !maps.EqualFunc(config, wanted, func(a, b any) bool { return reflect.DeepEqual(a, b) }) {
			got, _ := json.Marshal(config)
			t.Errorf("%s became\n%s\nwant\n%s", in, got, want)
		}
	}
}

// TestDefaults: what nobody says is as on Kubernetes, and said twice it is the same.
func TestDefaults(t *testing.T) {
	h := read(t, "spec: {maxReplicas: 3, behavior: {scaleUp: {stabilizationWindowSeconds: 10}}}")
	defaultAutoscaler(h)
	once := h.DeepCopy()
	defaultAutoscaler(h)
	if !reflect.DeepEqual(h, once) {
		t.Error("a second time changes something")
	}
	want := read(t, `spec: {minReplicas: 1, maxReplicas: 3, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}], behavior: {
  scaleUp: {stabilizationWindowSeconds: 10, selectPolicy: Max, policies: [{type: Pods, value: 4, periodSeconds: 15}, {type: Percent, value: 100, periodSeconds: 15}]},
  scaleDown: {selectPolicy: Max, policies: [{type: Percent, value: 100, periodSeconds: 15}]}}}`)
	if !reflect.DeepEqual(h, want) {
		t.Errorf("%+v", h.Spec)
	}
}

// TestRefused: what a board cannot do is refused by its path.
func TestRefused(t *testing.T) {
	metric := func(m string) string {
		return strings.Replace(whole, "  - {type: Resource, resource: {name: memory", "  - "+m+"\n  - {type: Resource, resource: {name: memory",
			1)
	}
	edit := func(from, to string) string { return strings.Replace(whole, from, to, 1) }
	if errs := HorizontalPodAutoscalers.Validate(read(t, whole)); errs != nil {
		t.Fatal(errs)
	}
	for want, text := range map[string]string{
		"spec.metrics: Forbidden: must specify at least one Object or External":   edit("minReplicas: 2", "minReplicas: 0"),
		"spec.minReplicas: Invalid value: -1: must be greater than or equal to 0": edit("minReplicas: 2", "minReplicas: -1"),
		"spec.maxReplicas: Invalid value: 1: must be greater than or equal to `m": edit("maxReplicas: 9", "maxReplicas: 1"),
		"spec.maxReplicas: Required value":                                        edit("maxReplicas: 9", "maxReplicas: 0"),
		"spec.scaleTargetRef.kind: Required value":                                edit("kind: Deployment, ", ""),
		"spec.scaleTargetRef.name: Invalid value: \"a/b\"": edit("kind: Deployment, name: web",
			"kind: Deployment, name: a/b"),
		"spec.scaleTargetRef.apiVersion: Invalid value: \"\": apiVersion must specify API group":  edit("apiVersion: apps/v1, ", ""),
		"spec.metrics[0].pods: Forbidden: not supported by ledge":                                 metric("{type: Pods, pods: {metric: {name: x}, target: {type: AverageValue, averageValue: 1}}}"),
		"spec.metrics[0].object: Forbidden: not supported by ledge":                               metric("{type: Object, object: {describedObject: {kind: A, name: b}, metric: {name: x}, target: {type: Value, value: 1}}}"),
		"spec.metrics[0].external: Forbidden: not supported by ledge":                             metric("{type: External, external: {metric: {name: x}, target: {type: Value, value: 1}}}"),
		"spec.metrics[0].resource: Required value":                                                metric("{type: Resource}"),
		"spec.metrics[0].type: Unsupported value":                                                 metric("{type: Magic}"),
		"spec.metrics[0].resource.name: Forbidden: \"example.com/gpu\" is not supported by ledge": metric("{type: Resource, resource: {name: example.com/gpu, target: {type: AverageValue, averageValue: 1}}}"),
		"spec.metrics[0].resource.target.value: Forbidden":                                        metric("{type: Resource, resource: {name: cpu, target: {type: AverageValue, averageValue: 1, value: 1}}}"),
		"spec.metrics[0].resource.target.averageValue: Forbidden":                                 metric("{type: Resource, resource: {name: cpu, target: {type: AverageValue, averageValue: 1, averageUtilization: 1}}}"),
		"spec.metrics[0].resource.target.averageUtilization: Required":                            metric("{type: Resource, resource: {name: cpu, target: {type: AverageValue}}}"),
		"spec.metrics[0].containerResource.container: Required value":                             metric("{type: ContainerResource, containerResource: {name: cpu, target: {type: AverageValue, averageValue: 1}}}"),
		"spec.metrics[0].containerResource: Forbidden: must populate":                             metric("{type: Resource, resource: {name: cpu, target: {type: AverageValue, averageValue: 1}}, containerResource: {name: cpu}}"),
		"spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid": edit("stabilizationWindowSeconds: 30",
			"stabilizationWindowSeconds: 3601"),
		"spec.behavior.scaleUp.selectPolicy: Unsupported value":    edit("selectPolicy: Min", "selectPolicy: Some"),
		"spec.behavior.scaleUp.tolerance: Invalid value":           edit(`tolerance: "0.05"`, `tolerance: "-1"`),
		"spec.behavior.scaleUp.policies[0].periodSeconds: Invalid": edit("periodSeconds: 60", "periodSeconds: 1801"),
		"spec.behavior.scaleUp.policies[0].value: Invalid value":   edit("type: Pods, value: 2", "type: Pods, value: 0"),
		"spec.behavior.scaleDown.policies: Required value": edit("policies: [{type: Percent, value: 50, periodSeconds: 15}]",
			"policies: []"),
	} {
		h := read(t, text)
		defaultAutoscaler(h)
		err := HorizontalPodAutoscalers.Validate(h)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	old := read(t, edit("apiVersion: apps/v1, ", ""))
	if err := HorizontalPodAutoscalers.ValidateUpdate(old, old, ""); err != nil && strings.Contains(err.Error(), "apiVersion") {
		t.Errorf("a reference that was taken before: %v", err)
	}
}

// TestBeat: what was measured changes all the time, and may be forgotten; what is wanted may not.
func TestBeat(t *testing.T) {
	old := read(t, whole)
	h := old.DeepCopy()
	n := int32(51)
	h.Status.CurrentMetrics[2].Resource.Current = autoscalingv2.MetricValueStatus{AverageUtilization: &n,
		AverageValue: resource.NewQuantity(1, resource.DecimalSI)}
	if !HorizontalPodAutoscalers.IsHeartbeat(h, old) {
		t.Error("a measurement is written at once")
	}
	h.Status.DesiredReplicas++
	if HorizontalPodAutoscalers.IsHeartbeat(h, old) {
		t.Error("a new number may be forgotten")
	}
}

// TestTargets: the column that everybody looks at.
func TestTargets(t *testing.T) {
	h := read(t, whole)
	for _, tt := range []struct {
		want string
		edit func()
	}{
		{"memory: 90Mi/100Mi, cpu: 75%/70% + 1 more...", func() {}},
		{"memory: <unknown>/100Mi, cpu: <unknown>/70% + 1 more...", func() { h.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{}} }},
		{"cpu: <unknown>/60%", func() { h.Spec.Metrics = h.Spec.Metrics[2:] }},
		{"<none>", func() { h.Spec.Metrics = nil }},
	} {
		tt.edit()
		if cells, _ := HorizontalPodAutoscalers.Row(h, table.Look{}); cells[1] != "Deployment/web" || cells[2] != tt.want || cells[3] != "2" {
			t.Errorf("%v, want %s", cells, tt.want)
		}
	}
}
