package local

import (
	"context"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/networking"
	"ledge/storage"
)

// ownIngressClass is the class of the Ingresses that ledge serves, for all that name none. Who wants another default makes one, which is
// newer, or sets the annotation of this one to false.
func ownIngressClass() *networkingv1.IngressClass {
	return &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: networking.DefaultClass,
		Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}},
		Spec: networkingv1.IngressClassSpec{Controller: networking.Controller}}
}

// admitIngress gives a new Ingress without a class the default one, the newest where there are several, and warns of annotations that
// its class does not follow.
func admitIngress(in *inTx, ctx context.Context, tx *storage.Tx, a admission) error {
	if a.sub != "" || !slices.Contains(in.store.Kinds().Kept, networking.IngressClasses) {
		return nil
	}
	i := a.obj.(*networkingv1.Ingress)
	_, unheeded := networking.WishesOf(i)
	_, annotated := i.Annotations[networking.ClassAnnotation]
	lacks := a.old == nil && i.Spec.IngressClassName == nil && !annotated
	if len(unheeded) == 0 && !lacks {
		return nil
	}
	all, err := tx.List(networking.IngressClasses, "")
	if err != nil {
		return err
	}
	if class := defaultIngressClass(all); lacks && class != nil {
		i.Spec.IngressClassName = &class.Name
	}
	ours := slices.ContainsFunc(all, func(o api.Object) bool {
		class := o.(*networkingv1.IngressClass)
		return class.Name == networking.ClassOf(i) && class.Spec.Controller == networking.Controller
	})
	for _, text := range unheeded {
		if ours {
			api.Warn(ctx, text)
		}
	}
	return nil
}

func defaultIngressClass(all []api.Object) (best *networkingv1.IngressClass) {
	for _, o := range all {
		class := o.(*networkingv1.IngressClass)
		if !networking.IsDefault(class) {
			continue
		}
		if best == nil || best.CreationTimestamp.Before(&class.CreationTimestamp) ||
			class.CreationTimestamp.Equal(&best.CreationTimestamp) && class.Name < best.Name {
			best = class
		}
	}
	return best
}
