package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// prefix begins the name of every variable.
const prefix = "WAYBILL_"

// Variables with our prefix that are not part of the configuration.
var otherVariables = []string{"WAYBILL_CONFIG", "WAYBILL_FAULT", "WAYBILL_FAULT_FILE", "WAYBILL_DEMO_GATE", "WAYBILL_DEMO_STORE", "WAYBILL_DEMO_BROKER"}

// variable returns the name of the variable that overlays a path.
func variable(path string) string {
	return prefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
}

// setting is one scalar of the configuration.
type setting struct {
	path   string
	secret bool
	set    func(text string) error
}

// settings lists every scalar of c, those in maps as far as the maps have entries.
func settings(c *Config) []setting {
	var all []setting
	var visit func(v reflect.Value, path string, secret bool, store func())
	visit = func(v reflect.Value, path string, secret bool, store func()) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				field := v.Type().Field(i)
				visit(v.Field(i), join(path, field.Tag.Get("yaml")), field.Tag.Get("secret") != "", store)
			}
		case reflect.Map:
			for _, key := range v.MapKeys() {
				// The elements of a map cannot be set in place: a copy is, and stored back.
				element := reflect.New(v.Type().Elem()).Elem()
				element.Set(v.MapIndex(key))
				visit(element, join(path, key.String()), secret, func() { v.SetMapIndex(key, element) })
			}
		default:
			all = append(all, setting{path: path, secret: secret, set: func(text string) error {
				if err := setScalar(v, text); err != nil {
					return err
				}
				store()
				return nil
			}})
		}
	}
	visit(reflect.ValueOf(c).Elem(), "", false, func() {})
	return all
}

// overlayEnviron applies the variables; an empty one counts as not set. One that has our prefix and no meaning
// is a warning only: a container's platform may set such names by itself.
func (l *Loaded) overlayEnviron(environ []string) error {
	byVariable := make(map[string]setting)
	for _, s := range settings(&l.Config) {
		byVariable[variable(s.path)] = s
	}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if value == "" || !strings.HasPrefix(name, prefix) || strings.HasPrefix(name, prefix+"TEST_") || strings.HasPrefix(name, prefix+"ENV_") || slices.Contains(otherVariables, name) {
			continue
		}
		s, ok := byVariable[name]
		if !ok {
			names := make([]string, 0, len(byVariable))
			for known := range byVariable {
				names = append(names, known)
			}
			hint := suggest(name, names)
			if !strings.HasPrefix(hint, "did you mean") {
				hint = "no setting has this name"
			}
			l.Warnings = append(l.Warnings, fmt.Sprintf("variable %s is not used (%s)", name, hint))
			continue
		}
		if err := s.set(value); err != nil {
			return refuse(name, "%w", err)
		}
	}
	slices.Sort(l.Warnings)
	return nil
}

// set applies one "path=value" of the command line.
func (l *Loaded) set(assignment string) error {
	path, value, found := strings.Cut(assignment, "=")
	if !found {
		return refuse("--set", "want PATH=VALUE")
	}
	all := settings(&l.Config)
	names := make([]string, len(all))
	for i, s := range all {
		if names[i] = s.path; s.path != path {
			continue
		}
		if s.secret && len(secretsIn(value)) > 0 {
			return refuse("--set "+path, "a secret on the command line is visible to every user; give it by %s or %s_file", variable(path), path)
		}
		if err := s.set(value); err != nil {
			return refuse("--set "+path, "%w", err)
		}
		return nil
	}
	hint := suggest(path, names)
	if !strings.HasPrefix(hint, "did you mean") {
		hint = "see waybill init for all settings"
	}
	return refuse("--set "+path, "unknown setting (%s)", hint)
}
