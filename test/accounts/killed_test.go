package accounts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	program "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill/internal/fault"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/reconcile"
)

// What the process that is killed is to do, as JSON in this variable.
const envKilled = "WAYBILL_ACCOUNTS_KILLED"

type task struct {
	Name    string
	Mode    reconcile.Mode
	Dialect reconcile.Dialect
	Address string
	Rebuild string // how, instead of a run
	Plan    string // to be applied instead
	Hash    string // of that
}

var drivers = map[reconcile.Dialect]string{reconcile.SQLite: "sqlite", reconcile.Postgres: "pgx", reconcile.MySQL: "mysql", reconcile.MariaDB: "mysql"}

func killedCheck(name string) *reconcile.Check {
	check := ordersCheck()
	check.Name = name
	check.Read.Database = "write"
	return check
}

func (k *task) run(t *testing.T, d reconcile.Database) (*reconcile.Report, error) {
	t.Helper()
	ledger, err := reconcile.NewLedger(d, &reconcile.LedgerConfig{Prefix: "Proof-"})
	if err != nil {
		t.Fatal(err)
	}
	return runner(t, killedCheck(k.Name), d, d, ledger, &reconcile.RunnerConfig{StretchKeys: 5, LeaseTTL: time.Minute}).Run(t.Context(), reconcile.Scope{Mode: k.Mode})
}

// TestChildThatIsKilled is no test of its own: it is the process that the others
// start and kill.
func TestChildThatIsKilled(t *testing.T) {
	text := os.Getenv(envKilled)
	if text == "" {
		t.Skip("runs only as the child of another test")
	}
	var k task
	if err := json.Unmarshal([]byte(text), &k); err != nil {
		t.Fatal(err)
	}
	db := connect(t, drivers[k.Dialect], k.Address)
	if k.Rebuild != "" {
		rebuildShelves(t, reconcile.Database{DB: db, Dialect: k.Dialect}, k.Rebuild)
		return
	}
	if k.Plan != "" {
		p := enter(t, reconcile.Database{DB: db, Dialect: k.Dialect}, k.Address)
		p.apply(purchasesCheck(), &reconcile.Plan{ID: k.Plan, Hash: k.Hash})
		return
	}
	report, err := k.run(t, reconcile.Database{DB: db, Dialect: k.Dialect})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("REPORT " + timeless(t, report))
}

// address returns how another process reaches a database.
func address(t *testing.T, d reconcile.Database) string {
	t.Helper()
	ask := func(query string) (text string) {
		if err := d.DB.QueryRowContext(t.Context(), query).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	switch d.Dialect {
	case reconcile.SQLite:
		return "file:" + ask("SELECT file FROM pragma_database_list WHERE name = 'main'") + "?_pragma=busy_timeout(10000)"
	case reconcile.Postgres:
		u, err := url.Parse(testenv.Postgres15(t))
		if err != nil {
			t.Fatal(err)
		}
		u.Path = "/" + ask("SELECT current_database()")
		return u.String()
	}
	server := testenv.MySQL9
	if d.Dialect == reconcile.MariaDB {
		server = testenv.MariaDB10
	}
	settings, err := mysql.ParseDSN(server(t))
	if err != nil {
		t.Fatal(err)
	}
	settings.DBName, settings.ParseTime, settings.Params = ask("SELECT database()"), true, map[string]string{"time_zone": "'+00:00'"}
	return settings.FormatDSN()
}

// timeless is a report without what differs from run to run.
func timeless(t *testing.T, report *reconcile.Report) string {
	t.Helper()
	r := *report
	r.Check, r.RunID, r.StartedAt, r.FinishedAt = "", "", time.Time{}, time.Time{}
	text, err := json.Marshal(&r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// killedWorld is a database with faults of each kind.
func killedWorld(t *testing.T, dialect reconcile.Dialect) (reconcile.Database, *reconcile.Ledger) {
	t.Helper()
	d := open(t, dialect)
	o := newOrders(t, d, d)
	for _, key := range []string{"f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8"} {
		o.put(key, 2)
	}
	exec(t, d, "DELETE FROM {q}log{q} WHERE event_id = 'a-2'")
	exec(t, d, "UPDATE {q}log{q} SET state = 'DEAD' WHERE event_id = 'f2-2'")
	exec(t, d, "UPDATE {q}Sales-EU Order{q} SET status = 'VOID' WHERE {q}order{q} = '_a'")
	exec(t, d, "DELETE FROM {q}Sales-EU Order{q} WHERE {q}order{q} = 'f5'")
	exec(t, d, "UPDATE {q}read{q} SET status = 'VOID' WHERE id IN ('1', 'f7', 'z')")
	exec(t, d, "UPDATE {q}Sales-EU Order{q} SET version = 3 WHERE {q}order{q} = 'f8'")
	o.event("f8", 3, "changed", "PENDING", time.Now().Add(-10*time.Second))
	return d, newLedger(t, d)
}

// process runs a task, and stops at a point.
type process struct {
	t    *testing.T
	cmd  *program.Cmd
	flag string
	out  bytes.Buffer
	done chan struct{}
	err  error
}

func (k *task) start(t *testing.T, point string) *process {
	t.Helper()
	text, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	c := &process{t: t, flag: filepath.Join(t.TempDir(), "stopped"), done: make(chan struct{})}
	c.cmd = program.Command(os.Args[0], "-test.run=^TestChildThatIsKilled$", "-test.count=1")
	c.cmd.Env = append(os.Environ(), envKilled+"="+string(text), fault.EnvPoint+"="+point, fault.EnvFile+"="+c.flag)
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.done)
		c.err = c.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.done
	})
	return c
}

