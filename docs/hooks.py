"""Pages that MkDocs takes from the repository's top, where they belong."""

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
