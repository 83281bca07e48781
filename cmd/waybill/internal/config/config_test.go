package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// full has an entry in each map, so that settings lists every kind of path.
func full() *Config {
	return &Config{Inboxes: map[string]Inbox{"inventory": {}}, Relay: Relay{Topics: map[string]Topic{"orders": {}}}}
}

func TestTemplateLoadsAsItIs(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := WriteTemplate(DefaultFile); err != nil {
		t.Fatal(err)
	}
	l, err := Load(Source{})
	if err != nil {
		t.Fatal(err)
	}
	wd, _ := os.Getwd()
	if want := filepath.Join(wd, "orders.db"); l.Store.DSN != want || l.File != DefaultFile || l.Broker.URL != "nats://127.0.0.1:4222" {
		t.Errorf("got %+v", l)
	}
	if err := WriteTemplate(DefaultFile); err == nil {
		t.Error("an existing file was overwritten")
	}
}

// The template is the reference: it names every setting, and each of its
// commented lines is valid once the '#' is removed.
func TestTemplateNamesEverySetting(t *testing.T) {
	commented := regexp.MustCompile(`(?m)^( *)#([a-z_]+:)`)
	text := commented.ReplaceAllString(Template, "$1$2")
	c := full()
	if err := decode("template", []byte(text), c); err != nil {
		t.Fatalf("uncommented template: %v", err)
	}
	for _, s := range settings(full()) {
		name := s.path[strings.LastIndex(s.path, ".")+1:]
		if strings.HasPrefix(s.path, "inboxes.inventory.names.") {
			continue // "as under store"
		}
		if !regexp.MustCompile(`(?m)^ *` + name + `:`).MatchString(text) {
			t.Errorf("the template does not name %s", s.path)
		}
	}
	got, want := c.Relay.Config(), &relay.Config{
		Mode:     "poll",
		LeaseTTL: 10 * time.Second, Grace: 20 * time.Second, FetchBatch: 1000, PublishBatch: 500, Concurrency: 4,
		PublishTimeout: 10 * time.Second, PollBusy: 8 * time.Millisecond, PollIdle: 50 * time.Millisecond, SweepEvery: time.Minute,
		MaxAttempts: 12, BackoffMin: 200 * time.Millisecond, BackoffMax: 5 * time.Minute, MaxRows: 10000, MaxBytes: 64 << 20,
		Default: relay.TopicConfig{Format: "envelope", OnDead: "hold"},
		Topics:  map[string]relay.TopicConfig{"orders": {Format: "envelope", OnDead: "hold"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("defaults of the template:\n got %+v\nwant %+v", got, want)
	}
	if got, want := c.Store.Names.Store(), (store.Names{}).WithDefaults(); got != want {
		t.Errorf("names of the template:\n got %+v\nwant %+v", got, want)
	}
}

// Each field can be set in three ways, and the later goes before the earlier.
func TestEverySettingByFileVariableAndFlag(t *testing.T) {
	for _, s := range settings(full()) {
		t.Run(s.path, func(t *testing.T) {
			first, second, third := sample(s.path)
			file := write(t, "waybill.yaml", yamlFor(s.path, first))
			base := Source{File: file}
			if strings.HasSuffix(s.path, "_file") {
				t.Chdir(t.TempDir())
				for _, f := range []string{first, second, third} {
					if err := os.WriteFile(f, []byte("x"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				base.File = "waybill.yaml"
				if err := os.WriteFile(base.File, []byte(yamlFor(s.path, first)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, step := range []struct {
				name    string
				environ []string
				set     []string
				want    string
			}{
				{"file", nil, nil, first},
				{"variable", []string{variable(s.path) + "=" + second}, nil, second},
				{"flag", []string{variable(s.path) + "=" + second}, []string{s.path + "=" + third}, third},
			} {
				l, err := Load(Source{File: base.File, Environ: step.environ, Set: step.set})
				if err != nil {
					t.Fatalf("%s: %v", step.name, err)
				}
				got := valueAt(reflect.ValueOf(l.Config), s.path)
				if got != step.want && filepath.Base(got) != step.want {
					t.Errorf("%s: got %s, want %s", step.name, got, step.want)
				}
			}
		})
	}
}

// sample returns three values that fit the type of a path.
func sample(path string) (a, b, c string) {
	v := reflect.ValueOf(*full())
	at := reflectAt(v, path)
	switch {
	case at.Type() == ageType:
		return "1s", "forever", "3s"
	case at.Type() == reflect.TypeFor[time.Duration]():
		return "1s", "2s", "3s"
	case at.Kind() == reflect.Bool:
		return "true", "false", "true"
	case at.Kind() == reflect.Int:
		return "1", "2", "3"
	}
	return "aa", "bb", "cc"
}

func reflectAt(v reflect.Value, path string) reflect.Value {
	for name := range strings.SplitSeq(path, ".") {
		if v.Kind() == reflect.Map {
			v = v.MapIndex(reflect.ValueOf(name))
			continue
		}
		f, _ := fieldNamed(v.Type(), name)
		v = v.FieldByIndex(f.Index)
	}
	return v
}

func valueAt(v reflect.Value, path string) string { return fmt.Sprint(reflectAt(v, path).Interface()) }

func yamlFor(path, value string) string {
	var b strings.Builder
	for i, name := range strings.Split(path, ".") {
		if i > 0 {
			b.WriteString("\n" + strings.Repeat("  ", i))
		}
		b.WriteString(name + ":")
	}
	return b.String() + " " + value + "\n"
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name, yaml string
		environ    []string
		set        []string
		want       []string // parts of the error
	}{
		{"unknown key", "store:\n  dsn: a.db\nrelay:\n  lease_tll: 2s\n", nil, nil, []string{"waybill.yaml:4", "unknown key relay.lease_tll", "did you mean lease_ttl?"}},
		{"unknown section", "stores:\n  dsn: a.db\n", nil, nil, []string{":1", "unknown key stores", "did you mean store?"}},
		{"two unknown keys", "store:\n  a: 1\nbroker:\n  urll: x\n", nil, nil, []string{":2", "known here: dsn, dsn_file", ":4", "did you mean url?"}},
		{"unknown key in a topic", "relay:\n  topics:\n    orders:\n      formt: raw\n", nil, nil, []string{":4", "relay.topics.orders.formt", "did you mean format?"}},
		{"wrong type", "relay:\n  fetch_batch: many\n", nil, nil, []string{"waybill.yaml:2", "relay.fetch_batch: want a whole number"}},
		{"number for a duration", "relay:\n  lease_ttl: 5\n", nil, nil, []string{":2", "relay.lease_ttl: want a duration like"}},
		{"another word for an age", "cleanup:\n  inbox_retention: never\n", nil, nil, []string{":2", "cleanup.inbox_retention: want a duration like \"720h\", or forever"}},
		{"number for an age", "cleanup:\n  inbox_retention: 720\n", nil, nil, []string{":2", "or forever"}},
		{"forever for a duration", "cleanup:\n  retention: forever\n", nil, nil, []string{":2", "cleanup.retention: want a duration like"}},
		{"word for a duration", "relay:\n  grace: soon\n", nil, nil, []string{":2", "relay.grace: want a duration like"}},
		{"word for a switch", "relay:\n  forget: maybe\n", nil, nil, []string{":2", "relay.forget: want true or false"}},
		{"list for a scalar", "relay:\n  max_rows: [1]\n", nil, nil, []string{":2", "relay.max_rows: takes a single value"}},
		{"scalar for a section", "store: orders.db\n", nil, nil, []string{":1", "store must be a mapping"}},
		{"section for a scalar", "store:\n  dsn:\n    path: a\n", nil, nil, []string{":3", "store.dsn takes a single value"}},
		{"syntax", "store: [\n", nil, nil, []string{"waybill.yaml"}},
		{"duplicate key", "store:\n  dsn: a\n  dsn: b\n", nil, nil, []string{"waybill.yaml:"}},
		{"password in the file", "store:\n  kind: postgres\n  dsn: postgres://app:hunter2@db/orders\n", nil, nil, []string{":3", "store.dsn holds a secret", "WAYBILL_STORE_DSN", "store.dsn_file"}},
		{"keyword password in the file", "inboxes:\n  inv:\n    dsn: host=db password=hunter2\n", nil, nil, []string{":3", "inboxes.inv.dsn holds a secret", "WAYBILL_INBOXES_INV_DSN"}},
		{"token in the file", "broker:\n  url: nats://hunter2@mq:4222\n", nil, nil, []string{":2", "broker.url holds a secret"}},
		{"bad variable", "", []string{"WAYBILL_RELAY_FORGET=hunter2"}, nil, []string{"WAYBILL_RELAY_FORGET", "true or false"}},
		{"unknown flag", "", nil, []string{"relay.lease_tl=2s"}, []string{"--set relay.lease_tl", "did you mean relay.lease_ttl?"}},
		{"flag cut short", "", nil, []string{"relay.lease=2s"}, []string{"--set relay.lease", "did you mean relay.lease_ttl?"}},
		{"flag without value", "", nil, []string{"relay.lease_ttl"}, []string{"PATH=VALUE"}},
		{"secret in a flag", "", nil, []string{"store.dsn=postgres://app:hunter2@db/orders"}, []string{"visible to every user", "WAYBILL_STORE_DSN"}},
		{"given twice", "store:\n  dsn: a.db\n  dsn_file: secret\n", nil, nil, []string{"store.dsn", "twice"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load(Source{File: write(t, "waybill.yaml", c.yaml), Environ: c.environ, Set: c.set})
			if err == nil {
				t.Fatal("accepted")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q lacks %q", err, part)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows the secret: %v", err)
			}
		})
	}
}

// A line that cannot be parsed may hold a secret; parsers like to quote it.
func TestSyntaxErrorsDoNotQuoteTheFile(t *testing.T) {
	for _, text := range []string{
		"store:\n  dsn: \"postgres://app:hunter2@db\n",
		"store:\n dsn: hunter2: x\n",
		"hunter2\n",
		"store:\n  no_trigger: hunter2\n",
		"relay:\n  lease_ttl: hunter2\n",
		"relay:\n  max_rows: [hunter2]\n",
		"store: &hunter2\n  dsn: *hunter3\n",
		"store: !hunter2 x\n",
		"store:\n  dsn: *hunter2\n",
	} {
		_, err := Load(Source{File: write(t, "waybill.yaml", text)})
		if err == nil {
			t.Errorf("%q was accepted", text)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error quotes it: %v", text, err)
		}
	}
}

func TestSecretsComeFromVariableOrFile(t *testing.T) {
	dsn := "postgres://app:hun%40ter2@db/orders"
	file := write(t, "dsn", dsn+"\n")
	for name, source := range map[string]Source{
		"variable": {Environ: []string{"WAYBILL_STORE_KIND=postgres", "WAYBILL_STORE_DSN=" + dsn}},
		"file":     {Environ: []string{"WAYBILL_STORE_KIND=postgres", "WAYBILL_STORE_DSN_FILE=" + file}},
	} {
		t.Chdir(t.TempDir())
		l, err := Load(source)
		if err != nil {
			t.Fatal(err)
		}
		if l.Store.DSN != dsn || !slices.Equal(l.Secrets, []string{"hun%40ter2", "hun@ter2"}) {
			t.Errorf("%s: got %q, secrets %q", name, l.Store.DSN, l.Secrets)
		}
	}
}

// A password that is also the user's name is no secret worth blotting out every
// "postgres" for; in its place it is hidden all the same.
func TestUserNamesAreNotHidden(t *testing.T) {
	for _, dsn := range []string{
		"postgres://postgres:postgres@db/postgres",
		"postgres:postgres@tcp(db:3306)/orders",
		"host=db user=postgres password=postgres",
	} {
		t.Chdir(t.TempDir())
		l, err := Load(Source{Environ: []string{"WAYBILL_STORE_KIND=postgres", "WAYBILL_STORE_DSN=" + dsn}})
		if err != nil {
			t.Fatal(err)
		}
		if text := "postgres: no such database"; Redact(text, l.Secrets) != text {
			t.Errorf("%s: %q became %q", dsn, text, Redact(text, l.Secrets))
		}
		if got := Redact(dsn, l.Secrets); strings.Count(got, "*****") != 1 || strings.Contains(got, ":postgres@") || strings.Contains(got, "password=postgres") {
			t.Errorf("%s is shown as %s", dsn, got)
		}
	}
}

func TestSecretsAreKnownInEveryForm(t *testing.T) {
	got := secretsIn(`host=db password='a"b<c'`)
	for _, want := range []string{`a"b<c`, `a\"b<c`, `a\"b\u003cc`} {
		if !slices.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

func TestRedact(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"dial postgres://app:pw@db/x: refused", "dial postgres://app:*****@db/x: refused"},
		{"host=db password=pw user=app", "host=db password=***** user=app"},
		{"host=db password='p w' user=app", "host=db password=***** user=app"},
		{"postgres://db/x?sslpassword=pw&a=b", "postgres://db/x?sslpassword=*****&a=b"},
		{"authentication failed for hunter2", "authentication failed for *****"},
		{"nats://mq:4222 is away", "nats://mq:4222 is away"},
		{`open "app:p@s/w:d@tcp(db:3306)/x": refused`, `open "app:*****@tcp(db:3306)/x": refused`},
		{"app:pw@/x", "app:*****@/x"},
		{"p@ss:w in postgres://a:p@ss:w@db/x", "***** in postgres://a:*****@db/x"},
	} {
		if got := Redact(c.text, []string{"hunter2", "p@ss:w"}); got != c.want {
			t.Errorf("Redact(%q) = %q, want %q", c.text, got, c.want)
		}
	}
}

func TestRelativePathsStartAtTheFile(t *testing.T) {
	file := write(t, "waybill.yaml", "store:\n  dsn: file:orders.db?mode=ro\nbroker:\n  dir: nats\ninboxes:\n  inventory:\n    dsn: inventory.db\n  pg:\n    kind: postgres\n    dsn: host=db\n  unsaid:\n    dsn: postgres://db/orders\n")
	dir := filepath.Dir(file)
	l, err := Load(Source{File: file})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ got, want string }{
		{l.Store.DSN, "file:" + dir + "/orders.db?mode=ro"},
		{l.Broker.Dir, dir + "/nats"},
		{l.Inboxes["inventory"].DSN, dir + "/inventory.db"},
		{l.Inboxes["pg"].DSN, "host=db"},
		{l.Inboxes["unsaid"].DSN, "postgres://db/orders"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestUnusedVariablesAreNamed(t *testing.T) {
	t.Chdir(t.TempDir())
	l, err := Load(Source{Environ: []string{"WAYBILL_STORE_DNS=x", "WAYBILL_FAULT=x", "PATH=/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "did you mean WAYBILL_STORE_DSN?") {
		t.Errorf("warnings %q", l.Warnings)
	}
}
