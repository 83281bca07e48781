# PostgreSQL 15 from the Debian package postgresql-15, with a data folder of its own.
#
# Port: WAYBILL_ENV_POSTGRES15_PORT, 25015.
# shellcheck shell=bash disable=SC2034,SC2154,SC1091

pg_name=postgres15
pg_bin=/usr/lib/postgresql/15/bin
pg_user=postgres
pg_port=${WAYBILL_ENV_POSTGRES15_PORT:-25015}
. "$here/postgres.bash"

postgres15_install() {
  if [ ! -x "$pg_bin/postgres" ]; then
    # Without this the package would make a cluster of its own.
    if [ "$(id -u)" = 0 ] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
      mkdir -p /etc/postgresql-common/createcluster.d
      echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/no-main-cluster.conf
    fi
    apt_install postgresql-15
  fi
  [ -x "$pg_bin/postgres" ] || die "postgres15: $pg_bin/postgres is missing after the installation of postgresql-15"
}

postgres15_start() { postgres_start; }
postgres15_stop() { postgres_stop; }
postgres15_export() { postgres_export; }
postgres15_describe() { postgres_describe; }
