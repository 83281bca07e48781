package guide

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/waybillhq/waybill/internal/testenv"
)

func TestPagesWork(t *testing.T) {
	for _, program := range []string{"bash", "sqlite3", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s, which the guide uses", program)
		}
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs/guide/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, filepath.Join(root, "examples/order-service/README.md"))
	ran := 0
	for _, page := range pages {
		name, err := filepath.Rel(root, page)
		if err != nil {
			t.Fatal(err)
		}
		blocks, _ := readBlocks(t, page)
		if strings.HasSuffix(name, ".zh-CN.md") || len(blocks) == 0 {
			continue // a translation has the same blocks; a lint rule sees to it
		}
		ran++
		t.Run(name, func(t *testing.T) { newReader(t, root).follow(page) })
	}
	if ran < 2 {
		t.Errorf("found commands in %d pages: did their form change?", ran)
	}
}

func newReader(t *testing.T, root string) *reader {
	t.Helper()
	dir := t.TempDir()
	bin, port := filepath.Join(dir, "bin"), testenv.FreePorts(t, 3)
	web, probes, nats := strconv.Itoa(port), strconv.Itoa(port+1), strconv.Itoa(port+2)
	return &reader{
		t: t, root: root, dir: dir, state: filepath.Join(dir, "pwd"),
		env: append(os.Environ(), "GOBIN="+bin, "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+dir,
			"GOCACHE="+goEnv(t, "GOCACHE"), "GOMODCACHE="+goEnv(t, "GOMODCACHE"), "GOPATH="+goEnv(t, "GOPATH"),
			"WAYBILL_BROKER_PORT="+nats, "WAYBILL_BROKER_URL=nats://127.0.0.1:"+nats, "NATS_URL=nats://127.0.0.1:"+nats),
		replace: strings.NewReplacer("127.0.0.1:8080", "127.0.0.1:"+web, "127.0.0.1:9464", "127.0.0.1:"+probes),
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
