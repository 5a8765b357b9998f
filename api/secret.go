package api

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/table"
)

// Secrets are data for pods that not everybody may read.
var Secrets = Define(Kind{Version: "v1", Name: "Secret", Resource: "secrets", Singular: "secret", Namespaced: true},
	Rules[*corev1.Secret]{
		New: func() *corev1.Secret { return &corev1.Secret{} }, NewList: func() ListObject { return &corev1.SecretList{} },
		Default:  defaultSecret,
		Validate: validateSecret,
		ValidateUpdate: func(s, old *corev1.Secret, _ string) field.ErrorList {
			return append(validateSecret(s), validateSecretUpdate(s, old)...)
		},
		Fields: []Field[*corev1.Secret]{{"type", func(s *corev1.Secret) string { return string(s.Type) }}},
		Columns: table.Columns{
			table.Name,
			table.Column("Type", "string", "What the secret is for, which says which keys it has."),
			table.Column("Data", "string", "How many keys it has."),
			table.Age,
		},
		Cells: func(s *corev1.Secret, l table.Look) []any {
			return []any{s.Name, string(s.Type), int64(len(s.Data)), l.AgeOf(s)}
		},
	})

func defaultSecret(s *corev1.Secret) {
	if s.Type == "" {
		s.Type = corev1.SecretTypeOpaque
	}
	if len(s.StringData) > 0 {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		for k, v := range s.StringData {
			s.Data[k] = []byte(v)
		}
	}
	s.StringData = nil // write-only: never stored, never shown
}

// secretKeys are the keys that a secret of a given type must hold.
var secretKeys = map[corev1.SecretType][]string{
	corev1.SecretTypeDockercfg:        {corev1.DockerConfigKey},
	corev1.SecretTypeDockerConfigJson: {corev1.DockerConfigJsonKey},
	corev1.SecretTypeSSHAuth:          {corev1.SSHAuthPrivateKey},
	corev1.SecretTypeTLS:              {corev1.TLSCertKey, corev1.TLSPrivateKeyKey},
}

func validateSecret(s *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	data := field.NewPath("data")
	size := 0
	for _, k := range slices.Sorted(maps.Keys(s.Data)) {
		errs = append(errs, isConfigKey(k, data)...)
		size += len(s.Data[k])
	}
	if size > maxPayload {
		errs = append(errs, field.TooLong(data, "", maxPayload))
	}
	for _, k := range secretKeys[s.Type] {
		if v, ok := s.Data[k]; !ok {
			errs = append(errs, field.Required(data.Key(k), ""))
		} else if isJSON := k == corev1.DockerConfigKey || k == corev1.DockerConfigJsonKey; isJSON && !json.Valid(v) {
			errs = append(errs, field.Invalid(data.Key(k), "<secret contents redacted>", "must be valid JSON"))
		}
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			errs = append(errs, field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), ""))
		}
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, pass := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !pass {
			errs = append(errs, field.Required(data.Key(corev1.BasicAuthUsernameKey), ""), field.Required(data.Key(corev1.BasicAuthPasswordKey), ""))
		}
	}
	return errs
}

func validateSecretUpdate(s, old *corev1.Secret) field.ErrorList {
	errs := apivalidation.ValidateImmutableField(s.Type, old.Type, field.NewPath("type"))
	if !isTrue(old.Immutable) {
		return errs
	}
	errs = append(errs, frozen(isTrue(s.Immutable), field.NewPath("immutable"))...)
	return append(errs, frozen(apiequality.Semantic.DeepEqual(s.Data, old.Data), field.NewPath("data"))...)
}
