#!/bin/sh
# Builds the documents as a site in site/. It fails at a link that leads nowhere, at a page that is not in the
# navigation, and if a reader's browser would fetch anything from another host.
set -eu
cd "$(dirname "$0")/../.."
bin=$(interop/venv.sh scripts/site/requirements.txt)
"$bin/python" scripts/site/stage.py bin/pages
NO_MKDOCS_2_WARNING=true "$bin/mkdocs" build --strict --config-file scripts/site/mkdocs.yml
foreign=$(grep -rEoh '<(script|img|iframe|source)[^>]* src(set)?="?(https?:)?//|<link[^>]* rel="?(stylesheet|preconnect|preload|icon)[^>]* href="?(https?:)?//' site --include='*.html' | sort -u)
if [ -n "$foreign" ]; then
	echo "$foreign" >&2
	echo "The site fetches from another host." >&2
	exit 1
fi
echo "site/index.html"
