package httpd

import (
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// createdColumns are those of kinds that Kubernetes has no others for.
var createdColumns = []metav1.TableColumnDefinition{nameColumn, column("Created At", "date", "When it was made.")}

func createdRow(obj api.Object, _ time.Time) ([]any, []metav1.TableRowCondition) {
	return []any{obj.GetName(), obj.GetCreationTimestamp().UTC().Format(time.RFC3339)}, nil
}

var bindingColumns = []metav1.TableColumnDefinition{
	nameColumn,
	column("Role", "string", "The role that it gives."),
	ageColumn,
	wide("Users", "string", "The users that it gives it to."),
	wide("Groups", "string", "The groups that it gives it to."),
	wide("ServiceAccounts", "string", "The service accounts that it gives it to."),
}

func bindingRow(obj api.Object, now time.Time) ([]any, []metav1.TableRowCondition) {
	ref, subjects := api.BindingOf(obj)
	var users, groups, accounts []string
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	return []any{obj.GetName(), ref.Kind + "/" + ref.Name, age(obj.GetCreationTimestamp(), now),
		strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", ")}, nil
}
