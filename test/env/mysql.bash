# What MySQL and MariaDB servers have in common. They run as nobody, listen on
# 127.0.0.1 alone and keep their socket in a folder with a short path, since it
# may have 107 bytes only.
# shellcheck shell=bash disable=SC2154

# mysql_accounts prints the statements that make the account of the tests. It
# may do everything: tests make databases, accounts and settings of their own.
mysql_accounts() {
  cat <<'END'
CREATE USER 'waybill'@'127.0.0.1' IDENTIFIED BY 'waybill';
GRANT ALL PRIVILEGES ON *.* TO 'waybill'@'127.0.0.1' WITH GRANT OPTION;
CREATE DATABASE waybill CHARACTER SET utf8mb4;
END
}

mysql_sync=(--sync-binlog=1 --innodb-flush-log-at-trx-commit=1)
[ -n "$durable" ] || mysql_sync=(--sync-binlog=0 --innodb-flush-log-at-trx-commit=2 --innodb-flush-method=nosync)

# mysql_launch HOME PROGRAM OPTION... starts the server in the background. It has
# a folder of its own for temporary tables: MariaDB, when it starts, deletes those
# of another server that it finds in the same one.
# 9>&-: the server must not inherit the lock of its start.
mysql_launch() {
  local folder=$1
  shift
  local socket
  socket=$(mktemp -d /tmp/waybill-env.XXXXXX)
  [ "$(id -u)" != 0 ] || chown nobody "$socket"
  (
    cd / && as_user nobody setsid env -i PATH=/usr/bin:/bin LC_ALL=C TZ=UTC "$@" \
    --bind-address=127.0.0.1 --socket="$socket/s" --tmpdir="$socket" --pid-file="$folder/pid" --secure-file-priv= \
    --server-id=9001 --log-bin=binlog --binlog-format=ROW --binlog-row-image=FULL --binlog-row-metadata=FULL \
    "${mysql_sync[@]}" \
    --character-set-server=utf8mb4 --default-time-zone=+00:00 --max-connections=500 --skip-name-resolve
  ) </dev/null >>"$folder/log" 2>&1 9>&- &
  mysql_launched=$!
}

# mysql_wait NAME HOME PORT waits until the server listens.
mysql_wait() {
  local deadline=$((SECONDS + 120))
  until port_taken "$3" && mysql_running "$2"; do
    if [ $SECONDS -ge $deadline ] || ! kill -0 "$mysql_launched" 2>/dev/null; then
      tail -n 20 "$2/log" >&2
      die "$1: did not start; its log is $2/log"
    fi
    sleep 0.1
  done
  say "$1: started on port $3"
}

# mysql_running HOME tells whether the process of the pid file is our server.
mysql_running() {
  local pid
  pid=$(cat "$1/pid" 2>/dev/null) && [ -n "$pid" ] && tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF -- "--datadir=$1/data"
}

mysql_stop() {
  mysql_running "$2" || return 0
  local pid deadline=$((SECONDS + 90))
  pid=$(cat "$2/pid")
  kill -TERM "$pid"
  while mysql_running "$2"; do
    [ $SECONDS -lt $deadline ] || die "$1: process $pid has not ended within 90 s"
    sleep 0.1
  done
  say "$1: stopped"
}

# mysql_export VARIABLE PORT SHELL prints what tests need.
mysql_export() {
  printf "export WAYBILL_TEST_%s='waybill:waybill@tcp(127.0.0.1:%s)/waybill'\n" "$1" "$2"
  printf "export WAYBILL_TEST_%s_SHELL='%s'\n" "$1" "$3"
}

mysql_describe() {
  if mysql_running "$1"; then
    echo "running on port $2, log $1/log"
  else
    echo stopped
  fi
}
