"""Multi30k task 1, German and English: from the published text to BPE and fairseq's binary data.

The corpus is https://github.com/multi30k/dataset (Elliott et al. 2016): descriptions of images in English and
their translations to German. Tokens, lower case and BPE are those of fairseq's IWSLT'14 recipe. The splits
are the corpus's own. Of training only pairs with an empty side, or one above 175 tokens, are dropped: these
sentences were translated one by one, so an unequal length is no sign of a wrong pair.
"""

from pathlib import Path

import prepare_bitext as bitext

FILES = {"train": "train", "valid": "val", "test": "test_2016_flickr"}


def main():
    parser = bitext.argument_parser(__doc__.split("\n\n")[0])
    parser.add_argument("--data", required=True, type=Path, metavar="DIR",
                        help="checkout of multi30k/dataset, or a folder with its files "
                        "{train,val,test_2016_flickr}.{de,en}[.gz]")
    args = bitext.parse_recipe(parser)
    checkout = args.data / "data" / "task1" / "raw"
    folder = checkout if checkout.is_dir() else args.data
    bitext.prepare_files(args, {split: folder / name for split, name in FILES.items()})
