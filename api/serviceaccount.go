package api

import (
	corev1 "k8s.io/api/core/v1"

	"ledge/api/table"
)

// ServiceAccounts are who pods are when they ask the API.
var ServiceAccounts = Define(Kind{Version: "v1", Name: "ServiceAccount", Resource: "serviceaccounts", Singular: "serviceaccount",
	Short: []string{"sa"}, Namespaced: true},
	Rules[*corev1.ServiceAccount]{
		New:     func() *corev1.ServiceAccount { return &corev1.ServiceAccount{} },
		NewList: func() ListObject { return &corev1.ServiceAccountList{} },
		Columns: table.Columns{table.Name, table.Age},
		Cells:   func(s *corev1.ServiceAccount, l table.Look) []any { return []any{s.Name, l.AgeOf(s)} },
	})
