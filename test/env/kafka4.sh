# Apache Kafka 4.4.0, one node that is broker and controller (KRaft), from the jars
# of Maven Central that mvn is configured to reach; Java 17 or later.
#
# Ports: WAYBILL_ENV_KAFKA4_PORT, 29092, without authentication (a super user);
# the next one is the controller's, the one after it asks for SASL without TLS,
# PLAIN or SCRAM-SHA-512: user waybill, password waybill. An access rule on a
# resource shuts out whom it does not name; without one everybody may do all.
# WAYBILL_ENV_KAFKA4_PROXY, where set, is the port of a proxy: the port after the
# one for SASL then listens too, and tells its clients to come by way of the proxy.
#
# WAYBILL_ENV_KAFKA4_JARS is a folder of jars to use instead of fetching them; a
# second server (another WAYBILL_ENV_HOME and port) takes the first one's so.
# shellcheck shell=bash disable=SC2154,SC1091

. "$here/maven.bash"

kafka4_version=4.4.0
kafka4_port=${WAYBILL_ENV_KAFKA4_PORT:-29092}
kafka4_sasl=$((kafka4_port + 2))
kafka4_proxied=$((kafka4_port + 3))
kafka4_proxy=${WAYBILL_ENV_KAFKA4_PROXY:-}
kafka4_home=$home/kafka4
kafka4_jars=${WAYBILL_ENV_KAFKA4_JARS:-$home/programs/kafka4}
kafka4_user=nobody
kafka4_heap=${WAYBILL_ENV_KAFKA4_HEAP:-512m}

kafka4_install() {
  command -v java >/dev/null || apt_install openjdk-17-jre-headless
  [ "$(cat "$kafka4_jars/made-for" 2>/dev/null)" != "$kafka4_version" ] || return 0
  [ -z "${WAYBILL_ENV_KAFKA4_JARS:-}" ] || die "kafka4: $kafka4_jars does not hold the jars of $kafka4_version"
  maven_jars kafka4 "$kafka4_jars" "$kafka4_version" "" \
    "org.apache.kafka:kafka_2.13:$kafka4_version" "org.apache.kafka:kafka-tools:$kafka4_version" \
    org.apache.logging.log4j:log4j-slf4j-impl:2.25.5 org.apache.logging.log4j:log4j-core:2.25.5
}

kafka4_start() {
  if kafka4_running; then
    say "kafka4: runs already on port $kafka4_port"
    return
  fi
  own_folder "$kafka4_user" "$kafka4_home"
  as_user "$kafka4_user" test -r "$kafka4_jars/made-for" || die "kafka4: user $kafka4_user cannot read $kafka4_jars"
  local port
  for port in "$kafka4_port" $((kafka4_port + 1)) "$kafka4_sasl"; do
    ! port_taken "$port" || die "kafka4: port $port is in use by another program: set WAYBILL_ENV_KAFKA4_PORT"
  done
  kafka4_configure
  [ -f "$kafka4_home/data/meta.properties" ] || kafka4_format
  # The archive of classes, written at the end of the first run, halves the time
  # that later ones take to start.
  local archive=$kafka4_home/classes share
  if [ -s "$archive" ]; then share=-XX:SharedArchiveFile=$archive; else share=-XX:ArchiveClassesAtExit=$archive.new; fi
  # 9>&-: the server must not inherit the lock.
  rm -f "$kafka4_home/pid"
  # shellcheck disable=SC2016 # for the inner shell, which becomes the server
  as_user "$kafka4_user" setsid sh -c 'echo $$ >"$0" && exec "$@"' "$kafka4_home/pid" env -i PATH="$PATH" LC_ALL=C.UTF-8 TZ=UTC java \
    "-Xms$kafka4_heap" "-Xmx$kafka4_heap" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xlog:disable "$share" \
    "-Dlog4j2.configurationFile=$kafka4_home/log4j2.properties" "-Dwaybill.env=$kafka4_home" \
    -cp "$kafka4_jars/*" kafka.Kafka "$kafka4_home/server.properties" >"$kafka4_home/stdout" 2>&1 </dev/null 9>&- &
  local starter=$! end=$((SECONDS + 120))
  until kafka4_answers; do
    if ! kill -0 "$starter" 2>/dev/null || [ $SECONDS -ge $end ]; then
      tail -n 20 "$kafka4_home/stdout" "$kafka4_home/log" >&2 || true
      die "kafka4: did not start; its log is $kafka4_home/log"
    fi
    sleep 0.1
  done
  say "kafka4: started on port $kafka4_port"
}

