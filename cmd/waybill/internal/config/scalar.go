package config

import (
	"errors"
	"reflect"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// What a scalar must be, without the text that is something else.
var (
	errNoDuration = errors.New(`want a duration like "500ms" or "2s"`)
	errNoBool     = errors.New("want true or false")
	errNoNumber   = errors.New("want a whole number")
)

// scalarFits says what a value in the file must be, in place of the YAML
// library, whose sentences are about types of Go.
func scalarFits(node ast.Node, t reflect.Type) error {
	switch node.(type) {
	case *ast.SequenceNode:
		return errors.New("takes a single value")
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.LiteralNode:
	default:
		return nil // an anchor or a tag, say: left to the library
	}
	_, number := node.(*ast.IntegerNode)
	_, boolean := node.(*ast.BoolNode)
	switch {
	case t == ageType:
		if new(Age).UnmarshalText([]byte(node.GetToken().Value)) != nil || number {
			return errNoAge
		}
	case t == reflect.TypeFor[time.Duration]():
		if _, err := time.ParseDuration(node.GetToken().Value); err != nil || number {
			return errNoDuration
		}
	case t.Kind() == reflect.Int && !number:
		return errNoNumber
	case t.Kind() == reflect.Bool && !boolean:
		return errNoBool
	}
	return nil
}

// setScalar parses text into v. Its errors do not repeat the text.
func setScalar(v reflect.Value, text string) error {
	if v.Type() == ageType {
		return v.Addr().Interface().(*Age).UnmarshalText([]byte(text))
	}
	if v.Type() == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(text)
		if err != nil {
			return errNoDuration
		}
		v.SetInt(int64(d))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return errNoBool
		}
		v.SetBool(b)
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return errNoNumber
		}
		v.SetInt(int64(n))
	default:
		return errors.New("cannot be set this way")
	}
	return nil
}
