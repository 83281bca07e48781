package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/waybillhq/waybill/schema"
)

type schemaCmd struct {
	Check schemaCheckCmd `cmd:"" help:"Compare two versions of a JSON Schema, or two folders of them."`
}

type schemaCheckCmd struct {
	Old  string `arg:"" help:"The schema that consumers know, or a folder of schemas."`
	New  string `arg:"" help:"The schema that is to replace it, or the folder."`
	JSON bool   `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (schemaCheckCmd) Help() string {
	return `Tells removed fields, other types, narrower enums and ranges, and fields that became required or optional: what breaks
consumers of the old schema, or the old data that replay still brings. Fields and values that are new break nobody who passes
over what he does not know. Exit code 3 says that something breaks: give the event a new schema version, and its consumers
an upcast. Of two folders, the files of the same name are compared. No configuration and no database is needed.

Examples:

	waybill schema check OrderPaid.v1.json OrderPaid.v2.json
	waybill schema check --json main/schemas schemas | jq '.changes[] | select(.breaks)'`
}

// schemaChecked is the comparison of two schemas, or of the schemas of two
// folders.
type schemaChecked struct {
	Breaking int             `json:"breaking"` // how many of the changes break somebody
	Changes  []schema.Change `json:"changes"`  // all of them
}

func (c *schemaCheckCmd) Run(a *app) error {
	changes, err := c.compare()
	if err != nil {
		return err
	}
	checked := schemaChecked{Breaking: schema.Breaking(changes), Changes: append([]schema.Change{}, changes...)}
	if c.JSON {
		err = a.printJSON(checked)
	} else {
		err = a.print(c.text(&checked))
	}
	if err == nil && checked.Breaking > 0 {
		return errFindings
	}
	return err
}

func (c *schemaCheckCmd) text(checked *schemaChecked) string {
	if len(checked.Changes) == 0 {
		return "no difference that matters\n"
	}
	var text string
	for _, change := range checked.Changes {
		mark := "fine  "
		if change.Breaks {
			mark = "BREAKS"
		}
		text += fmt.Sprintf("%s  %s\n", mark, change)
	}
	if checked.Breaking == 0 {
		return text + "nothing breaks\n"
	}
	return text + fmt.Sprintf("%d of %d changes break: a new schema version and an upcast are needed\n", checked.Breaking, len(checked.Changes))
}

func (c *schemaCheckCmd) compare() ([]schema.Change, error) {
	before, err := os.Stat(c.Old)
	if err != nil {
		return nil, usageError{err}
	}
	after, err := os.Stat(c.New)
	if err != nil {
		return nil, usageError{err}
	}
	switch {
	case before.IsDir() != after.IsDir():
		return nil, usageError{errors.New("compare a file with a file, or a folder with a folder")}
	case !before.IsDir():
		return compareFiles(c.Old, c.New)
	}
	files, err := filepath.Glob(filepath.Join(c.Old, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, usageError{fmt.Errorf("there is no *.json in %s", c.Old)}
	}
	var all []schema.Change
	for _, file := range files {
		name := filepath.Base(file)
		next := filepath.Join(c.New, name)
		if _, err := os.Stat(next); errors.Is(err, os.ErrNotExist) {
			all = append(all, schema.Change{Schema: name, Kind: schema.RemovedSchema, Breaks: true})
			continue
		}
		changes, err := compareFiles(file, next)
		if err != nil {
			return nil, err
		}
		for _, change := range changes {
			change.Schema = name
			all = append(all, change)
		}
	}
	return all, nil
}

func compareFiles(before, after string) ([]schema.Change, error) {
	oldText, err := os.ReadFile(before)
	if err != nil {
		return nil, err
	}
	newText, err := os.ReadFile(after)
	if err != nil {
		return nil, err
	}
	changes, err := schema.Compare(oldText, newText)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", before, after, err)
	}
	return changes, nil
}
