"""IWSLT'14 German-English: from the public archive de-en.tgz to BPE and fairseq's binary data.

Follows examples/translation/prepare-iwslt14.sh of https://github.com/facebookresearch/fairseq step for step:
tags stripped, Moses tokens, pairs of 1 to 175 tokens a side at a ratio of at most 1.5, lower case, every 23rd
pair to valid, dev2010, dev2012 and tst2010 to tst2012 as test, a joint BPE of 10,000 merges.
"""

import re
import sys
import tarfile
import zlib
from pathlib import Path

import prepare_bitext as bitext
from common import decoded_lines

URL = "http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
TRAIN = "train.tags.de-en.{}"
TALKS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
TEST = [f"IWSLT14.{talks}.de-en.{{}}.xml" for talks in TALKS]
META = ("<url>", "<talkid>", "<keywords>")
TAG = re.compile("</?(?:title|description)>")
SEGMENT = re.compile(r'<seg id="[0-9]*">\s*|\s*</seg>\s*')
LANGUAGES = ("de", "en")


def members(path):
    """The lines of the archive's files that the recipe needs, ``{name: lines}``."""
    wanted = {name.format(language) for name in (TRAIN, *TEST) for language in LANGUAGES}
    files = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if (name := Path(member.name).name) in wanted:
                    files[name] = list(decoded_lines(archive.extractfile(member), f"{path}:{name}"))
    except (EOFError, tarfile.TarError, zlib.error) as error:
        raise ValueError(f"{path}: the archive is incomplete ({error}): remove it and run the command again") from None
    if missing := sorted(wanted - files.keys()):
        raise ValueError(f"{path}: not the IWSLT'14 de-en archive, it lacks {', '.join(missing)}: get {URL}")
    return files


def read(path):
    """The text as ``bitext.tokenised`` takes it: talks' titles, descriptions and sentences; the test sets' segments."""
    files, lines = members(path), {}
    for language in LANGUAGES:
        train = [line for line in files[TRAIN.format(language)] if not any(tag in line for tag in META)]
        test = [line for name in TEST for line in files[name.format(language)] if "<seg id" in line]
        lines["train", language] = [TAG.sub("", line) for line in train]
        lines["test", language] = [SEGMENT.sub("", line).replace("’", "'") for line in test]
    return lines


def main():
    parser = bitext.argument_parser(__doc__.split("\n\n")[0])
    parser.add_argument("--archive", type=Path, metavar="FILE",
                        help="de-en.tgz (default: OUT.de-en.tgz, downloaded where it is not there)")
    parser.add_argument("--url", default=URL, help="where to download it from (default: %(default)s)")
    parser.set_defaults(max_ratio=1.5)
    args = bitext.parse_recipe(parser)
    archive = args.archive or Path(f"{args.out}.de-en.tgz")
    if not args.archive and not archive.exists():
        from torch.hub import download_url_to_file

        archive.parent.mkdir(parents=True, exist_ok=True)
        download_url_to_file(args.url, str(archive), progress=sys.stderr.isatty())
    bitext.prepare(args, [archive], lambda: read(archive))
