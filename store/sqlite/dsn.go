package sqlite

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
)

// dataSource is a DSN taken apart.
type dataSource struct {
	path   string
	params url.Values
}

func parseDSN(dsn string) (dataSource, error) {
	bad := func(err error, hint string) (dataSource, error) {
		return dataSource{}, &waybill.Error{Op: "open", Key: dsn, Err: err, Hint: hint}
	}
	source := dataSource{params: url.Values{}}
	rest, isURI := strings.CutPrefix(dsn, "file:")
	path, query, hasQuery := strings.Cut(rest, "?")
	if hasQuery {
		params, err := url.ParseQuery(query)
		if err != nil {
			return bad(fmt.Errorf("parameters: %w", err), "write name=value pairs joined by '&'; escape '?' in a path as %3F in a file: URI")
		}
		source.params = params
	}
	if isURI {
		if trimmed, ok := strings.CutPrefix(path, "//"); ok { // file://host/path: only an empty host
			path = "/" + strings.TrimLeft(trimmed, "/")
		}
		unescaped, err := url.PathUnescape(path)
		if err != nil {
			return bad(err, "escape '%' in a file: URI as %25")
		}
		path = unescaped
	}
	switch {
	case path == "":
		return bad(errors.New("the path is empty"), "give a path, such as orders.db or file:orders.db")
	case strings.ContainsRune(path, 0):
		return bad(errors.New("the path contains a NUL"), "")
	case path == ":memory:" || source.params.Get("mode") == "memory":
		return bad(errors.New("a database in memory cannot be shared by several connections"), "use a file in a temporary directory, or the package memstore")
	}
	source.path = path
	return source, nil
}

// decidesSync reports whether the DSN chooses the durability of commits.
func (d dataSource) decidesSync() bool {
	return d.sets("synchronous") || d.params.Has("_synchronous") || d.params.Has("_sync")
}

// sets reports whether the DSN runs a pragma of that name.
func (d dataSource) sets(name string) bool {
	return slices.ContainsFunc(d.params["_pragma"], func(pragma string) bool { return pragmaName(pragma) == name })
}

func pragmaName(pragma string) string {
	name, _, _ := strings.Cut(pragma, "(")
	name, _, _ = strings.Cut(name, "=")
	return strings.ToLower(strings.TrimSpace(name))
}

func (d dataSource) writing(busy time.Duration) string {
	// Ids are random and meet other pages each time: 16 MB of these in memory, and
	// in the log before it is copied, where the library has 2 and 4. What a
	// savepoint may have to restore is kept in memory, too, and not in a file.
	return d.uri("immediate", busyPragma(busy), "journal_mode(WAL)", "synchronous(FULL)",
		"cache_size(-16384)", "wal_autocheckpoint(4000)", "temp_store(MEMORY)")
}

func (d dataSource) reading(busy time.Duration) string {
	return d.uri("deferred", busyPragma(busy), "query_only(1)")
}

func busyPragma(busy time.Duration) string {
	return fmt.Sprintf("busy_timeout(%d)", max(busy.Milliseconds(), 1))
}

// uri returns the DSN for the driver. The driver sorts pragmas, so one of ours
// is left out where the caller has another value for it.
func (d dataSource) uri(txlock string, pragmas ...string) string {
	params := url.Values{}
	for name, values := range d.params {
		params[name] = values
	}
	params.Set("_txlock", txlock)
	params["_pragma"] = slices.Clone(d.params["_pragma"])
	for _, pragma := range pragmas {
		if !d.sets(pragmaName(pragma)) {
			params.Add("_pragma", pragma)
		}
	}
	path := d.path
	if strings.HasPrefix(path, "//") { // would be read as a host
		path = "/" + strings.TrimLeft(path, "/")
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + params.Encode()
}
