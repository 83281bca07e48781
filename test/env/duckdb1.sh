# The shell of DuckDB 1.5.6 from the Python package duckdb-cli, which holds it as
# a program. There is no server to start: "up" makes the program available.
# shellcheck shell=bash disable=SC2154

duckdb1_version=1.5.6
duckdb1_folder=$home/programs/duckdb1

duckdb1_install() {
  [ "$(cat "$duckdb1_folder/made-for" 2>/dev/null)" != "$duckdb1_version" ] || return 0
  command -v python3 >/dev/null || apt_install python3
  python3 -m pip --version >/dev/null 2>&1 || apt_install python3-pip
  local work=$home/unpack/duckdb1 new=$duckdb1_folder.new program
  rm -rf "$work" "$new"
  mkdir -p "$work" "$new"
  say "duckdb1: fetching duckdb-cli $duckdb1_version"
  python3 -m pip download --quiet --retries 5 --only-binary :all: --no-deps --dest "$work" "duckdb-cli==$duckdb1_version" >&2 ||
    die "duckdb1: pip could not fetch duckdb-cli $duckdb1_version. Point WAYBILL_TEST_DUCKDB1 at a program of your own"
  python3 -m zipfile -e "$work"/*.whl "$work/wheel"
  program=$(find "$work/wheel" -type f -name duckdb -size +1M -print -quit)
  [ -n "$program" ] || die "duckdb1: the package has no program named duckdb"
  install -m 755 "$program" "$new/duckdb"
  "$new/duckdb" --version >&2 || die "duckdb1: the program was fetched, but does not run"
  printf '%s' "$duckdb1_version" >"$new/made-for"
  rm -rf "$duckdb1_folder" "$work"
  mv "$new" "$duckdb1_folder"
}

duckdb1_start() { :; }

duckdb1_stop() { :; }

duckdb1_export() { printf "export WAYBILL_TEST_DUCKDB1='%s'\n" "$duckdb1_folder/duckdb"; }

duckdb1_describe() {
  if [ -x "$duckdb1_folder/duckdb" ]; then echo "a program, $duckdb1_folder/duckdb"; else echo "not fetched yet"; fi
}
