package demo

import (
	"fmt"
	"strings"
)

// scene is where it was played, for the summary.
type scene struct {
	where          string // the databases
	inspect        string // a command, in the folder
	topic          string
	noOutage       string // why the broker was never away
	server, broker bool   // on servers of others
}

// Summary tells the result on one screen. command is how the reader can call
// waybill.
func (r *Result) Summary(command string) string {
	var b strings.Builder
	row := func(what string, n int, note string) {
		line := fmt.Sprintf("  %-24s %6d   %s", what, n, note)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	fmt.Fprintf(&b, "What was done, in %.1f s\n", r.Seconds)
	row("orders written", r.Orders, "each change and its event in one transaction")
	row("transactions undone", r.RolledBack, "rolled back, and their events with them")
	row("relay killed", r.RelayKills, "SIGKILL at bad moments")
	outages := "while orders went on"
	if r.scene.noOutage != "" {
		outages = r.scene.noOutage
	}
	row("broker stopped", r.BrokerOutages, outages)
	fmt.Fprintf(&b, "\nWhat became of it, counted in %s\n", r.scene.where)
	row("events", r.Events, "")
	row("applied", r.Applied, "")
	row("held as dead", r.Dead, r.samples.deadError)
	row("duplicates absorbed", r.DuplicatesAbsorbed, "delivered again after a crash, without effect")
	row("lost", r.Lost, "")
	row("out of order", r.OrderViolations, "")
	row("applied twice", r.DoubleEffects, "")
	row("of undone transactions", r.Phantoms, "")
	row("orders that differ", r.ReadModelDifferences, "between the two databases")
	b.WriteString("\n")
	if len(r.Violations) > 0 {
		b.WriteString("BROKEN PROMISES\n")
		for _, v := range r.Violations {
			fmt.Fprintf(&b, "  - %s\n", v)
		}
	} else {
		b.WriteString("Every event of every order took effect once, in order, or is visibly held.\n")
	}
	if r.Topic != "" {
		fmt.Fprintf(&b, "The topic %s is left on the broker; its records go after %s.\n", r.Topic, topicRetention)
	}
	if r.Database != "" {
		fmt.Fprintf(&b, "Kept: %s.\n", r.scene.where)
	}
	b.WriteString("\nWhat to try next\n")
	for _, line := range r.next(command) {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	return b.String()
}

// Insert is an INSERT that any program may do, here by the sqlite3 shell.
const insertByShell = `INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload) ` +
	`VALUES ('by-hand-1', 'order', 'O-by-hand', 'OrderPlaced', '%s', '{}')`

func (r *Result) next(command string) []string {
	if r.Dir == "" {
		return []string{
			command + " demo --keep waybill-demo    # the same, and keep the files to look into",
			command + " init                        # begin with a service of your own",
		}
	}
	dir := shellQuote(r.Dir)
	config := "--config " + shellQuote(r.Dir+"/"+configFile)
	lines := []string{
		fmt.Sprintf("(cd %s && %s)", dir, r.scene.inspect),
		fmt.Sprintf("%s trace --key %s %s", command, poisonOrder, config),
	}
	if r.samples.duplicate != "" {
		lines = append(lines, fmt.Sprintf("%s trace %s %s", command, r.samples.duplicate, config))
	}
	if r.scene.server {
		return lines
	}
	broker := "with a broker of its own; "
	if r.scene.broker {
		broker = ""
	}
	return append(lines,
		fmt.Sprintf("%s relay %s &    # %sthen, from any program:", command, config, broker),
		fmt.Sprintf("sqlite3 -cmd '.timeout 5000' %s/orders.db \"%s\"", dir, fmt.Sprintf(insertByShell, r.scene.topic)),
		fmt.Sprintf("%s trace by-hand-1 %s", command, config),
	)
}

func shellQuote(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:", r)
	}
	if strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
