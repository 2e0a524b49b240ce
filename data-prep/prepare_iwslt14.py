"""IWSLT'14 German-English: from the public archive de-en.tgz to BPE and fairseq's binary data.

Follows examples/translation/prepare-iwslt14.sh of https://github.com/facebookresearch/fairseq step for step:
tags stripped, Moses tokens, pairs of 1 to 175 tokens a side at a ratio of at most 1.5, lower case, every 23rd
pair to valid, dev2010, dev2012 and tst2010 to tst2012 as test, a joint BPE of 10,000 merges.
"""

import http.client
import re
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

import bitext
from common import Progress, fail, output_directory, require_fairseq, run

PROGRAM = "prepare-iwslt14.sh"
URL = "http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
TRAIN = "train.tags.de-en.{}"
TEST = [
    "IWSLT14.TED.dev2010.de-en.{}.xml",
    "IWSLT14.TEDX.dev2012.de-en.{}.xml",
    "IWSLT14.TED.tst2010.de-en.{}.xml",
    "IWSLT14.TED.tst2011.de-en.{}.xml",
    "IWSLT14.TED.tst2012.de-en.{}.xml",
]
PAIRS = {"train": 160_239, "valid": 7_283, "test": 6_750}  # what the public archive gives
VALID_EVERY = 23

META = ("<url>", "<talkid>", "<keywords>")
TAG = re.compile("</?(?:title|description)>")
SEGMENT = re.compile(r'<seg id="[0-9]*">\s*|\s*</seg>\s*')


# ---------------------------------------------------------------------------------------------------- archive


def members(path):
    """The files of the archive that the recipe needs, as `{name: bytes}`; all of the archive is read.

    Raises:
        ValueError: the archive is truncated, damaged, or another one.
    """
    wanted = {name.format(lang) for name in (TRAIN, *TEST) for lang in bitext.LANGUAGES}
    found = {}
    with bitext.open_gzip(path) as file:
        try:
            with tarfile.open(fileobj=file, mode="r|") as archive:
                for member in archive:
                    name = Path(member.name).name
                    if name in wanted and member.isfile():
                        found[name] = archive.extractfile(member).read()
        except tarfile.TarError as error:
            raise ValueError(f"no tar archive in it, or a damaged one ({error}); fetch {URL} again") from None
        while file.read(1 << 20):  # to the checksum that ends the gzip data
            pass
    missing = sorted(wanted - found.keys())
    if missing:
        raise ValueError(f"not the IWSLT'14 de-en archive: it lacks {', '.join(missing)}; fetch {URL}")
    return found


def download(url, path):
    """Fetch `url` to `path`, going on from `path`.part if there is one; `path` appears whole and checked."""
    part = path.with_name(f"{path.name}.part")
    try:
        _fetch(url, part)
    except (OSError, http.client.HTTPException, ValueError) as error:
        fail(f"{url}: {error}: run the same command again to go on, or fetch the archive in another way "
             "and give it as --archive FILE")
    try:
        members(part)
    except ValueError as error:
        part.unlink()
        fail(f"{url}: what it sent is {error}")
    part.replace(path)


def _fetch(url, part):
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is left to send
            return
        raise
    with response:
        if response.status != 206:  # all of it, from the start
            have = 0
        total = have + int(response.headers.get("Content-Length", 0))
        with open(part, "ab" if have else "wb") as file, Progress(f"downloading {url}", total) as progress:
            progress.update(have)
            while chunk := response.read(1 << 16):
                file.write(chunk)
                progress.update(len(chunk))
    if part.stat().st_size < total:
        raise ConnectionError(f"the connection ended at {part.stat().st_size:,} of {total:,} bytes")


# ----------------------------------------------------------------------------------------------------- corpus


def train_lines(lines):
    """The text of a tagged training file: talks' titles, descriptions and sentences."""
    return [TAG.sub("", line) for line in lines if not any(tag in line for tag in META)]


def test_lines(lines):
    """The segments of a dev or test set in XML."""
    return [SEGMENT.sub("", line).replace("’", "'") for line in lines if "<seg id" in line]


def split(lines):
    """Training and validation: every 23rd line is for validation."""
    train = [line for number, line in enumerate(lines, start=1) if number % VALID_EVERY]
    return train, lines[VALID_EVERY - 1::VALID_EVERY]


def read(path, workers):
    """The corpus as `bitext.prepare` takes it."""
    try:
        data = members(path)
    except ValueError as error:
        fail(f"{path}: {error}")
    lines = {name: bitext.decode(content, f"{path}:{name}") for name, content in data.items()}
    train = {lang: train_lines(lines[TRAIN.format(lang)]) for lang in bitext.LANGUAGES}
    bitext.check_parallel(train, f"{path}: {TRAIN.format('*')}")
    test = dict.fromkeys(bitext.LANGUAGES, ())
    for name in TEST:
        segments = {lang: test_lines(lines[name.format(lang)]) for lang in bitext.LANGUAGES}
        bitext.check_parallel(segments, f"{path}: {name.format('*')}")
        test = {lang: [*test[lang], *segments[lang]] for lang in test}

    tokens = {lang: bitext.tokenise(train[lang], lang, workers, "train") for lang in train}
    clean = bitext.clean(tokens, ratio=1.5)
    corpus = {"train": {}, "valid": {}, "test": {}}
    for lang in bitext.LANGUAGES:
        corpus["train"][lang], corpus["valid"][lang] = split(clean[lang])
        corpus["test"][lang] = bitext.tokenise(test[lang], lang, workers, "test")
    return corpus, test, len(train["de"]) - len(clean["de"])


def main():
    parser = bitext.argument_parser(PROGRAM, __doc__.split("\n\n")[0])
    parser.add_argument("--archive", type=Path, metavar="FILE",
                        help="de-en.tgz (default: de-en.tgz in --out, downloaded where it is not there)")
    parser.add_argument("--url", default=URL, help="where to download it from (default: %(default)s)")
    args = parser.parse_args()
    require_fairseq()
    if args.archive and not args.archive.is_file():
        fail(f"--archive {args.archive}: no such file: give de-en.tgz, or leave --archive out to download it")
    out = output_directory(args.out)
    archive = args.archive or out / "de-en.tgz"
    if not archive.exists():
        download(args.url, archive)
    pairs = bitext.prepare(out, [archive], lambda: read(archive, args.workers), args)
    if pairs != PAIRS:
        expected = " / ".join(f"{count:,}" for count in PAIRS.values())
        print(f"note: the public archive gives {expected} pairs; this is another one")


if __name__ == "__main__":
    run(main, PROGRAM)
