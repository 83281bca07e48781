# PostgreSQL 18 from Debian sid, unpacked into a folder of its own.
#
# Port: WAYBILL_ENV_POSTGRES18_PORT, 25018.
# shellcheck shell=bash disable=SC2154,SC1091

. "$here/unpack.bash"

pg18_port=${WAYBILL_ENV_POSTGRES18_PORT:-25018}
pg18_home=$home/postgres18
pg18_sync="-c fsync=$([ -n "$durable" ] && echo on || echo off)"
pg18_programs=$(unpacked postgres18)

postgres18_install() {
  unpack postgres18 18. usr/lib/postgresql/18/bin/postgres postgresql-18
}

postgres18_start() {
  if pg18_running; then
    say "postgres18: runs already on port $pg18_port"
    return
  fi
  own_folder nobody "$pg18_home"
  port_taken "$pg18_port" && die "postgres18: port $pg18_port is in use by another program: set WAYBILL_ENV_POSTGRES18_PORT"
  [ -d "$pg18_home/data" ] || pg18_create
  # 9>&-: the server must not inherit the lock.
  pg18 pg_ctl -D "$pg18_home/data" -l "$pg18_home/log" -o "-p $pg18_port $pg18_sync" -w -t 90 -s start 9>&- >&2 || {
    tail -n 20 "$pg18_home/log" >&2
    die "postgres18: did not start; its log is $pg18_home/log"
  }
  say "postgres18: started on port $pg18_port"
}

postgres18_stop() {
  pg18_running || return 0
  pg18 pg_ctl -D "$pg18_home/data" -m fast -w -t 90 -s stop >&2
  say "postgres18: stopped"
}

postgres18_export() {
  printf "export WAYBILL_TEST_POSTGRES18='postgres://waybill:waybill@127.0.0.1:%s/postgres?sslmode=disable'\n" "$pg18_port"
}

postgres18_describe() {
  if pg18_running; then
    echo "running on port $pg18_port, log $pg18_home/log"
  else
    echo stopped
  fi
}

pg18_create() {
  say "postgres18: making the data folder $pg18_home/data"
  # Built aside and renamed, so that an interrupted run is begun anew.
  rm -rf "$pg18_home/data.new"
  as_user nobody sh -c 'umask 077 && echo waybill >"$1"' sh "$pg18_home/password"
  pg18 initdb -D "$pg18_home/data.new" -U waybill --pwfile="$pg18_home/password" \
    --auth=scram-sha-256 --encoding=UTF8 --locale=C >"$pg18_home/initdb.log" 2>&1 || {
    cat "$pg18_home/initdb.log" >&2
    die "postgres18: initdb failed"
  }
  rm -f "$pg18_home/password"
  as_user nobody tee -a "$pg18_home/data.new/postgresql.conf" >/dev/null <<END
listen_addresses = '127.0.0.1'
port = $pg18_port
unix_socket_directories = ''
max_connections = 300
max_prepared_transactions = 20
wal_level = logical
max_replication_slots = 20
max_wal_senders = 20
timezone = 'UTC'
log_timezone = 'UTC'
END
  mv "$pg18_home/data.new" "$pg18_home/data"
}

pg18_running() {
  [ -d "$pg18_home/data" ] && pg18 pg_ctl -D "$pg18_home/data" status >/dev/null 2>&1
}

pg18() {
  local program=$1
  shift
  (cd / && as_user nobody env -i PATH=/usr/bin:/bin LC_ALL=C TZ=UTC "$pg18_programs/usr/lib/postgresql/18/bin/$program" "$@")
}
