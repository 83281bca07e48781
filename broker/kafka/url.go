package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/waybillhq/waybill"
)

// ParseURL reads a configuration from one line:
//
//	kafka://USER:PASSWORD@HOST:PORT,HOST:PORT?tls=true&mechanism=PLAIN
//
// USER and PASSWORD are optional, and so are the parameters: tls ("true" or
// "false"), mechanism (of [SASL]) and compression. Its errors do not show the
// line, because of the password.
func ParseURL(text string) (*Config, error) {
	fail := func(err error) (*Config, error) {
		return nil, &waybill.Error{Op: "read the URL of kafka", Err: err, Hint: "write kafka://HOST:PORT,HOST:PORT"}
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fail(errors.New("it is not a URL"))
	case u.Scheme != "kafka":
		return fail(errors.New("it does not begin with kafka://"))
	case u.Host == "" || strings.Trim(u.Path, "/") != "" || u.Fragment != "":
		return fail(errors.New("it needs hosts, and takes nothing behind them but parameters"))
	}
	c := &Config{Brokers: strings.Split(u.Host, ",")}
	if u.User != nil {
		password, _ := u.User.Password()
		c.SASL = &SASL{User: u.User.Username(), Password: password}
	}
	parameters, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fail(errors.New("its parameters cannot be read"))
	}
	for name, values := range parameters {
		switch value := values[len(values)-1]; {
		case name == "tls" && value == "true":
			c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		case name == "tls" && value == "false":
		case name == "mechanism" && c.SASL != nil:
			c.SASL.Mechanism = value
		case name == "compression":
			c.Compression = value
		default:
			return fail(fmt.Errorf("the parameter %q is unknown, or has a value that it cannot have", name))
		}
	}
	if _, err := c.withDefaults(); err != nil {
		return nil, err
	}
	return c, nil
}
