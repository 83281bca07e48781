# Redis 7 from the Debian package redis-server, which is not started as a
# service; nothing is kept on disk.
#
# Port: WAYBILL_ENV_REDIS7_PORT, 25007.
# shellcheck shell=bash disable=SC2154

redis7_port=${WAYBILL_ENV_REDIS7_PORT:-25007}
redis7_home=$home/redis7

redis7_install() {
  command -v redis-server >/dev/null || apt_install redis-server
  redis-server --version 2>/dev/null | grep -q 'v=7\.' ||
    die "redis7: redis-server is not version 7: point WAYBILL_TEST_REDIS7 at a server of your own"
}

redis7_start() {
  redis7_running && { say "redis7: runs already on port $redis7_port"; return; }
  own_folder nobody "$redis7_home"
  port_taken "$redis7_port" && die "redis7: port $redis7_port is in use by another program: set WAYBILL_ENV_REDIS7_PORT"
  # 9>&-: the server must not inherit the lock.
  (cd / && as_user nobody redis-server --bind 127.0.0.1 --port "$redis7_port" --protected-mode yes --daemonize yes \
    --dir "$redis7_home" --pidfile "$redis7_home/pid" --logfile "$redis7_home/log" --save '' --appendonly no) 9>&- >&2
  local deadline=$((SECONDS + 90))
  until redis7_running && port_taken "$redis7_port"; do
    if [ $SECONDS -ge $deadline ]; then
      tail -n 20 "$redis7_home/log" >&2
      die "redis7: did not start; its log is $redis7_home/log"
    fi
    sleep 0.05
  done
  say "redis7: started on port $redis7_port"
}

redis7_stop() {
  redis7_running || return 0
  local pid deadline=$((SECONDS + 90))
  pid=$(cat "$redis7_home/pid")
  kill -TERM "$pid"
  while kill -0 "$pid" 2>/dev/null; do
    [ $SECONDS -lt $deadline ] || die "redis7: process $pid has not ended within 90 s"
    sleep 0.05
  done
  say "redis7: stopped"
}

redis7_export() { printf "export WAYBILL_TEST_REDIS7='127.0.0.1:%s'\n" "$redis7_port"; }

redis7_describe() {
  if redis7_running; then
    echo "running on port $redis7_port, log $redis7_home/log"
  else
    echo stopped
  fi
}

# The server writes its address into its command line.
redis7_running() {
  local pid
  pid=$(cat "$redis7_home/pid" 2>/dev/null) && [ -n "$pid" ] &&
    tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -q "redis-server 127.0.0.1:$redis7_port"
}
