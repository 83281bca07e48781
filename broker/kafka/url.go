package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/waybillhq/waybill"
)

// ParseURL reads a configuration from one line:
//
//	kafka://USER:PASSWORD@HOST:PORT,HOST:PORT?tls=true&mechanism=PLAIN
//
// USER and PASSWORD are optional, and so are the parameters: tls ("true" or
// "false"), ca (a file with the authorities to trust instead of the system's,
// which implies tls), mechanism (of [SASL]) and compression. Its errors do not
// show the line, because of the password.
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
		case name == "ca":
			if c.TLS, err = trusting(value); err != nil {
				return fail(err)
			}
		case name == "tls" && value == "true":
			if c.TLS == nil {
				c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
			}
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

func trusting(file string) (*tls.Config, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the authorities to trust: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", file)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, nil
}
