package main

import (
	"fmt"

	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
)

type initCmd struct{}

// Help has the examples.
func (initCmd) Help() string {
	return `Examples:

	waybill init
	waybill init --config orders.yaml`
}

func (c *initCmd) Run(a *app) error {
	file := a.cli.Config
	if file == "" {
		file = config.DefaultFile
	}
	if err := config.WriteTemplate(file); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.stdout, "wrote %s: each setting stands in it with its default\nnext: edit store and broker, then run: waybill migrate\n", file)
	return err
}
