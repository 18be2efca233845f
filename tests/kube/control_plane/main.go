// One program that is the API server, the controller manager, the scheduler or kubectl, by the name it is called by: four programs
// that share nearly all of their code, linked once. tests/provision_kube.py builds it.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var parts = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

func main() {
	called := filepath.Base(os.Args[0])
	part, exists := parts[called]
	if !exists {
		fmt.Fprintf(os.Stderr, "%s is none of my names, which are %s\n", called, strings.Join(names(), ", "))
		os.Exit(2)
	}
	os.Exit(cli.Run(part()))
}

func names() []string {
	var all []string
	for name := range parts {
		all = append(all, name)
	}
	sort.Strings(all)
	return all
}
