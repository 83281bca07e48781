package reconcile

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"html"
	"regexp"
	"strings"
	"testing"
)

func htmlOf(t *testing.T, reports ...*Report) string {
	t.Helper()
	var b strings.Builder
	if err := WriteHTML(&b, reports); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReportAsAPage(t *testing.T) {
	w, change := reported(t)
	w.read["equal"].Values = []Value{parseValue(KindText, "<script>alert('订单')</script>", 0)}
	report := w.run(change)
	report.Trend = []Day{
		{"2026-02-27", map[Class]int{MissingEvent: 1}}, {"2026-02-28", map[Class]int{}}, {"2026-03-01", map[Class]int{MissingEvent: 1, OrphanEvent: 3, InFlight: 9}},
	}
	quiet := newWorld(t)
	quiet.put("a", 1)
	golden(t, "report.page.html", htmlOf(t, report, quiet.run(nil)))
}

// The page must be harmless to open and readable under a strict policy,
// whatever is in the tables.
func TestThePageStandsByItself(t *testing.T) {
	w, change := reported(t)
	for _, hostile := range []string{`"><script>x()</script>`, `</style><img src=http://example.org/x onerror=x()>`, `javascript:x()`} {
		w.put(hostile, 2)
		w.read[hostile].Values = status(hostile)
	}
	report := w.run(change)
	report.Check = `<b onclick="x()">`
	text := htmlOf(t, report)

	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(text)
	if style == nil {
		t.Fatal("no style")
	}
	sum := sha256.Sum256([]byte(style[1]))
	if want := "style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(html.UnescapeString(text), want) {
		t.Errorf("the page's policy does not allow its own style, %s", want)
	}
	for name, forbidden := range map[string]string{
		"script": `<script`, "handler": `<[^>]*\son[a-z]+\s*=`, "inline style": `<[^>]*\sstyle\s*=`, "asset": `<[^>]*\s(src|href)\s*=\s*["']?[^#"']`,
		"import": `@import|url\(`,
	} {
		if found := regexp.MustCompile(forbidden).FindString(text); found != "" {
			t.Errorf("%s in the page: %q", name, found)
		}
	}
	// Every element is closed, so nothing in a value has broken out.
	body := text[strings.Index(text, "<body>"):strings.Index(text, "</html>")]
	body = strings.NewReplacer("<br>", "<br/>", "<details open>", `<details open="">`).Replace(body)
	decoder := xml.NewDecoder(strings.NewReader(body))
	for {
		if _, err := decoder.Token(); err != nil {
			if err.Error() != "EOF" {
				t.Error(err)
			}
			break
		}
	}
}

func TestAPageShowsBothValuesOfWhatDiffers(t *testing.T) {
	w := newWorld(t)
	w.put("a", 2)
	w.read["a"].Values = status("other")
	text := htmlOf(t, w.run(nil))
	if want := `<td class="value differs">&#34;s&#34;</td><td class="value differs">&#34;s&#34;</td><td class="value differs">&#34;other&#34;</td>`; !strings.Contains(text, want) {
		t.Errorf("the page lacks %s:\n%s", want, text)
	}
}
