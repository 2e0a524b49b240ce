"""Multi30k task 1, German and English: from the published text to BPE and fairseq's binary data.

The corpus is https://github.com/multi30k/dataset (Elliott et al. 2016): descriptions of images in English and
their translations to German. Tokens, lower case and BPE are those of fairseq's IWSLT'14 recipe. The splits
are the corpus's own. Of training only pairs with an empty side, or one above 175 tokens, are dropped: these
sentences were translated one by one, so an unequal length is no sign of a wrong pair.
"""

from pathlib import Path

import bitext
from common import fail, output_directory, require_fairseq, run

PROGRAM = "prepare-multi30k.sh"
FILES = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
FOLDERS = (".", "data/task1/raw")


def find(data, name):
    """The file `name` or `name`.gz in the folder `data`, or where a checkout of multi30k/dataset has it."""
    for folder in FOLDERS:
        for path in (data / folder / name, data / folder / f"{name}.gz"):
            if path.is_file():
                return path
    fail(f"--data {data}: has no {name} or {name}.gz, nor has its {FOLDERS[1]}: "
         "give a checkout of https://github.com/multi30k/dataset or a folder with its files")


def read_text(path):
    """The lines of a text file, unpacked where its name ends in .gz."""
    if path.suffix != ".gz":
        return bitext.decode(path.read_bytes(), path)
    try:
        with bitext.open_gzip(path) as file:
            return bitext.decode(file.read(), path)
    except ValueError as error:
        fail(f"{path}: {error}")


def read(paths, workers):
    """The corpus as `bitext.prepare` takes it."""
    corpus = {}
    for split in FILES:
        raw = {lang: read_text(paths[split, lang]) for lang in bitext.LANGUAGES}
        bitext.check_parallel(raw, f"{paths[split, 'de']} and {paths[split, 'en'].name}")
        corpus[split] = {lang: bitext.tokenise(raw[lang], lang, workers, split) for lang in raw}
    references = raw  # of the test set, which comes last
    pairs = len(corpus["train"]["de"])
    corpus["train"] = bitext.clean(corpus["train"])
    return corpus, references, pairs - len(corpus["train"]["de"])


def main():
    parser = bitext.argument_parser(PROGRAM, __doc__.split("\n\n")[0])
    parser.add_argument("--data", required=True, type=Path, metavar="DIR",
                        help="checkout of multi30k/dataset, or a folder with its files "
                        "{train,val,test_2016_flickr}.{de,en}[.gz]")
    args = parser.parse_args()
    require_fairseq()
    paths = {(split, lang): find(args.data, f"{name}.{lang}")
             for split, name in FILES.items() for lang in bitext.LANGUAGES}
    out = output_directory(args.out)
    bitext.prepare(out, paths.values(), lambda: read(paths, args.workers), args)


if __name__ == "__main__":
    run(main, PROGRAM)
