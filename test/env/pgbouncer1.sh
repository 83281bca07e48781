# PgBouncer 1 from the Debian package pgbouncer, which is not started as a
# service, in front of the PostgreSQL 15 of these servers: a transaction gets a
# session of the server's, and gives it back at its end.
#
# Port: WAYBILL_ENV_PGBOUNCER1_PORT, 25016.
# shellcheck shell=bash disable=SC2154

bouncer_port=${WAYBILL_ENV_PGBOUNCER1_PORT:-25016}
bouncer_home=$home/pgbouncer1
bouncer_program=/usr/sbin/pgbouncer

pgbouncer1_install() {
  [ -x "$bouncer_program" ] || apt_install pgbouncer
  [ -x "$bouncer_program" ] || die "pgbouncer1: $bouncer_program is missing after the installation of pgbouncer"
}

pgbouncer1_start() {
  bouncer_running && { say "pgbouncer1: runs already on port $bouncer_port"; return; }
  own_folder nobody "$bouncer_home"
  port_taken "$bouncer_port" && die "pgbouncer1: port $bouncer_port is in use by another program: set WAYBILL_ENV_PGBOUNCER1_PORT"
  as_user nobody sh -c 'umask 077 && echo "\"waybill\" \"waybill\"" >"$1"' sh "$bouncer_home/users"
  as_user nobody tee "$bouncer_home/ini" >/dev/null <<END
[databases]
* = host=127.0.0.1 port=${WAYBILL_ENV_POSTGRES15_PORT:-25015}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $bouncer_port
unix_socket_dir =
auth_type = plain
auth_file = $bouncer_home/users
pool_mode = transaction
default_pool_size = 5
max_client_conn = 300
server_idle_timeout = 5
logfile = $bouncer_home/log
pidfile = $bouncer_home/pid
END
  # 9>&-: the server must not inherit the lock.
  (cd / && as_user nobody "$bouncer_program" -d -q "$bouncer_home/ini") 9>&- >&2
  local deadline=$((SECONDS + 90))
  until bouncer_running && port_taken "$bouncer_port"; do
    if [ $SECONDS -ge $deadline ]; then
      tail -n 20 "$bouncer_home/log" >&2
      die "pgbouncer1: did not start; its log is $bouncer_home/log"
    fi
    sleep 0.05
  done
  say "pgbouncer1: started on port $bouncer_port"
}

pgbouncer1_stop() {
  bouncer_running || return 0
  local pid deadline=$((SECONDS + 90))
  pid=$(cat "$bouncer_home/pid")
  kill -TERM "$pid" # at once; another signal would wait for its clients
  while kill -0 "$pid" 2>/dev/null; do
    [ $SECONDS -lt $deadline ] || die "pgbouncer1: process $pid has not ended within 90 s"
    sleep 0.05
  done
  say "pgbouncer1: stopped"
}

pgbouncer1_export() {
  printf "export WAYBILL_TEST_PGBOUNCER1='postgres://waybill:waybill@127.0.0.1:%s/postgres?sslmode=disable'\n" "$bouncer_port"
}

pgbouncer1_describe() {
  if bouncer_running; then
    echo "running on port $bouncer_port, log $bouncer_home/log"
  else
    echo stopped
  fi
}

bouncer_running() {
  local pid
  pid=$(cat "$bouncer_home/pid" 2>/dev/null) && [ -n "$pid" ] && tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF -- "$bouncer_home/ini"
}