kafka4_stop() {
  kafka4_running || return 0
  local pid i
  pid=$(cat "$kafka4_home/pid")
  kill -TERM "$pid"
  for ((i = 0; i < 600; i++)); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  if kill -0 "$pid" 2>/dev/null; then
    say "kafka4: does not stop within a minute, so it is killed"
    kill -KILL "$pid"
  fi
  rm -f "$kafka4_home/pid"
  [ ! -s "$kafka4_home/classes.new" ] || mv "$kafka4_home/classes.new" "$kafka4_home/classes"
  say "kafka4: stopped"
}

kafka4_export() {
  printf "export WAYBILL_TEST_KAFKA4='127.0.0.1:%s'\n" "$kafka4_port"
  printf "export WAYBILL_TEST_KAFKA4_SASL='127.0.0.1:%s'\n" "$kafka4_sasl"
  printf "export WAYBILL_ENV_KAFKA4_JARS='%s'\n" "$kafka4_jars"
  [ -z "$kafka4_proxy" ] || printf "export WAYBILL_TEST_KAFKA4_PROXIED='127.0.0.1:%s'\n" "$kafka4_proxied"
}

kafka4_describe() {
  if ! kafka4_running; then
    echo stopped
  elif kafka4_answers; then
    echo "running on port $kafka4_port, log $kafka4_home/log"
  else
    echo "running, but port $kafka4_port does not answer; log $kafka4_home/log"
  fi
}

kafka4_configure() {
  as_user "$kafka4_user" tee "$kafka4_home/server.properties" >/dev/null <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((kafka4_port + 1))
listeners=PLAINTEXT://127.0.0.1:$kafka4_port,CONTROLLER://127.0.0.1:$((kafka4_port + 1)),SASL://127.0.0.1:$kafka4_sasl${kafka4_proxy:+,PROXIED://127.0.0.1:$kafka4_proxied}
advertised.listeners=PLAINTEXT://127.0.0.1:$kafka4_port,SASL://127.0.0.1:$kafka4_sasl${kafka4_proxy:+,PROXIED://127.0.0.1:$kafka4_proxy}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,PROXIED:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_waybill="waybill";
listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS
log.dirs=$kafka4_home/data
auto.create.topics.enable=false
num.partitions=1
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
num.network.threads=2
num.io.threads=4
num.recovery.threads.per.data.dir=1
log.cleaner.dedupe.buffer.size=16777216
END
  as_user "$kafka4_user" tee "$kafka4_home/log4j2.properties" >/dev/null <<END
status=error
appender.file.type=File
appender.file.name=file
appender.file.fileName=$kafka4_home/log
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.file.ref=file
END
}

kafka4_format() {
  say "kafka4: making the data folder $kafka4_home/data"
  local id
  id=w$(head -c 64 /dev/urandom | base64 | tr -dc 'A-Za-z0-9' | head -c 20)A
  as_user "$kafka4_user" env -i PATH="$PATH" LC_ALL=C.UTF-8 TZ=UTC java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
    "-Dlog4j2.configurationFile=$kafka4_home/log4j2.properties" -cp "$kafka4_jars/*" \
    kafka.tools.StorageTool format -t "$id" -c "$kafka4_home/server.properties" \
    --add-scram 'SCRAM-SHA-512=[name=waybill,password=waybill]' >"$kafka4_home/format" 2>&1 || {
    cat "$kafka4_home/format" >&2
    die "kafka4: the data folder could not be formatted"
  }
}

# kafka4_running looks for the process that was started with this folder, since a
# pid may belong to another one by now.
kafka4_running() {
  local pid
  pid=$(cat "$kafka4_home/pid" 2>/dev/null) || return 1
  grep -qzxF -e "-Dwaybill.env=$kafka4_home" "/proc/$pid/cmdline" 2>/dev/null
}

# kafka4_answers asks for metadata (version 1, no topics: length 21, api 3, id 7,
# client "env") and wants an answer to request 7 that lists one broker: while it
# is not ready to serve, it lists none.
kafka4_answers() {
  local answer
  answer=$( (
    exec 3<>"/dev/tcp/127.0.0.1/$kafka4_port" || exit 1
    printf '\x00\x00\x00\x11\x00\x03\x00\x01\x00\x00\x00\x07\x00\x03env\x00\x00\x00\x00' >&3
    timeout 2 head -c 12 <&3 | od -An -tx1 | tr -d ' \n'
  ) 2>/dev/null) || return 1
  [ "${answer:8}" = 0000000700000001 ]
}
