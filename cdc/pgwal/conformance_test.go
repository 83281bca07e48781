package pgwal_test

import (
	"testing"

	"github.com/waybillhq/waybill/cdc/cdctest"
)

func TestConformance(t *testing.T) {
	for _, server := range servers {
		t.Run(server.name, func(t *testing.T) {
			d := server.shared.open(t, server.dsn(t))
			cdctest.Run(t, conformance(func(t testing.TB) *outbox { return newOutbox(t, d, "outbox_event") }))
		})
	}
}
