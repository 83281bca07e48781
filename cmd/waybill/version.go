package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/waybillhq/waybill/store"
)

type versionCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (versionCmd) Help() string {
	return `Examples:

	waybill version
	waybill version --json`
}

func (c *versionCmd) Run(a *app) error {
	version := struct {
		Version string `json:"version"`
		Commit  string `json:"commit,omitempty"`
		Go      string `json:"go"`
		Schema  int    `json:"schema"` // of the tables
	}{Version: "(devel)", Go: runtime.Version(), Schema: store.SchemaVersion}
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			version.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				version.Commit = s.Value
			}
		}
	}
	if c.JSON {
		return a.printJSON(version)
	}
	_, err := fmt.Fprintf(a.stdout, "waybill %s, %s, tables of version %d\n", version.Version, version.Go, version.Schema)
	return err
}
