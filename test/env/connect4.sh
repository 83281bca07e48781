# Kafka Connect 4.3.1 with Debezium's connectors of PostgreSQL and MySQL, 3.6.1,
# from the jars of Maven Central that mvn is configured to reach; Java 17 or later.
# (In Connect 4.4 the tasks of Debezium 3.6.1 miss a class. A newer broker is fine.)
#
# One worker that keeps where its connectors are in a file. Connectors made over
# REST end with it. It is a client of kafka4, which must run: WAYBILL_ENV_CONNECT4_KAFKA
# is its address, by default that of kafka4.
#
# Port: WAYBILL_ENV_CONNECT4_PORT, 25083, of the REST interface.
# WAYBILL_ENV_CONNECT4_JARS is a folder of jars to use instead of fetching them, as
# another WAYBILL_ENV_HOME has; WAYBILL_ENV_CONNECT4_JVM the options of the virtual
# machine, by default such that it starts fast and stays small.
# shellcheck shell=bash disable=SC2154,SC1091

. "$here/maven.bash"

connect4_version=4.3.1
connect4_debezium=3.6.1.Final
connect4_port=${WAYBILL_ENV_CONNECT4_PORT:-25083}
connect4_kafka=${WAYBILL_ENV_CONNECT4_KAFKA:-127.0.0.1:${WAYBILL_ENV_KAFKA4_PORT:-29092}}
connect4_home=$home/connect4
connect4_jars=${WAYBILL_ENV_CONNECT4_JARS:-$home/programs/connect4}
connect4_jvm=${WAYBILL_ENV_CONNECT4_JVM:--Xms128m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1}
connect4_user=nobody

connect4_install() {
  command -v java >/dev/null || apt_install openjdk-17-jre-headless
  if [ -n "${WAYBILL_ENV_CONNECT4_JARS:-}" ] && [ "$(cat "$connect4_jars/plugins/debezium/made-for" 2>/dev/null)" != "$connect4_debezium" ]; then
    die "connect4: $connect4_jars does not hold the jars of Debezium $connect4_debezium"
  fi
  # The connectors' classes have a loader of their own, whose parent has Kafka's
  # and the logging; those of others, such as REST, would be there twice.
  mkdir -p "$connect4_jars/plugins"
  maven_jars connect4 "$connect4_jars/worker" "$connect4_version" "" \
    "org.apache.kafka:connect-runtime:$connect4_version" "org.apache.kafka:connect-json:$connect4_version" \
    "org.apache.kafka:connect-transforms:$connect4_version" \
    org.apache.logging.log4j:log4j-slf4j-impl:2.25.5 org.apache.logging.log4j:log4j-core:2.25.5
  maven_jars connect4 "$connect4_jars/plugins/debezium" "$connect4_debezium" \
    org.apache.kafka,org.slf4j,at.yawk.lz4,org.xerial.snappy,com.github.luben,jakarta.ws.rs \
    "io.debezium:debezium-connector-postgres:$connect4_debezium" "io.debezium:debezium-connector-mysql:$connect4_debezium"
}

connect4_start() {
  if connect4_running; then
    say "connect4: runs already on port $connect4_port"
    return
  fi
  own_folder "$connect4_user" "$connect4_home"
  as_user "$connect4_user" test -r "$connect4_jars/worker/made-for" || die "connect4: user $connect4_user cannot read $connect4_jars"
  ! port_taken "$connect4_port" || die "connect4: port $connect4_port is in use by another program: set WAYBILL_ENV_CONNECT4_PORT"
  port_taken "${connect4_kafka##*:}" || die "connect4: no Kafka answers at $connect4_kafka: start kafka4 first"
  connect4_configure
  local archive=$connect4_home/classes share
  if [ -s "$archive" ]; then share=-XX:SharedArchiveFile=$archive; else share=-XX:ArchiveClassesAtExit=$archive.new; fi
  rm -f "$connect4_home/pid"
  # 9>&-: the server must not inherit the lock.
  # shellcheck disable=SC2016,SC2086 # for the inner shell, which becomes the server; options are words
  as_user "$connect4_user" setsid sh -c 'echo $$ >"$0" && exec "$@"' "$connect4_home/pid" env -i PATH="$PATH" LC_ALL=C.UTF-8 TZ=UTC java \
    $connect4_jvm -Xlog:disable "$share" "-Dlog4j2.configurationFile=$connect4_home/log4j2.properties" "-Dwaybill.env=$connect4_home" \
    -cp "$connect4_jars/worker/*" org.apache.kafka.connect.cli.ConnectStandalone "$connect4_home/worker.properties" \
    >"$connect4_home/stdout" 2>&1 </dev/null 9>&- &
  local starter=$! end=$((SECONDS + 120))
  until connect4_answers; do
    if ! kill -0 "$starter" 2>/dev/null || [ $SECONDS -ge $end ]; then
      tail -n 20 "$connect4_home/stdout" "$connect4_home/log" >&2 || true
      die "connect4: did not start; its log is $connect4_home/log"
    fi
    sleep 0.1
  done
  say "connect4: started on port $connect4_port"
}

connect4_stop() {
  connect4_running || return 0
  local pid i
  pid=$(cat "$connect4_home/pid")
  kill -TERM "$pid"
  for ((i = 0; i < 300; i++)); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  if kill -0 "$pid" 2>/dev/null; then
    say "connect4: does not stop within half a minute, so it is killed"
    kill -KILL "$pid"
  fi
  rm -f "$connect4_home/pid"
  [ ! -s "$connect4_home/classes.new" ] || mv "$connect4_home/classes.new" "$connect4_home/classes"
  say "connect4: stopped"
}

connect4_export() {
  printf "export WAYBILL_TEST_CONNECT4='http://127.0.0.1:%s'\n" "$connect4_port"
  printf "export WAYBILL_ENV_CONNECT4_JARS='%s'\n" "$connect4_jars"
}

connect4_describe() {
  if ! connect4_running; then
    echo stopped
  elif connect4_answers; then
    echo "running on port $connect4_port, log $connect4_home/log"
  else
    echo "running, but port $connect4_port does not answer; log $connect4_home/log"
  fi
}

connect4_configure() {
  as_user "$connect4_user" tee "$connect4_home/worker.properties" >/dev/null <<END
bootstrap.servers=$connect4_kafka
listeners=http://127.0.0.1:$connect4_port
rest.advertised.host.name=127.0.0.1
plugin.path=$connect4_jars/plugins
plugin.discovery=service_load
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.file.filename=$connect4_home/offsets
offset.flush.interval.ms=1000
connector.client.config.override.policy=All
END
  as_user "$connect4_user" tee "$connect4_home/log4j2.properties" >/dev/null <<END
status=error
appender.file.type=File
appender.file.name=file
appender.file.fileName=$connect4_home/log
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=[%d] %p %X{connector.context}%m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.file.ref=file
END
}

# connect4_running looks for the process that was started with this folder, since
# a pid may belong to another one by now.
connect4_running() {
  local pid
  pid=$(cat "$connect4_home/pid" 2>/dev/null) || return 1
  grep -qzxF -e "-Dwaybill.env=$connect4_home" "/proc/$pid/cmdline" 2>/dev/null
}

# connect4_answers asks for the list of connectors; curl may not be there.
connect4_answers() {
  local line
  line=$( (
    exec 3<>"/dev/tcp/127.0.0.1/$connect4_port" || exit 1
    printf 'GET /connectors HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' >&3
    timeout 5 head -n 1 <&3
  ) 2>/dev/null) || return 1
  [[ $line == *" 200 "* ]]
}
