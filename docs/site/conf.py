"""The documentation as a site: `docs/site/build.sh` gives this file to Sphinx.

The pages are the repository's own Markdown files, in their places, so that links among them work here and on a Git host. The
site needs no network: search works from files too. A link to a file of the sources becomes a download.
"""

project = "wavetune"
extensions = ["myst_parser"]
root_doc = "docs/site/index"
include_patterns = [root_doc + ".rst", "*.md", "docs/*.md", "docs/reference/*.md", "bench/README.md", "kernels/README.md", "kernels/tables/README.md",
                    "kernels/tables/*/README.md", "python/README.md", "tests/*.md"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "wavetune"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
# Not warned of: a page that begins below a first heading, as README.md's parts do, and text in a language that is not known.
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
