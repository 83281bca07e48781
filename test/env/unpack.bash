# Programs of another Debian release, unpacked into a folder of their own.
#
# A server that this release does not have is taken from sid: its packages are
# fetched with all they depend on, the C library too, unpacked without being
# installed, and its programs are told to look for their libraries there. The
# system's own packages stay as they are. The packages come from where apt is
# configured to take them, and apt checks their signatures.
# shellcheck shell=bash disable=SC2154

# unpack NAME VERSION PROGRAM PACKAGE... makes $(unpacked NAME) a folder with the
# packages in it. The first package must have a version that begins with VERSION;
# PROGRAM is a path in the folder whose --version proves that it runs. The file
# "versions" there lists what was unpacked. A folder cannot be moved afterwards:
# its path is part of the programs.
unpack() {
  local name=$1 version=$2 program=$3
  shift 3
  local folder work new
  folder=$(unpacked "$name")
  [ "$(cat "$folder/made-for" 2>/dev/null)" = "$folder $*" ] && return
  command -v dpkg-deb >/dev/null && command -v apt-get >/dev/null ||
    die "$name: apt-get and dpkg-deb are needed to unpack it; elsewhere, point the test's variable at a server of your own"
  work=$home/unpack/$name
  new=$folder.new
  mkdir -p "$work" "$(dirname "$folder")"
  unpack_configure "$work"
  unpack_fetch "$name" "$version" "$work" "$@"
  say "$name: unpacking"
  rm -rf "$new"
  mkdir "$new"
  local package
  for package in "$work"/cache/archives/*.deb; do
    case ${package##*/} in
      # Needed to install packages, not to run what is in them.
      perl-* | libperl5* | systemd_* | debconf_* | adduser_* | passwd_* | locales_* | libc-l10n_* | procps_* | ucf_*) continue ;;
    esac
    dpkg-deb -x "$package" "$new" || die "$name: ${package##*/} does not unpack"
  done
  rm -rf "$new"/usr/share/{doc,man,info,locale,lintian,bug} "$new"/usr/include "$new"/var
  unpack_patch "$name" "$new" "$folder"
  (cd "$work/cache/archives" && printf '%s\n' *.deb) >"$new/versions"
  printf '%s' "$folder $*" >"$new/made-for"
  rm -rf "$folder"
  mv "$new" "$folder"
  rm -rf "$work"
  as_user nobody "$folder/$program" --version >&2 || die "$name: $folder/$program was unpacked, but does not run"
}

# unpacked NAME prints the folder, which survives "env wipe".
unpacked() { printf '%s' "$home/programs/$1"; }

# unpack_configure WORK writes a configuration of apt for which nothing is installed.
unpack_configure() {
  local work=$1 mirror keys=/usr/share/keyrings/debian-archive-keyring.gpg signed=
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -E '/debian/?$' | head -n 1 || true)
  [ -n "$mirror" ] || die "apt is not configured with a mirror of Debian, so nothing of sid can be fetched"
  [ ! -r "$keys" ] || signed="[signed-by=$keys] "
  mkdir -p "$work"/{parts,lists/partial,cache/archives/partial}
  : >"$work/status"
  printf 'deb %s%s sid main\n' "$signed" "$mirror" >"$work/sources.list"
  cat >"$work/apt.conf" <<END
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "$work/parts";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "$work/parts";
Dir::State "$work";
Dir::State::lists "$work/lists";
Dir::State::status "$work/status";
Dir::State::extended_states "$work/extended_states";
Dir::Cache "$work/cache";
Dir::Log "$work";
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Retries "5";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
Acquire::PDiffs "false";
Debug::NoLocking "true";
END
}

# unpack_fetch NAME VERSION WORK PACKAGE... fetches the packages. sid moves all
# the time, so a file that is gone means that the lists are old.
unpack_fetch() {
  local name=$1 version=$2 work=$3 attempt found
  shift 3
  export APT_CONFIG=$work/apt.conf
  for attempt in 1 2 3; do
    say "$name: fetching $* of Debian sid"
    if ! apt-get -qq update >"$work/update.log" 2>&1; then
      if grep -q 'is expired' "$work/update.log"; then
        tail -n 3 "$work/update.log" >&2
        die "$name: the mirror's lists of sid are past their date. Where that is as it should be (a frozen mirror), set Acquire::Check-Valid-Until to false in apt's configuration; signatures are checked all the same"
      fi
    else
      found=$(apt-cache policy "$1" | sed -n 's/^ *Candidate: *//p')
      case ${found#*:} in
        "" | "(none)") die "$name: sid has no package $1 any more" ;;
        "$version"*) ;;
        *) die "$name: version $version is gone from sid, which has $1 $found now. Point the test's variable at a server of your own" ;;
      esac
      if apt-get -qq -y -d install "$@" patchelf >"$work/fetch.log" 2>&1; then
        unset APT_CONFIG
        return
      fi
    fi
    rm -rf "$work/lists"
    mkdir -p "$work/lists/partial"
  done
  tail -n 20 "$work/update.log" "$work/fetch.log" >&2 || true
  die "$name: apt could not fetch $*"
}

# unpack_patch NAME NEW FOLDER makes the programs below NEW run once it is
# renamed to FOLDER. patchelf itself is run by the unpacked loader, so that
# nothing of the system's is needed.
unpack_patch() {
  local name=$1 new=$2 folder=$3 libraries loader path file count=0
  libraries=$(cd "$new" && find . -name libc.so.6 -printf '%P\n' -quit)
  libraries=${libraries%/*}
  [ -n "$libraries" ] || die "$name: the packages have no C library"
  loader=$(cd "$new" && find "$libraries" -maxdepth 1 -name 'ld-linux*.so.*' -print -quit)
  path=$folder/$libraries
  [ ! -d "$new/usr/lib/mysql/private" ] || path=$path:$folder/usr/lib/mysql/private
  while IFS= read -r file; do
    "$new/$loader" --library-path "$new/$libraries" "$new/usr/bin/patchelf" --print-interpreter "$file" >/dev/null 2>&1 || continue
    "$new/$loader" --library-path "$new/$libraries" "$new/usr/bin/patchelf" \
      --set-interpreter "$folder/$loader" --force-rpath --set-rpath "$path" "$file"
    count=$((count + 1))
  done < <(find "$new/usr" -type f -perm /111 \
    \( -path '*bin/mysql*' -o -path '*/usr/lib/postgresql/*/bin/*' \))
  [ "$count" -gt 0 ] || die "$name: the packages have no program to run"
}
