"""Pages that MkDocs takes from the repository's top, where they belong; and docstrings' roles as plain names."""

import re
from pathlib import Path

from mkdocs.structure.files import File

PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}


def on_files(files, config):
    for source, page in PAGES.items():
        text = (Path(config.config_file_path).parent / source).read_text(encoding="utf-8")
        for other, link in PAGES.items():
            text = text.replace(f"]({other})", f"]({link})")
        files.append(File.generated(config, page, content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown, page, config, files):
    for source, link in PAGES.items():
        markdown = markdown.replace(f"](../{source})", f"]({link})")
    return markdown


def on_page_content(html, page, config, files):
    return re.sub(r":(meth|class|func|mod|data|attr):<code>~?", "<code>", html)
