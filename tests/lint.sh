#!/usr/bin/env bash
# Format and static analysis of every C file. Run by ctest; by hand: tests/lint.sh format|tidy|analyze BUILD_FOLDER
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

case ${1:-} in
format) clang-format-19 --dry-run -Werror "${sources[@]}" ;;
tidy) tidy -p "$2" --checks='-clang-analyzer-*' ;;
analyze) tidy -p "$2" ;; # also the path-sensitive analyzer: minutes, so by hand and not in every test run
*) echo "usage: tests/lint.sh format | tidy BUILD_FOLDER | analyze BUILD_FOLDER" >&2; exit 2 ;;
esac
