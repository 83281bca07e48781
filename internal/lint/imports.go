package lint

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// ring is a place in the import law. An entry of may is a package of ours,
// relative to the module path, "" being the root; "x/..." means all below x.
type ring struct {
	dir    string // of the package; "x/..." for all below
	may    []string
	advice string
}

var (
	vocabulary = []string{""}
	contracts  = []string{"", "store", "broker", "cdc"}
	parts      = []string{"", "store", "broker", "cdc", "outbox", "relay", "inbox", "reconcile"}
	// Fakes and suites that pass the contracts; any test may trust them.
	doubles = []string{
		"", "store", "store/memstore", "store/storetest", "broker", "broker/membroker", "broker/brokertest",
		"cdc", "cdc/memlog", "cdc/cdctest", "outbox", "relay/relaytest", "waybilltest", "internal/...",
	}
)

// law lists the packages of the core from the innermost outwards. The first
// entry that matches counts.
var law = []ring{
	{"", nil, "the root package is the vocabulary and knows nobody: move the code outwards, or pass in what it needs"},
	{"internal/...", nil, "internal packages are tools without an opinion: pass in what they need"},
	{"store", vocabulary, "a contract speaks in the vocabulary alone: move the code to the part that uses the contract"},
	{"broker", vocabulary, "a contract speaks in the vocabulary alone: move the code to the part that uses the contract"},
	{"cdc", vocabulary, "a contract speaks in the vocabulary alone: move the code to the part that uses the contract"},
	{"store/...", []string{"", "store", "store/...", "internal/..."}, "an adapter knows the vocabulary and its own contract: what two adapters share belongs into the contract or its suite"},
	{"broker/...", []string{"", "broker", "broker/...", "internal/..."}, "an adapter knows the vocabulary and its own contract: what two adapters share belongs into the contract or its suite"},
	{"cdc/...", []string{"", "cdc", "cdc/...", "internal/..."}, "an adapter knows the vocabulary and its own contract: what two adapters share belongs into the contract or its suite"},
	{"schema", vocabulary, "a schema speaks of data and knows no part: let the caller join them"},
	{"schema/...", vocabulary, "a schema speaks of data and knows no part: let the caller join them"},
	{"outbox", contracts, "the writer knows contracts only: let the caller join the parts"},
	{"relay", append(slices.Clone(contracts), "internal/..."), "relay, inbox and reconcile do not know each other: join them in ops or cmd"},
	{"relay/relaytest", append(slices.Clone(doubles), "relay"), "the suite of the relay rests on contracts and fakes, so that any store can run it"},
	{"inbox", append(slices.Clone(contracts), "outbox", "internal/..."), "of its siblings the inbox may use the outbox only: join the others in ops or cmd"},
	{"inbox/...", []string{"", "inbox", "internal/..."}, "an addition to the inbox knows the vocabulary and the inbox"},
	{"reconcile", append(slices.Clone(contracts), "internal/..."), "relay, inbox and reconcile do not know each other: join them in ops or cmd"},
	{"telemetry/...", append(slices.Clone(parts), "internal/..."), "telemetry hangs on the hooks of the parts and on nothing else"},
	{"ops", append(slices.Clone(parts), "internal/..."), "ops joins the parts and knows neither console nor command"},
	{"console", append(slices.Clone(parts), "ops", "internal/..."), "the console shows what ops answers"},
	{"waybilltest", doubles, "assertions for users rest on contracts and fakes"},
}

// free are the modules that join everything: the binary, tests, examples.
var free = []string{"cmd", "test", "examples", "tools"}

// ImportLaw checks who imports whom.
func ImportLaw(tree *Tree) []Finding {
	var found []Finding
	for file := range tree.code {
		dir := file.dir()
		if dir == "." {
			dir = ""
		}
		top, _, _ := strings.Cut(dir, "/")
		place, known := lookup(dir)
		for _, one := range file.imports() {
			target, ours := strings.CutPrefix(one.path, modulePath)
			if !ours || target != "" && target[0] != '/' {
				if tree.module(file.Path) == "." && thirdParty(one.path) {
					found = append(found, Finding{file.Path, one.line, fmt.Sprintf("the core imports %s: use the standard library, or move this into a module of its own", one.path)})
				}
				continue
			}
			target = strings.TrimPrefix(target, "/")
			if slices.Contains(free, top) || target == dir {
				continue
			}
			if !known {
				found = append(found, Finding{file.Path, one.line, fmt.Sprintf("package %q has no place in the import law: add it to law in internal/lint/imports.go", dir)})
				break
			}
			if matches(place.may, target) && !foreign(tree, file, target) {
				continue
			}
			if file.test() && (matches(doubles, target) || dir == "" || top == "ops") && !foreign(tree, file, target) {
				continue
			}
			found = append(found, Finding{file.Path, one.line, fmt.Sprintf("%s must not import %q: %s", shown(dir), target, place.advice)})
		}
	}
	return found
}

// foreign reports whether target is an adapter that lives in another module
// than the file, and is not the core.
func foreign(tree *Tree, file *File, target string) bool {
	home := tree.module(path.Join(target, "x.go"))
	return home != "." && home != tree.module(file.Path)
}

func lookup(dir string) (ring, bool) {
	for _, place := range law {
		if place.dir == dir || matches([]string{place.dir}, dir) {
			return place, true
		}
	}
	return ring{}, false
}

func matches(patterns []string, dir string) bool {
	for _, pattern := range patterns {
		if below, ok := strings.CutSuffix(pattern, "..."); ok && strings.HasPrefix(dir, below) || pattern == dir {
			return true
		}
	}
	return false
}

func thirdParty(target string) bool {
	first, _, _ := strings.Cut(target, "/")
	return strings.Contains(first, ".")
}

func shown(dir string) string {
	if dir == "" {
		return "the root package"
	}
	return dir
}
