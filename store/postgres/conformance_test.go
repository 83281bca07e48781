package postgres_test

import (
	"testing"

	"github.com/waybillhq/waybill/store/storetest"
)

func TestConformance(t *testing.T) { storetest.Run(t, harness()) }
