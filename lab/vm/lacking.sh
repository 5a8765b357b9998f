# lacking.sh: run in a guest whose kernel has neither memory controller nor PSI, as a Raspberry Pi's has neither unless it is told
# to. Pods run, without the limits that the kernel cannot hold; log, Node and doctor say so, and what to write where.
words="cgroup_enable=memory cgroup_memory=1 psi=1"
bad() {
	printf 'lacking: %s:\n%s\n' "$1" "$2"
	tail -n 30 serve.log
	exit 1
}
ledge() { "$LEDGE_BIN" "$@"; }
until_() { # WHAT COMMAND...
	what=$1
	shift
	for _ in $(seq 90); do
		"$@" && return
		sleep 1
	done
	bad "it never came: $what" "$(ledge get pods; ledge get events)"
}
has() { case $1 in *"$2"*) ;; *) bad "want '$2' in $3" "$1" ;; esac }
tasks_bounded() { [ "$(cat /sys/fs/cgroup/kubepods/pids.max)" != max ]; } # when the board's own were counted
running() { ledge get pod bounded 2>/dev/null | grep -q Running; }

mkdir -p /boot/firmware
echo "console=tty1 rootwait" >/boot/firmware/cmdline.txt
"$LEDGE_BIN" serve >serve.log 2>&1 &
node=$!
until_ "a node" sh -c "$LEDGE_BIN get nodes 2>/dev/null | grep -q ' Ready'"
ledge apply -f - <<END || bad apply ""
apiVersion: v1
kind: Pod
metadata: {name: bounded}
spec:
  containers:
  - {name: c, image: ledge.local/self, args: [pause], resources: {requests: {memory: 32Mi}, limits: {memory: 64Mi, cpu: 100m}}}
END
until_ "a pod with a memory limit" running
group=$(echo /sys/fs/cgroup/kubepods/burstable/pod*)
[ "$(cat "$group/cpu.max")" = "10000 100000" ] || bad "the CPU's limit does not hold" "$(cat "$group/cpu.max")"
until_ "a limit of tasks" tasks_bounded
advice="add to the end of the ONE line of /boot/firmware/cmdline.txt: $words"
has "$(ledge get node -o yaml | tr -d '\n' | tr -s ' ')" "$advice" "the Node's conditions"
has "$(ledge describe node)" "UnboundedPods" "describe node"
has "$(grep 'cannot hold pods' serve.log)" "$advice" "the log"
[ "$(grep -c 'cannot hold pods' serve.log)" = 1 ] || bad "the log says it more than once" ""
! grep -q "cannot bound" serve.log || bad "the log says what is not so" ""
said=$(ledge doctor) && bad "doctor finds all well" "$said"
for check in controllers "pressure (PSI)"; do
	has "$(printf '%s\n' "$said" | grep -F -A 2 -e "$check")" "$words" "doctor's $check"
done
echo "$words" >>/boot/firmware/cmdline.txt # the usual mistake
said=$(ledge doctor)
has "$said" "put everything on ONE line" "doctor's words about two lines"
ledge delete pod bounded || bad "delete" ""
kill $node
wait $node
echo "lacking: well"
