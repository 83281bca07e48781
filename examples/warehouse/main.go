// Command warehouse is a consumer that reads Kafka: for each paid order of the
// topic it reserves stock, once. The guide starts it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/examples/inventory"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/sqlite"
)

func main() {
	database := flag.String("database", "warehouse.db", "SQLite file of the consumer")
	url := flag.String("kafka", "kafka://127.0.0.1:9092", "URL of the cluster")
	topic := flag.String("topic", "paid-orders", "topic to read")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := consume(ctx, *database, *url, *topic); err != nil {
		fmt.Fprintln(os.Stderr, "warehouse:", err)
		os.Exit(1)
	}
}

const reservationTable = `CREATE TABLE IF NOT EXISTS reservation (order_id TEXT NOT NULL, event_id TEXT NOT NULL)`

// consume handles events until ctx ends, and then finishes what it has begun.
func consume(ctx context.Context, database, url, topic string) (err error) {
	st, err := sqlite.Open(ctx, database, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if err := st.Migrate(ctx, store.MigrateOptions{SkipOutbox: true}); err != nil {
		return err
	}
	if _, err := st.DB().ExecContext(ctx, reservationTable); err != nil {
		return err
	}
	cluster, err := open(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	p, err := inbox.New(st, cluster, inventory.Reserve, configuration(topic, cluster))
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

func open(ctx context.Context, url string) (*kafka.Broker, error) {
	config, err := kafka.ParseURL(url)
	if err != nil {
		return nil, err
	}
	config.ClientID = "warehouse" // in the logs and quotas of the cluster
	return kafka.Open(ctx, config)
}

func configuration(topic string, cluster *kafka.Broker) *inbox.Config {
	return &inbox.Config{
		Group:       "warehouse-" + topic, // of the inbox, and Kafka's consumer group
		Topics:      []string{topic},
		Baseline:    inbox.BaselineFirstSeen, // orders have changed before their first event
		DeadLetters: cluster,                 // copies of what is given up, in <topic>.DLT
	}
}
