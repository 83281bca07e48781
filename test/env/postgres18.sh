# PostgreSQL 18 from Debian sid, unpacked into a folder of its own.
#
# Port: WAYBILL_ENV_POSTGRES18_PORT, 25018. wal_level is logical, for tests of
# change data capture.
#
# WAYBILL_ENV_POSTGRES18_PROGRAMS is a folder of unpacked programs to use instead
# of fetching them; a second server (another WAYBILL_ENV_HOME and port) takes the
# first one's so.
# shellcheck shell=bash disable=SC2034,SC2154,SC1091

. "$here/unpack.bash"

pg_name=postgres18
pg18_programs=${WAYBILL_ENV_POSTGRES18_PROGRAMS:-$(unpacked postgres18)}
pg_bin=$pg18_programs/usr/lib/postgresql/18/bin
pg_user=nobody
pg_port=${WAYBILL_ENV_POSTGRES18_PORT:-25018}
. "$here/postgres.bash"

postgres18_install() {
  if [ -n "${WAYBILL_ENV_POSTGRES18_PROGRAMS:-}" ]; then
    [ -x "$pg_bin/postgres" ] || die "postgres18: $pg_bin/postgres is missing"
    return
  fi
  unpack postgres18 18. usr/lib/postgresql/18/bin/postgres postgresql-18
}

postgres18_start() { postgres_start; }
postgres18_stop() { postgres_stop; }
postgres18_export() {
  postgres_export
  printf "export WAYBILL_ENV_POSTGRES18_PROGRAMS='%s'\n" "$pg18_programs"
}
postgres18_describe() { postgres_describe; }
