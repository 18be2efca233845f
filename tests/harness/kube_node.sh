# A node: containerd and the kubelet, in mount and process namespaces of their own, in which this is the first process. What
# they keep is in memory and gone with them.
#   kube_node.sh DIRECTORY (settings, images) KUBECONFIG CGROUP PROGRAMS (containerd, runc) KUBELET
set -e
directory=$1 kubeconfig=$2 cgroup=$3 programs=$4 kubelet=$5
for place in /run /var/lib /var/log; do mount -t tmpfs none "$place"; done
mount -t proc proc /proc
PATH=$programs/usr/sbin:$programs/usr/bin:$PATH
export PATH
containerd --config "$directory/containerd.toml" > "$directory/containerd.log" 2>&1 &
attempts=0
until ctr version > /dev/null 2>&1; do
    attempts=$((attempts + 1))
    if [ "$attempts" -gt 300 ]; then echo "containerd does not answer"; exit 1; fi
    sleep 0.1
done
for image in "$directory"/images/*.tar; do ctr -n k8s.io images import "$image"; done
for controller in /sys/fs/cgroup/*/; do mkdir -p "$controller$cgroup"; done
exec "$kubelet" --config "$directory/kubelet.yaml" --kubeconfig "$kubeconfig" --node-ip 172.30.0.1 --hostname-override node-0
