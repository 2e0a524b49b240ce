"""Multi30k task 1, German and English: from the published text to BPE and fairseq's binary data.

The corpus is https://github.com/multi30k/dataset (Elliott et al. 2016): descriptions of images in English and
their translations to German. Tokens, lower case and BPE are those of fairseq's IWSLT'14 recipe. The splits
are the corpus's own. Of training only pairs with an empty side, or one above 175 tokens, are dropped: these
sentences were translated one by one, so an unequal length is no sign of a wrong pair.
"""

from pathlib import Path

import prepare_bitext as bitext
from common import InputError, run

PROGRAM = "prepare-multi30k.sh"
FILES = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
FOLDERS = (".", "data/task1/raw")


def main():
    parser = bitext.argument_parser(PROGRAM, __doc__.split("\n\n")[0])
    parser.add_argument("--data", required=True, type=Path, metavar="DIR",
                        help="checkout of multi30k/dataset, or a folder with its files "
                        "{train,val,test_2016_flickr}.{de,en}[.gz]")
    bitext.add_source(parser)
    args = bitext.with_languages(parser.parse_args())
    folders = [args.data / folder for folder in FOLDERS if list((args.data / folder).glob("train.de*"))]
    if not folders:
        raise InputError(f"--data {args.data}: has no train.de or train.de.gz, nor has its {FOLDERS[1]}: give a "
                         "checkout of https://github.com/multi30k/dataset or a folder with its files")
    paths = {(split, language): bitext.find(folders[0] / name, language)
             for split, name in FILES.items() for language in bitext.languages(args)}
    bitext.prepare(args, paths.values(), lambda: bitext.read(paths, args))


if __name__ == "__main__":
    run(main, PROGRAM)
