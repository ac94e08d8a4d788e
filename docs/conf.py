"""Sphinx's configuration for the site (``make docs``)."""

project = "compute-node-agent"
author = "the compute-node-agent project"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "_static"]  # what pages include is no page itself
myst_heading_anchors = 4  # links to headings work as on a code host
html_theme = "furo"
html_title = "compute-node-agent"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
