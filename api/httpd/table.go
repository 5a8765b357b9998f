package httpd

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"ledge/api"
	"ledge/api/table"
)

// tableOf makes the Table of some objects (N-11.18, N-11.19). Columns and cells are the kind's.
func tableOf(k *api.Kind, f form, objs []api.Object, meta metav1.ListMeta, header bool, look table.Look) (*metav1.Table, error) {
	columns := k.Columns()
	t := &metav1.Table{
		TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: f.apiVersion()},
		ListMeta: meta,
		Rows:     make([]metav1.TableRow, 0, len(objs)),
	}
	if header {
		t.ColumnDefinitions = columns
	}
	for _, obj := range objs {
		cells, conditions := k.Row(obj, look)
		if len(cells) != len(columns) {
			return nil, api.NewInternal("ledge bug: %d cells for %d columns of %T", len(cells), len(columns), obj)
		}
		row := metav1.TableRow{Cells: cells, Conditions: conditions}
		switch f.include {
		case "None":
		case "Object":
			row.Object = runtime.RawExtension{Object: obj}
		default:
			row.Object = runtime.RawExtension{Object: partial(obj, f.version)}
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}
