// The kubelet of Kubernetes, from its module. tests/provision_kube.py builds it.
package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background())))
}
