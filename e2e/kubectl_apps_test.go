package e2e

const kubectlDeployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: ` + busyboxImage + `
        command: [sh, -c, "trap 'exit 0' TERM; echo open; sleep infinity & wait"]
`

const (
	shopRolled = " && kubectl rollout status deployment/shop --timeout=60s"
	shopGone   = " && while kubectl get rs,pods -l app=shop -o name | grep .; do sleep 0.2; done"
)

// appsSteps are what people do with Deployments.
var appsSteps = []step{
	{"kubectl create namespace $NS && kubectl config set-context --current --namespace=$NS", "created", ""},
	{"kubectl apply -f shop.yaml" + shopRolled, `deployment.apps/shop created|deployment "shop" successfully rolled out`, ""},
	{"kubectl get deployments -o wide", "UP-TO-DATE|AVAILABLE|CONTAINERS|IMAGES|SELECTOR|shop   2/2     2            2|main         " + busyboxImage + "   app=shop", ""},
	{"kubectl get rs -o wide", "DESIRED   CURRENT   READY|app=shop,pod-template-hash=", ""},
	{"kubectl get all", "deployment.apps/shop|replicaset.apps/shop-|pod/shop-", ""},
	{"kubectl wait --for=condition=Available deployment/shop --timeout=10s", "condition met", ""},
	{"kubectl logs deployment/shop && kubectl exec deployment/shop -- echo inside", "open|inside", ""},
	{"kubectl apply -f shop.yaml", "unchanged", ""},
	{"kubectl set env deployment/shop COLOUR=red" + shopRolled, "env updated|successfully rolled out", ""},
	{"kubectl set resources deployment/shop --limits=memory=64Mi" + shopRolled, "resource requirements updated|successfully rolled out", ""},
	{"kubectl set image deployment/shop main=registry.example/none:1 && kubectl rollout status deployment/shop --timeout=2s",
		"!image updated|timed out", "new"},
	{"kubectl set image deployment/shop main=registry.example/none:1 && kubectl rollout status deployment/shop --timeout=2s", "!image updated",
		"old"},
	{"kubectl rollout history deployment/shop", "REVISION|1 |2 |3 |4 ", ""},
	{"kubectl rollout history deployment/shop --revision=2", "Pod Template|COLOUR:	red", ""},
	{"kubectl rollout undo deployment/shop" + shopRolled, "rolled back|successfully rolled out", ""},
	{"kubectl rollout undo deployment/shop --to-revision=1" + shopRolled, "rolled back|successfully rolled out", ""},
	{"kubectl rollout history deployment/shop", "2 |4 |5 |6 ", ""},
	{"kubectl rollout pause deployment/shop && kubectl set env deployment/shop COLOUR=blue && kubectl scale deployment shop --replicas=3 && " +
		"until kubectl get deployment shop | grep 'shop *3/3 *0 *3 '; do sleep 0.2; done", "paused|scaled", ""},
	{"kubectl rollout restart deployment/shop", "!can't restart paused deployment", ""},
	{"kubectl rollout resume deployment/shop" + shopRolled, "resumed|successfully rolled out", ""},
	{"kubectl rollout restart deployment/shop" + shopRolled + " && kubectl get deployment shop -o yaml",
		"restarted|successfully rolled out|kubectl.kubernetes.io/restartedAt|COLOUR", ""},
	{"kubectl autoscale deployment shop --max=3 && kubectl get hpa shop && kubectl describe hpa shop",
		"autoscaled|Deployment/shop|/80%|Min replicas:|Max replicas:", ""},
	{"kubectl delete hpa shop", `horizontalpodautoscaler.autoscaling "shop" deleted`, ""},
	{"kubectl create deployment small --image=" + busyboxImage + " --dry-run=server", "deployment.apps/small created (server dry run)", ""},
	{"kubectl create deployment small --image=" + busyboxImage + " -- sleep 1000 && kubectl rollout status deployment/small --timeout=60s && " +
		"kubectl delete deployment small --cascade=background", "small created|successfully rolled out|deleted", "new"},
	{"kubectl create deployment small --image=" + busyboxImage + " -- sleep 1000 && kubectl rollout status deployment/small --timeout=60s && " +
		"kubectl delete deployment small", "small created|successfully rolled out|deleted", "old"},
	{"kubectl describe deployment shop", "3 desired | 3 updated | 3 total | 3 available | 0 unavailable", ""},
	{"kubectl describe deployment shop", "StrategyType:           RollingUpdate|25% max unavailable, 25% max surge|Progressing    True    NewReplicaSetAvailable|NewReplicaSet:   shop-|ScalingReplicaSet", ""},
	{"kubectl describe rs -l app=shop", "Controlled By:  Deployment/shop|deployment.kubernetes.io/revision-history: 3", ""},
	{"kubectl delete deployment shop --cascade=orphan && kubectl get rs -l app=shop -o jsonpath='{.items[*].metadata.ownerReferences}'",
		`deployment.apps "shop" deleted`, ""},
	{"kubectl apply -f shop.yaml" + shopRolled + " && kubectl get rs -l app=shop -o yaml", "created|kind: Deployment", ""}, // adopts them
	{"kubectl delete deployment shop --cascade=foreground" + shopGone, "deleted", ""},
	{"kubectl apply -f shop.yaml" + shopRolled + " && kubectl delete deployment shop" + shopGone, "created|deleted", ""},
}
