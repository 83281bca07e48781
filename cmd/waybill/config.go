package main

import "github.com/waybillhq/waybill/cmd/waybill/internal/config"

type configCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (configCmd) Help() string {
	return `Settings that are not listed have their default. Passwords and tokens are hidden.

Examples:

	waybill config
	waybill config --config orders.yaml --json`
}

// configView is the effective configuration.
type configView struct {
	File     string           `json:"file"` // empty: none was read
	Settings []config.Setting `json:"settings"`
}

func (c *configCmd) Run(a *app) error {
	loaded, err := a.load()
	if err != nil {
		return err
	}
	view := configView{File: loaded.File, Settings: loaded.Dump()}
	if c.JSON {
		return a.printJSON(view)
	}
	var rows [][]string
	for _, s := range view.Settings {
		rows = append(rows, []string{s.Path, oneLine(s.Value)})
	}
	return a.print(a.screen.table([]string{"setting", "value"}, rows))
}
