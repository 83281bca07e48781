package checks

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/waybillhq/waybill/reconcile"
)

func load(t *testing.T, tail string) (*File, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "check.yaml")
	text := `
databases:
  shop: {kind: postgres, dsn: "postgres://app:hunter2@127.0.0.1/shop"}
checks:
  orders: {key: [id], write: {database: shop, table: w, version: v}, log: {database: shop, table: l, version: v}}
` + tail
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(name)
}

func TestAnAlertReachesTheWebhookOfTheFile(t *testing.T) {
	asked := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path + " " + r.Header.Get("Authorization")
	}))
	defer server.Close()
	t.Setenv("HOOK_URL", server.URL+"/T00/secret")
	t.Setenv("HOOK_TOKEN", "Bearer s3cret")
	file, err := load(t, "results: {database: shop, prefix: r_, keep: 1440h}\nalerts: {no_log: true, webhook: {url_env: HOOK_URL, authorization_env: HOOK_TOKEN, timeout: 2s}}\n")
	if err != nil {
		t.Fatal(err)
	}
	hook, err := file.Alerts.Webhook.Notifier()
	if err != nil {
		t.Fatal(err)
	}
	if err := hook.Notify(t.Context(), &reconcile.Alert{Name: "MISSING_EVENT"}); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; got != "/T00/secret Bearer s3cret" {
		t.Errorf("asked for %s", got)
	}
	for _, secret := range []string{"hunter2", server.URL + "/T00/secret", "Bearer s3cret"} {
		if !slices.Contains(file.Secrets(), secret) {
			t.Errorf("%q is no secret of the file: %q", secret, file.Secrets())
		}
	}
	if slices.Contains(file.Secrets(), "") {
		t.Error("an empty secret would hide everything")
	}
}

func TestAWrongPlaceForResultsOrAlertsIsRefused(t *testing.T) {
	for tail, want := range map[string]string{
		"results: {database: shpo}\n":                                              `results: there is no database "shpo"`,
		"results: {data_base: shop}\n":                                             "unknown field",
		"alerts: {webhook: {timeout: 1s}}\n":                                       "give one of url, url_file and url_env",
		"alerts: {webhook: {url: 'http://h/s3cret', url_env: HOOK}}\n":             "give one of url, url_file and url_env",
		"alerts: {webhook: {url_env: NO_SUCH_HOOK}}\n":                             "the variable NO_SUCH_HOOK is not set",
		"alerts: {webhook: {url: 'http://h/s3cret', authorization_file: nowhere}}": "nowhere: no such file",
	} {
		if _, err := load(t, tail); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %s", tail, err, want)
		}
	}
	file, err := load(t, "")
	if err != nil {
		t.Fatal(err)
	}
	if hook, err := file.Alerts.Webhook.Notifier(); hook != nil || err != nil {
		t.Errorf("no webhook: %v, %v", hook, err)
	}
	if _, _, _, err := file.Ledger(t.Context(), false); err == nil {
		t.Error("results without a place were opened")
	}
}
