# What PostgreSQL servers of any version have in common. A script of one sets
#   pg_name  its name: postgres15
#   pg_bin   the folder of the programs
#   pg_user  whose processes they are
#   pg_port  where it listens, on 127.0.0.1 alone
# There is no Unix socket, because its path could become too long (107 bytes).
# wal_level is logical, for tests of change data capture.
# shellcheck shell=bash disable=SC2154

pg_home=$home/$pg_name

postgres_start() {
  if pg_running; then
    say "$pg_name: runs already on port $pg_port"
    return
  fi
  own_folder "$pg_user" "$pg_home"
  port_taken "$pg_port" && die "$pg_name: port $pg_port is in use by another program: set WAYBILL_ENV_${pg_name^^}_PORT"
  [ -d "$pg_home/data" ] || pg_create
  local sync=off
  [ -z "$durable" ] || sync=on
  # 9>&-: the server must not inherit the lock.
  pg pg_ctl -D "$pg_home/data" -l "$pg_home/log" -o "-p $pg_port -c fsync=$sync" -w -t 90 -s start 9>&- >&2 || {
    tail -n 20 "$pg_home/log" >&2
    die "$pg_name: did not start; its log is $pg_home/log"
  }
  say "$pg_name: started on port $pg_port"
}

postgres_stop() {
  pg_running || return 0
  pg pg_ctl -D "$pg_home/data" -m fast -w -t 90 -s stop >&2
  say "$pg_name: stopped"
}

postgres_export() {
  printf "export WAYBILL_TEST_%s='postgres://waybill:waybill@127.0.0.1:%s/postgres?sslmode=disable'\n" "${pg_name^^}" "$pg_port"
}

postgres_describe() {
  if pg_running; then
    echo "running on port $pg_port, log $pg_home/log"
  else
    echo stopped
  fi
}

pg_create() {
  say "$pg_name: making the data folder $pg_home/data"
  # Built aside and renamed, so that an interrupted run is begun anew.
  rm -rf "$pg_home/data.new"
  as_user "$pg_user" sh -c 'umask 077 && echo waybill >"$1"' sh "$pg_home/password"
  pg initdb -D "$pg_home/data.new" -U waybill --pwfile="$pg_home/password" \
    --auth=scram-sha-256 --encoding=UTF8 --locale=C >"$pg_home/initdb.log" 2>&1 || {
    cat "$pg_home/initdb.log" >&2
    die "$pg_name: initdb failed"
  }
  rm -f "$pg_home/password"
  as_user "$pg_user" tee -a "$pg_home/data.new/postgresql.conf" >/dev/null <<END
listen_addresses = '127.0.0.1'
port = $pg_port
unix_socket_directories = ''
max_connections = 300
max_prepared_transactions = 20
wal_level = logical
max_replication_slots = 20
max_wal_senders = 20
timezone = 'UTC'
log_timezone = 'UTC'
END
  mv "$pg_home/data.new" "$pg_home/data"
}

pg_running() {
  [ -d "$pg_home/data" ] && pg pg_ctl -D "$pg_home/data" status >/dev/null 2>&1
}

# pg PROGRAM ARGUMENT... runs one of the server's programs.
pg() {
  local program=$1
  shift
  (cd / && as_user "$pg_user" env -i PATH=/usr/bin:/bin LC_ALL=C TZ=UTC "$pg_bin/$program" "$@")
}
