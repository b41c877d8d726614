#!/usr/bin/env bash
# Format and static analysis of every C file; licences of all files (https://reuse.software). Run by ctest; by hand:
# tests/lint.sh format|licence|tidy|analyze BUILD_FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t sources < <(find agent bench cli common inspect server tests -path tests/data -prune -o -name '*.[ch]' -print | sort)
[ ${#sources[@]} -gt 100 ] || { echo "tests/lint.sh: found ${#sources[@]} C files; is this the source folder?" >&2; exit 1; }

# One process for each core; a file's findings are printed whole.
tidy() {
  printf '%s\n' "${sources[@]}" | grep '\.c$' | grep -v '^tests/\|^bench/' |
    xargs -P "$(nproc)" -n 8 clang-tidy-19 --quiet --extra-arg=-Wno-unknown-warning-option "$@" \
      2> >(grep -vE '^[0-9]+ warnings? generated|^Suppressed|^Use -' >&2)
}

# clang-format 19 reads C as C++ (`Language: C` is of 20), so that an identifier such as `requires` breaks its statement. With
# these words renamed, in the same length, each file must be formatted as it is.
cpp_words='alignas|alignof|asm|catch|class|co_await|co_return|co_yield|concept|constexpr|decltype|delete|explicit|export|final|friend'
cpp_words+='|import|module|mutable|namespace|new|noexcept|nullptr|operator|override|private|protected|public|requires'
cpp_words+='|template|this|throw|try|typename|using|virtual'
format_all() {
  printf '%s\0' "${sources[@]}" | xargs -0 -P "$(nproc)" -n 50 clang-format-19 --dry-run -Werror
}
format_without_cpp() {
  copy=$(mktemp -d)
  trap 'rm -rf "$copy"' EXIT
  cp --parents .clang-format "${sources[@]}" "$copy"
  cd "$copy"
  # In code, not in comments and literals, which are not read.
  mapfile -t sources < <(perl -0777 -ne "s{/\*.*?\*/|//[^\n]*|\"(?:\\\\.|[^\"\\\\\n])*\"|'(?:\\\\.|[^'\\\\])'|^#include[^\n]*}{}gms; print \"\$ARGV\n\" if /\b($cpp_words)\b/" "${sources[@]}")
  [ ${#sources[@]} -gt 0 ] || return 0
  perl -pi -e "next if /^#include/; s/\b($cpp_words)\b/substr(\$1, 0, -1) . '_'/ge" "${sources[@]}"
  format_all && return
  echo "tests/lint.sh: clang-format reads a word of these lines (its last letter shown as _) as C++: give it another name" >&2
  return 1
}

case ${1:-} in
format)
  format_all
  format_without_cpp
  ;;
licence)
  [ -x build/reuse/bin/reuse ] || { echo "skipped: $(cat build/reuse.reason 2>/dev/null || echo "tests/python-env.sh makes build/reuse")"; exit 77; }
  # A checker that accepts everything would show nothing: it must refuse data of which REUSE.toml does not say whose it is.
  wrong=$(mktemp -d)
  trap 'rm -rf "$wrong"' EXIT
  mkdir -p "$wrong/tests/data/new"
  cp -r REUSE.toml LICENSES "$wrong"
  echo 1 >"$wrong/tests/data/new/table.csv"
  ! build/reuse/bin/reuse --root "$wrong" lint --quiet || { echo "tests/lint.sh: reuse accepts data without a licence" >&2; exit 1; }
  build/reuse/bin/reuse lint --lines
  ;;
tidy) tidy -p "$2" --checks='-clang-analyzer-*' ;;
analyze) tidy -p "$2" ;; # also the path-sensitive analyzer: minutes, so by hand and not in every test run
*) echo "usage: tests/lint.sh format | licence | tidy BUILD_FOLDER | analyze BUILD_FOLDER" >&2; exit 2 ;;
esac
