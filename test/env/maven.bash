# Jars of Maven Central, from where mvn is configured to reach it.
# shellcheck shell=bash disable=SC2154

# maven_jars NAME FOLDER STAMP GROUPS GROUP:ARTIFACT:VERSION... fills FOLDER with the
# jars of the artifacts and of all that they need at run time, without those of
# GROUPS, a list with commas. A FOLDER with this STAMP is complete and stays.
maven_jars() {
  local name=$1 folder=$2 stamp=$3 groups=$4
  shift 4
  [ "$(cat "$folder/made-for" 2>/dev/null)" != "$stamp" ] || return 0
  command -v mvn >/dev/null || apt_install maven
  local work=$home/unpack/$name new=$folder.new attempt artifact
  rm -rf "$new"
  mkdir -p "$work" "$new"
  maven_pom "$name" "$@" >"$work/pom.xml"
  for attempt in 1 2 3; do
    say "$name: fetching $* and what they need"
    if mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime ${groups:+-DexcludeGroupIds="$groups"} \
      -DoutputDirectory="$new" >"$work/mvn.log" 2>&1; then
      (cd "$new" && printf '%s\n' *.jar) >"$work/versions"
      mv "$work/versions" "$new/versions"
      chmod -R a+rX "$new"
      printf '%s' "$stamp" >"$new/made-for"
      rm -rf "$folder" "$work"
      mv "$new" "$folder"
      say "$name: $(wc -l <"$folder/versions") jars, listed in $folder/versions"
      return
    fi
    for artifact; do
      if grep -q "Could not find artifact ${artifact%%:*}:" "$work/mvn.log"; then
        die "$name: $artifact is gone from where mvn looks. Point WAYBILL_TEST_${name^^} at a server of your own"
      fi
    done
    sleep "$attempt"
  done
  tail -n 20 "$work/mvn.log" >&2
  die "$name: mvn could not fetch the jars"
}

maven_pom() {
  local name=$1 group artifact version
  shift
  cat <<END
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>waybill.test</groupId>
  <artifactId>$name</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
END
  while IFS=: read -r group artifact version; do
    echo "    <dependency><groupId>$group</groupId><artifactId>$artifact</artifactId><version>$version</version></dependency>"
  done < <(printf '%s\n' "$@")
  cat <<'END'
  </dependencies>
  <build>
    <plugins>
      <plugin><artifactId>maven-dependency-plugin</artifactId><version>3.6.1</version></plugin>
    </plugins>
  </build>
</project>
END
}
