# MySQL 9 from Debian sid, unpacked into a folder of its own.
#
# Port: WAYBILL_ENV_MYSQL9_PORT, 25009. The binary log is on, with rows and GTIDs,
# for tests of change data capture.
#
# WAYBILL_ENV_MYSQL9_PROGRAMS is a folder of unpacked programs to use instead of
# fetching them; a second server (another WAYBILL_ENV_HOME and port) takes the
# first one's so.
# shellcheck shell=bash disable=SC2154,SC1091

. "$here/unpack.bash"
. "$here/mysql.bash"

my9_port=${WAYBILL_ENV_MYSQL9_PORT:-25009}
my9_home=$home/mysql9
my9_programs=${WAYBILL_ENV_MYSQL9_PROGRAMS:-$(unpacked mysql9)}

mysql9_install() {
  if [ -n "${WAYBILL_ENV_MYSQL9_PROGRAMS:-}" ]; then
    [ -x "$my9_programs/usr/sbin/mysqld" ] || die "mysql9: $my9_programs/usr/sbin/mysqld is missing"
    return
  fi
  unpack mysql9 9. usr/sbin/mysqld mysql-server-core mysql-client-core
}

mysql9_start() {
  mysql_running "$my9_home" && { say "mysql9: runs already on port $my9_port"; return; }
  own_folder nobody "$my9_home"
  port_taken "$my9_port" && die "mysql9: port $my9_port is in use by another program: set WAYBILL_ENV_MYSQL9_PORT"
  [ -d "$my9_home/data" ] || my9_create
  mysql_launch "$my9_home" "$my9_programs/usr/sbin/mysqld" "${my9_options[@]}" --datadir="$my9_home/data" --port="$my9_port" \
    --gtid-mode=ON --enforce-gtid-consistency=ON --mysqlx=OFF --performance-schema=OFF
  mysql_wait mysql9 "$my9_home" "$my9_port"
}

mysql9_stop() { mysql_stop mysql9 "$my9_home"; }

mysql9_export() {
  mysql_export MYSQL9 "$my9_port" "$my9_programs/usr/bin/mysql"
  printf "export WAYBILL_ENV_MYSQL9_PROGRAMS='%s'\n" "$my9_programs"
}

mysql9_describe() { mysql_describe "$my9_home" "$my9_port"; }

my9_options=(
  --no-defaults --basedir="$my9_programs/usr" --lc-messages-dir="$my9_programs/usr/share/mysql"
  --character-sets-dir="$my9_programs/usr/share/mysql/charsets" --plugin-dir="$my9_programs/usr/lib/mysql/plugin" --secure-file-priv=
)

my9_create() {
  say "mysql9: making the data folder $my9_home/data"
  rm -rf "$my9_home/data.new"
  mysql_accounts | as_user nobody tee "$my9_home/accounts.sql" >/dev/null
  (cd / && as_user nobody "$my9_programs/usr/sbin/mysqld" "${my9_options[@]}" --datadir="$my9_home/data.new" \
    --mysqlx=OFF --skip-log-bin --init-file="$my9_home/accounts.sql" --initialize-insecure) >"$my9_home/create.log" 2>&1 || {
    tail -n 20 "$my9_home/create.log" >&2
    die "mysql9: the data folder could not be made"
  }
  mv "$my9_home/data.new" "$my9_home/data"
}
