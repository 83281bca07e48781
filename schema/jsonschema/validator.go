package jsonschema

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/waybillhq/waybill"
)

// Validator judges data by compiled schemas. It may be used from several
// goroutines.
type Validator struct {
	types map[string]map[int]*jsonschema.Schema
}

var _ waybill.Validator = (*Validator)(nil)

var fileName = regexp.MustCompile(`^(.+)\.v([1-9][0-9]{0,8})\.json$`)

// base is where the files seem to be; nothing is fetched from it.
const base = "file:///schemas/"

// Load compiles the schemas in a folder of files, at once, so that one that is
// none shows at the start. Other files of the folder may be referred to.
func Load(files fs.FS, folder string) (*Validator, error) {
	names, err := fs.Glob(files, path.Join(folder, "*.json"))
	if err != nil {
		return nil, &waybill.Error{Op: "load schemas", Key: folder, Err: err}
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(nowhere{})
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, &waybill.Error{Op: "load schema", Key: name, Err: err}
		}
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err == nil {
			err = compiler.AddResource(base+path.Base(name), document)
		}
		if err != nil {
			return nil, &waybill.Error{Op: "load schema", Key: name, Err: err}
		}
	}
	v := &Validator{types: make(map[string]map[int]*jsonschema.Schema)}
	for _, name := range names {
		found := fileName.FindStringSubmatch(path.Base(name))
		if found == nil {
			continue
		}
		compiled, err := compiler.Compile(base + path.Base(name))
		if err != nil {
			return nil, &waybill.Error{Op: "load schema", Key: name, Err: err}
		}
		version, err := strconv.Atoi(found[2])
		if err != nil {
			return nil, &waybill.Error{Op: "load schema", Key: name, Err: err}
		}
		if v.types[found[1]] == nil {
			v.types[found[1]] = make(map[int]*jsonschema.Schema)
		}
		v.types[found[1]][version] = compiled
	}
	if len(v.types) == 0 {
		return nil, &waybill.Error{Op: "load schemas", Key: folder, Err: errors.New("there is none"), Hint: "name the files <type>.v<version>.json"}
	}
	return v, nil
}

// nowhere refuses what is not in the folder.
type nowhere struct{}

func (nowhere) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is not in the folder", strings.TrimPrefix(url, base))
}

// ValidateData judges an event's data. Its error names the places that do not
// fit, and does not repeat what stands there: it may be secret.
func (v *Validator) ValidateData(e *waybill.Event) error {
	versions := v.types[e.Type]
	if versions == nil {
		return nil
	}
	version := max(e.SchemaVersion, 1)
	schema := versions[version]
	if schema == nil {
		return fmt.Errorf("%w: %s %d, known are %v", waybill.ErrUnknownSchema, e.Type, version, slices.Sorted(maps.Keys(versions)))
	}
	data, err := jsonschema.UnmarshalJSON(bytes.NewReader(e.Data))
	if err != nil {
		return fmt.Errorf("%w: %s %d: it is not JSON", waybill.ErrInvalidData, e.Type, version)
	}
	err = schema.Validate(data)
	var invalid *jsonschema.ValidationError
	if errors.As(err, &invalid) {
		return fmt.Errorf("%w: %s %d: %s", waybill.ErrInvalidData, e.Type, version, strings.Join(places(invalid), ", "))
	}
	return err
}

// maxPlaces bounds an error's text.
const maxPlaces = 10

// places lists what does not fit as "/amount (type)", each once.
func places(invalid *jsonschema.ValidationError) (all []string) {
	if len(invalid.Causes) == 0 {
		var at strings.Builder
		for _, step := range invalid.InstanceLocation {
			at.WriteString("/" + step)
		}
		if at.Len() == 0 {
			at.WriteString("/")
		}
		return []string{fmt.Sprintf("%s (%s)", at.String(), strings.Join(invalid.ErrorKind.KeywordPath(), "/"))}
	}
	for _, cause := range invalid.Causes {
		for _, place := range places(cause) {
			if !slices.Contains(all, place) && len(all) < maxPlaces {
				all = append(all, place)
			}
		}
	}
	return all
}
