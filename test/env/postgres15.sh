# PostgreSQL 15 from the Debian package postgresql-15, with a data folder of its own.
#
# Port: WAYBILL_ENV_POSTGRES15_PORT, 25015. There is no Unix socket, because its
# path could become too long (107 bytes). wal_level is logical, for tests of
# change data capture.
# shellcheck shell=bash disable=SC2154

pg15_bin=/usr/lib/postgresql/15/bin
pg15_port=${WAYBILL_ENV_POSTGRES15_PORT:-25015}
pg15_home=$home/postgres15
pg15_sync="-c fsync=$([ -n "$durable" ] && echo on || echo off)"
pg15_user=postgres

postgres15_install() {
  if [ ! -x "$pg15_bin/postgres" ]; then
    # Without this the package would make a cluster of its own.
    if [ "$(id -u)" = 0 ] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
      mkdir -p /etc/postgresql-common/createcluster.d
      echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/no-main-cluster.conf
    fi
    apt_install postgresql-15
  fi
  [ -x "$pg15_bin/postgres" ] || die "postgres15: $pg15_bin/postgres is missing after the installation of postgresql-15"
}

postgres15_start() {
  if pg15_running; then
    say "postgres15: runs already on port $pg15_port"
    return
  fi
  own_folder "$pg15_user" "$pg15_home"
  port_taken "$pg15_port" && die "postgres15: port $pg15_port is in use by another program: set WAYBILL_ENV_POSTGRES15_PORT"
  [ -d "$pg15_home/data" ] || pg15_create
  # 9>&-: the server must not inherit the lock.
  pg15 pg_ctl -D "$pg15_home/data" -l "$pg15_home/log" -o "-p $pg15_port $pg15_sync" -w -t 90 -s start 9>&- >&2 || {
    tail -n 20 "$pg15_home/log" >&2
    die "postgres15: did not start; its log is $pg15_home/log"
  }
  say "postgres15: started on port $pg15_port"
}

postgres15_stop() {
  pg15_running || return 0
  pg15 pg_ctl -D "$pg15_home/data" -m fast -w -t 90 -s stop >&2
  say "postgres15: stopped"
}

postgres15_export() {
  printf "export WAYBILL_TEST_POSTGRES15='postgres://waybill:waybill@127.0.0.1:%s/postgres?sslmode=disable'\n" "$pg15_port"
}

postgres15_describe() {
  if pg15_running; then
    echo "running on port $pg15_port, log $pg15_home/log"
  else
    echo stopped
  fi
}

pg15_create() {
  say "postgres15: making the data folder $pg15_home/data"
  # Built aside and renamed, so that an interrupted run is begun anew.
  rm -rf "$pg15_home/data.new"
  as_user "$pg15_user" sh -c 'umask 077 && echo waybill >"$1"' sh "$pg15_home/password"
  pg15 initdb -D "$pg15_home/data.new" -U waybill --pwfile="$pg15_home/password" \
    --auth=scram-sha-256 --encoding=UTF8 --locale=C >"$pg15_home/initdb.log" 2>&1 || {
    cat "$pg15_home/initdb.log" >&2
    die "postgres15: initdb failed"
  }
  rm -f "$pg15_home/password"
  as_user "$pg15_user" tee -a "$pg15_home/data.new/postgresql.conf" >/dev/null <<END
listen_addresses = '127.0.0.1'
port = $pg15_port
unix_socket_directories = ''
max_connections = 300
max_prepared_transactions = 20
wal_level = logical
max_replication_slots = 20
max_wal_senders = 20
timezone = 'UTC'
log_timezone = 'UTC'
END
  mv "$pg15_home/data.new" "$pg15_home/data"
}

pg15_running() {
  [ -d "$pg15_home/data" ] && pg15 pg_ctl -D "$pg15_home/data" status >/dev/null 2>&1
}

pg15() {
  local program=$1
  shift
  (cd / && as_user "$pg15_user" env -i PATH=/usr/bin:/bin LC_ALL=C TZ=UTC "$pg15_bin/$program" "$@")
}
