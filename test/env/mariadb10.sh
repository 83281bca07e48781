# MariaDB 10.11 from the Debian packages mariadb-server-core and
# mariadb-client-core, which start no service, with a data folder of its own.
#
# Port: WAYBILL_ENV_MARIADB10_PORT, 25010.
# shellcheck shell=bash disable=SC2154,SC1091

. "$here/mysql.bash"

maria10_port=${WAYBILL_ENV_MARIADB10_PORT:-25010}
maria10_home=$home/mariadb10

mariadb10_install() {
  maria10_there || apt_install mariadb-server-core mariadb-client-core
  maria10_there || die "mariadb10: the packages are installed, but /usr/sbin/mariadbd is not version 10.11: point WAYBILL_TEST_MARIADB10 at a server of your own"
}

maria10_there() {
  [ -x /usr/bin/mariadb-install-db ] && [ -x /usr/bin/mariadb ] &&
    /usr/sbin/mariadbd --no-defaults --version 2>/dev/null | grep -q 'Ver 10\.11\.'
}

mariadb10_start() {
  mysql_running "$maria10_home" && { say "mariadb10: runs already on port $maria10_port"; return; }
  own_folder nobody "$maria10_home"
  port_taken "$maria10_port" && die "mariadb10: port $maria10_port is in use by another program: set WAYBILL_ENV_MARIADB10_PORT"
  [ -d "$maria10_home/data" ] || maria10_create
  mysql_launch "$maria10_home" /usr/sbin/mariadbd --no-defaults --datadir="$maria10_home/data" --port="$maria10_port" \
    --gtid-strict-mode=ON --log-slave-updates=ON
  mysql_wait mariadb10 "$maria10_home" "$maria10_port"
}

mariadb10_stop() { mysql_stop mariadb10 "$maria10_home"; }

mariadb10_export() { mysql_export MARIADB10 "$maria10_port" /usr/bin/mariadb; }

mariadb10_describe() { mysql_describe "$maria10_home" "$maria10_port"; }

# maria10_create makes the data folder, with a folder of its own for temporary
# tables, as mysql_launch has it: the installer uses some.
maria10_create() {
  say "mariadb10: making the data folder $maria10_home/data"
  local new=$maria10_home/data.new tmp=$maria10_home/tmp.new
  rm -rf "$new" "$tmp"
  (cd / && as_user nobody mkdir -m 700 "$new" "$tmp" && export TMPDIR="$tmp" &&
    as_user nobody /usr/bin/mariadb-install-db --no-defaults --datadir="$new" \
      --auth-root-authentication-method=normal --skip-test-db --skip-name-resolve &&
    { echo 'FLUSH PRIVILEGES;'; mysql_accounts; } |
    as_user nobody /usr/sbin/mariadbd --no-defaults --datadir="$new" --bootstrap --skip-log-bin) \
    >"$maria10_home/create.log" 2>&1 || {
    grep -i error "$maria10_home/create.log" >&2 || true
    tail -n 20 "$maria10_home/create.log" >&2
    die "mariadb10: the data folder could not be made"
  }
  rm -rf "$tmp"
  mv "$new" "$maria10_home/data"
}
