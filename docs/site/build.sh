#!/usr/bin/env bash
# The documentation as a site, to read and search without a network: docs/site/build.sh [FOLDER] (default build/site).
# Fails at a link within the project that leads nowhere, and at a page that no list of pages contains.
# Needs sphinx, myst-parser and furo: apt-get install python3-sphinx python3-myst-parser furo
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-build/site}
sphinx-build -q -W --keep-going -n -b html -c docs/site -d "$folder.doctrees" . "$folder"
# Debian's furo takes one style sheet from the host that serves the site; with it here the site is whole in any place.
normalize=/usr/share/javascript/normalize.css/normalize.css
if grep -qs "url(/javascript/" "$folder/_static/styles/furo.css"; then
  cp -L "$normalize" "$folder/_static/styles/"
  sed -i 's|url(/javascript/normalize.css/normalize.css)|url(normalize.css)|' "$folder/_static/styles/furo.css"
fi
echo "$folder/docs/site/index.html"