// reached waits until the child has stopped at its point.
func (c *process) reached() {
	c.t.Helper()
	wait(c.t, "the point", func() bool {
		select {
		case <-c.done:
			c.t.Fatalf("ended before its point: %v\n%s", c.err, &c.out)
		default:
		}
		_, err := os.Stat(c.flag)
		return err == nil
	})
}

func (c *process) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// resume lets the child go on to its end. It says so again and again: the child may
// have reached its point, and not have stopped yet.
func (c *process) resume() {
	c.t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			c.t.Fatal(err)
		}
		select {
		case <-c.done:
			return
		case <-again.C:
		}
	}
}

// expire lets the time of a lease pass.
func expire(t *testing.T, d reconcile.Database, check string) {
	t.Helper()
	exec(t, d, "UPDATE {q}Proof-lease{q} SET expires_at = '2001-01-01 00:00:00' WHERE check_name = '"+check+"'")
}

// onRecord lists the findings of a check without what differs from run to run.
func onRecord(t *testing.T, ledger *reconcile.Ledger, check string) string {
	t.Helper()
	found, err := ledger.ListFindings(t.Context(), reconcile.FindingFilter{Check: check})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for i := range found {
		f := &found[i]
		lines = append(lines, fmt.Sprintln(f.Class, f.Side, f.Key, f.State, f.Detail, f.Causes, f.Missing, string(f.Sample)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// The moments at which a run dies. With chunks of three rows and stretches of
// five keys there are several of most in a run.
var (
	everyPoint = []string{
		"reconcile.begun", "reconcile.chunk:1", "reconcile.chunk:3", "reconcile.read", "reconcile.confirmed", "reconcile.recording", "reconcile.recorded",
	}
	weeklyPoints = append(slices.Clone(everyPoint), "reconcile.read:2", "reconcile.confirmed:3", "reconcile.recording:2", "reconcile.recorded:2", "reconcile.recorded:3")
	killings     = map[reconcile.Dialect]map[reconcile.Mode][]string{
		reconcile.SQLite: {reconcile.ModeFull: everyPoint, reconcile.ModeWindow: append([]string{"reconcile.listed"}, everyPoint[3:]...), reconcile.ModeWeekly: weeklyPoints},
		reconcile.Postgres: {
			reconcile.ModeFull: {"reconcile.recording", "reconcile.recorded"}, reconcile.ModeWindow: {"reconcile.listed", "reconcile.recording"},
			reconcile.ModeWeekly: {"reconcile.chunk:3", "reconcile.confirmed:2", "reconcile.recording:2", "reconcile.recorded:2"},
		},
		reconcile.MySQL: {
			reconcile.ModeFull: {"reconcile.recording", "reconcile.recorded"}, reconcile.ModeWindow: {"reconcile.listed", "reconcile.recording"},
			reconcile.ModeWeekly: {"reconcile.chunk:3", "reconcile.confirmed:2", "reconcile.recording:2", "reconcile.recorded:2"},
		},
	}
)

func TestARunThatWasKilledIsMadeGoodByTheNext(t *testing.T) {
	for _, dialect := range []reconcile.Dialect{reconcile.SQLite, reconcile.Postgres, reconcile.MySQL} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			d, ledger := killedWorld(t, dialect)
			where := address(t, d)
			for mode, points := range killings[dialect] {
				undisturbed := &task{Name: "undisturbed " + string(mode), Mode: mode}
				report, err := undisturbed.run(t, d)
				if err != nil {
					t.Fatal(err)
				}
				if report.Differences != 7 || report.InFlight != 1 || report.Keys != 17 {
					t.Fatalf("undisturbed: %s", report.Text())
				}
				want, wantFindings := timeless(t, report), onRecord(t, ledger, undisturbed.Name)
				for _, point := range points {
					t.Run(string(mode)+" "+point, func(t *testing.T) {
						k := &task{Name: string(mode) + " " + point, Mode: mode, Dialect: dialect, Address: where}
						c := k.start(t, point)
						c.reached()
						c.signal(syscall.SIGKILL)
						<-c.done
						killed := standing(t, ledger, k.Name)
						finished := strings.HasPrefix(point, "reconcile.recorded") && (mode != reconcile.ModeWeekly || killed.Sweeping == nil)
						if !finished && len(killed.Coverage) > 0 {
							t.Errorf("covered by a run that did not end: %+v", killed.Coverage)
						}
						before, err := ledger.Runs(t.Context(), k.Name, 0)
						if err != nil || len(before) != 1 {
							t.Fatal(before, err)
						}
						if _, err := k.run(t, d); !errors.Is(err, reconcile.ErrRunning) {
							t.Errorf("while the lease of the dead lives: %v", err)
						}
						expire(t, d, k.Name)
						again, err := k.run(t, d)
						if err != nil {
							t.Fatal(err)
						}
						if got := timeless(t, again); got != want {
							t.Errorf("the report is\n%s\nundisturbed:\n%s", got, want)
						}
						if got := onRecord(t, ledger, k.Name); got != wantFindings {
							t.Errorf("on record:\n%s\nundisturbed:\n%s", got, wantFindings)
						}
						if after := standing(t, ledger, k.Name); len(after.Coverage) == 0 || after.Sweeping != nil {
							t.Errorf("standing %+v", after)
						}
						runs, err := ledger.Runs(t.Context(), k.Name, 0)
						if err != nil {
							t.Fatal(err)
						}
						continues := mode == reconcile.ModeWeekly && !finished
						if continues && (len(runs) != 1 || runs[0].State != reconcile.RunDone || again.RunID != before[0].ID) {
							t.Errorf("a weekly run that goes on: %+v", runs)
						}
						if !continues && (len(runs) != 2 || runs[0].State != reconcile.RunDone || (runs[1].State == reconcile.RunDone) != finished || !finished && runs[1].State != reconcile.RunInterrupted) {
							t.Errorf("runs %+v", runs)
						}
					})
				}
			}
		})
	}
}

func standing(t *testing.T, ledger *reconcile.Ledger, check string) *reconcile.Standing {
	t.Helper()
	s, err := ledger.Standing(t.Context(), check)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// One that was stopped for longer than its lease lives comes back too late, and
// one that was stopped for less goes on.
func TestARunThatWasTakenForDeadWritesNothing(t *testing.T) {
	for _, dialect := range []reconcile.Dialect{reconcile.SQLite, reconcile.Postgres, reconcile.MySQL} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			d, ledger := killedWorld(t, dialect)
			k := &task{Name: "late", Mode: reconcile.ModeFull, Dialect: dialect, Address: address(t, d)}
			late := k.start(t, "reconcile.confirmed")
			late.reached()
			expire(t, d, k.Name)
			report, err := k.run(t, d)
			if err != nil {
				t.Fatal(err)
			}
			runs, err := ledger.Runs(t.Context(), k.Name, 0)
			if err != nil {
				t.Fatal(err)
			}
			late.resume()
			if late.err == nil || !strings.Contains(late.out.String(), reconcile.ErrLeaseLost.Error()) {
				t.Errorf("the late one: %v\n%s", late.err, &late.out)
			}
			after, err := ledger.Runs(t.Context(), k.Name, 0)
			if err != nil || fmt.Sprint(len(after), after[0].State, after[1].State, after[1].Error) != fmt.Sprint(len(runs), runs[0].State, runs[1].State, runs[1].Error) || after[1].State != reconcile.RunInterrupted {
				t.Errorf("runs %+v, %v, before %+v", after, err, runs)
			}
			if found, err := ledger.ListFindings(t.Context(), reconcile.FindingFilter{Check: k.Name}); err != nil || len(found) != report.Differences || found[0].Seen != 1 {
				t.Errorf("findings %+v, %v", found, err)
			}

			k.Name = "in time"
			slow := k.start(t, "reconcile.read")
			slow.reached()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if _, err := runner(t, killedCheck(k.Name), d, d, ledger, nil).Run(ctx, full); !errors.Is(err, reconcile.ErrRunning) {
				t.Errorf("two at once: %v", err)
			}
			slow.resume()
			if want := "REPORT " + timeless(t, report); slow.err != nil || !strings.Contains(slow.out.String(), want) {
				t.Errorf("the first of two: %v\n%s\nwant %s", slow.err, &slow.out, want)
			}
		})
	}
}
