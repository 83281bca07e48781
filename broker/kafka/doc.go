// Package kafka connects waybill to Apache Kafka.
package kafka
