package config

import (
	"errors"
	"math"
	"reflect"
	"time"
)

// Age is a duration after which something goes, or [Forever].
type Age time.Duration

// Forever is the age that nothing reaches.
const Forever Age = math.MaxInt64

const forever = "forever"

var (
	ageType  = reflect.TypeFor[Age]()
	errNoAge = errors.New(`want a duration like "720h", or forever`)
)

// String returns what is written in the file.
func (a Age) String() string {
	if a == Forever {
		return forever
	}
	return time.Duration(a).String()
}

// UnmarshalText takes a duration or the word. Its error does not repeat the text.
func (a *Age) UnmarshalText(text []byte) error {
	if string(text) == forever {
		*a = Forever
		return nil
	}
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return errNoAge
	}
	*a = Age(d)
	return nil
}
