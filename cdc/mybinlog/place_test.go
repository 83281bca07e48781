package mybinlog

import (
	"encoding/hex"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"
)

const (
	serverA = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	serverB = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
)

func TestPlacesOfMySQL(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"one", serverA + ":1-5", serverA + ":1-5"},
		{"intervals join", serverA + ":1-3:4:7-8", serverA + ":1-4:7-8"},
		{"two servers, as the server prints them", serverB + ":1,\n" + serverA + ":1-2", serverA + ":1-2," + serverB + ":1"},
		{"tags", serverA + ":1-2:paid:1-3:5:Zeal:9", serverA + ":1-2," + serverA + ":paid:1-3:5," + serverA + ":zeal:9"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parsePlace(mysql.MySQLFlavor, test.text)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			again, err := parsePlace(mysql.MySQLFlavor, got.String())
			if err != nil || again.String() != test.want {
				t.Errorf("read again: got %q, %v, want %q", again, err, test.want)
			}
		})
	}
	for _, text := range []string{"x", "3e11fa47:1", serverA + ":0", serverA + ":5-3", serverA + ":1::2", serverA + ":1-x"} {
		if got, err := parsePlace(mysql.MySQLFlavor, text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

// The number of a transaction that is logged out of turn leaves a gap.
func TestPlacesGrow(t *testing.T) {
	place, _ := parsePlace(mysql.MySQLFlavor, serverA+":1-2")
	before := place.clone()
	for _, number := range []uint64{4, 3, 3, 7, 0} {
		place.add(gtid{source: serverA, number: number})
	}
	place.add(gtid{source: serverB + ":tag", number: 1})
	if got, want := place.String(), serverA+":1-4:7,"+serverB+":tag:1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := before.String(), serverA+":1-2"; got != want {
		t.Errorf("the copy: got %q, want %q", got, want)
	}

	place, err := parsePlace(mysql.MariaDBFlavor, "0-1-5,7-2-9")
	if err != nil {
		t.Fatal(err)
	}
	before = place.clone()
	place.add(gtid{domain: 0, server: 3, number: 6})
	place.add(gtid{domain: 1, server: 3, number: 1})
	place.add(gtid{})
	if got, want := place.String(), "0-3-6,1-3-1,7-2-9"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := before.String(), "0-1-5,7-2-9"; got != want {
		t.Errorf("the copy: got %q, want %q", got, want)
	}
	for _, text := range []string{"0-1", "a-b-c", "0-1-2-3"} {
		if got, err := parsePlace(mysql.MariaDBFlavor, text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func TestPlacesOnTheWire(t *testing.T) {
	const id = "3e11fa4771ca11e19e33c80aa9429562"
	for _, test := range []struct{ name, text, want string }{
		{"none", "", "0000000000000000"},
		{"plain", serverA + ":1-5", "0100000000000000" + id + "0100000000000000" + "0100000000000000" + "0600000000000000"},
		{"tagged", serverA + ":1:ab:2", "0102000000000001" +
			id + "00" + "0100000000000000" + "0100000000000000" + "0200000000000000" +
			id + "04" + "6162" + "0100000000000000" + "0200000000000000" + "0300000000000000"},
	} {
		place, err := parsePlace(mysql.MySQLFlavor, test.text)
		if err != nil {
			t.Fatal(err)
		}
		set, err := place.wire()
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(set.Encode()); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}
