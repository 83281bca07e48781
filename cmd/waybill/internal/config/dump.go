package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Setting is one setting with its effective value.
type Setting struct {
	Path  string `json:"setting"`
	Value string `json:"value"`
}

// Dump lists the settings that have a value, by path, with their secrets hidden.
func (l *Loaded) Dump() []Setting {
	all := []Setting{}
	var visit func(v reflect.Value, path string)
	visit = func(v reflect.Value, path string) {
		switch {
		case v.Type() == ageType:
			if v.Int() != 0 {
				all = append(all, Setting{path, Age(v.Int()).String()})
			}
		case v.Type() == reflect.TypeFor[time.Duration]():
			if v.Int() != 0 {
				all = append(all, Setting{path, time.Duration(v.Int()).String()})
			}
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				visit(v.Field(i), join(path, v.Type().Field(i).Tag.Get("yaml")))
			}
		case v.Kind() == reflect.Map:
			for _, key := range v.MapKeys() {
				visit(v.MapIndex(key), join(path, key.String()))
			}
		case !v.IsZero():
			all = append(all, Setting{path, Redact(fmt.Sprint(v.Interface()), l.Secrets)})
		}
	}
	visit(reflect.ValueOf(&l.Config).Elem(), "")
	slices.SortFunc(all, func(a, b Setting) int { return cmp.Compare(a.Path, b.Path) })
	return all
}
