package reconcile

// Equal reports whether two values are the same, and what had to be normalised
// to see it; note is empty where they were the same as they stood.
//
// Where the two sides know different kinds, as SQLite knows no decimals and
// JSON no times, the text is read as the other side's kind. Text against text
// is bytewise: '1.10' and '1.1' are two texts.
func Equal(a, b Value) (equal bool, note string) {
	if a.IsNull() || b.IsNull() {
		return a.IsNull() && b.IsNull(), ""
	}
	if a.kind == kindUnread || b.kind == kindUnread {
		return false, ""
	}
	if a.kind != b.kind {
		var ok bool
		if a, b, ok = meet(a, b); !ok {
			return false, ""
		}
		note = "read as " + string(a.kind)
	}
	switch a.kind {
	case KindTime:
		equal = sameInstant(a, b)
		if equal && !a.at.Equal(b.at) {
			note = "time, at the coarser precision"
		} else if equal && note == "" && a.raw != b.raw && a.raw != "" && b.raw != "" {
			note = "time, by instant"
		}
	default:
		equal = a.text == b.text
		if equal && note == "" && a.raw != b.raw {
			note = string(a.kind) + ", by value"
		}
	}
	if !equal {
		return false, ""
	}
	return true, note
}

// meet brings two values of different kinds to one.
func meet(a, b Value) (Value, Value, bool) {
	rank := func(v Value) int {
		switch v.kind {
		case KindText:
			return 0
		case KindBinary:
			return 1
		case KindNumber:
			return 2
		}
		return 3
	}
	swapped := rank(a) > rank(b)
	if swapped {
		a, b = b, a
	}
	if a.kind != KindText && a.kind != KindBinary && (a.kind != KindNumber || b.kind == KindUUID) {
		return a, b, false
	}
	if a.kind == KindText && b.kind == KindBinary {
		b = Value{kind: KindText, text: b.text, raw: b.text}
		return a, b, true
	}
	if a.kind == KindBinary && b.kind == KindNumber {
		return a, b, false
	}
	if b.kind == KindJSON && a.kind == KindText {
		if as := parseValue(KindJSON, a.raw, 0); as.kind == KindJSON {
			return as, b, true
		}
		return a, b, false
	}
	as := parseValue(b.kind, a.raw, maxDigits)
	if as.kind != b.kind {
		return a, b, false
	}
	if swapped {
		return b, as, true
	}
	return as, b, true
}
