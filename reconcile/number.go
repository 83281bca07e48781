package reconcile

import (
	"math/big"
	"strings"
)

// canonicalNumber writes a decimal in its one form: no sign on zero, neither
// leading nor trailing zeros, an exponent instead of padding. The value is
// never turned into a float.
func canonicalNumber(text string) (string, bool) {
	text = strings.TrimSpace(text)
	switch strings.ToLower(strings.TrimPrefix(text, "+")) {
	case "nan":
		return "NaN", true
	case "infinity", "inf":
		return "Infinity", true
	case "-infinity", "-inf":
		return "-Infinity", true
	}
	rest, negative := strings.CutPrefix(text, "-")
	if !negative {
		rest = strings.TrimPrefix(rest, "+")
	}
	mantissa, exponentText, scientific := cutExponent(rest)
	exponent := new(big.Int)
	if scientific {
		if !isInteger(exponentText) || len(exponentText) > 18 {
			return "", false
		}
		exponent.SetString(strings.TrimPrefix(exponentText, "+"), 10)
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return "", false
	}
	exponent.Sub(exponent, big.NewInt(int64(len(fraction))))
	digits = strings.TrimLeft(digits, "0")
	trimmed := strings.TrimRight(digits, "0")
	if trimmed == "" {
		return "0", true
	}
	exponent.Add(exponent, big.NewInt(int64(len(digits)-len(trimmed))))
	sign := ""
	if negative {
		sign = "-"
	}
	return sign + plain(trimmed, exponent), true
}

// plain places the point where that stays readable, and keeps an exponent
// elsewhere; both depend on the value alone.
func plain(digits string, exponent *big.Int) string {
	const readable = 40
	if exponent.IsInt64() {
		e := exponent.Int64()
		switch {
		case e >= 0 && e+int64(len(digits)) <= readable:
			return digits + strings.Repeat("0", int(e))
		case e < 0 && -e < int64(len(digits)):
			return digits[:len(digits)+int(e)] + "." + digits[len(digits)+int(e):]
		case e < 0 && -e <= readable:
			return "0." + strings.Repeat("0", int(-e)-len(digits)) + digits
		}
	}
	return digits + "e" + exponent.String()
}

func cutExponent(text string) (mantissa, exponent string, found bool) {
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		return text[:i], text[i+1:], true
	}
	return text, "", false
}

func isInteger(text string) bool {
	if text != "" && (text[0] == '-' || text[0] == '+') {
		text = text[1:]
	}
	return text != "" && strings.Trim(text, "0123456789") == ""
}
