"""The translation recipes in data-prep: tokens, cleaning, archives, downloads, interruptions, whole runs."""

import gzip
import io
import os
import random
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

DATA_PREP = Path(__file__).resolve().parents[1] / "data-prep"
sys.path.insert(0, str(DATA_PREP))

import bitext  # noqa: E402
import moses  # noqa: E402
import prepare_iwslt14 as iwslt14  # noqa: E402
import prepare_multi30k as multi30k  # noqa: E402

# ----------------------------------------------------------------------------------------------------- tokens

# What tokenizer.perl itself makes of these lines.
TOKENS = [
    ("en", "in the u.s.", "in the u.s ."),
    ("en", "in the U.S. and in St.", "in the U.S. and in St ."),
    ("en", "So am I.", "So am I ."),
    ("en", "x.y.z. 3rd. etc.", "x.y.z. 3rd. etc ."),
    ("en", "It costs $5,300.50, doesn't it?", "It costs $ 5,300.50 , doesn &apos;t it ?"),
    ("en", "Mr. Smith et al. left at 5 p.m. on Oct. 3.", "Mr. Smith et al. left at 5 p.m. on Oct. 3 ."),
    ("en", "the 1990's, e.g. No. 5, No. Five, ... and so on...",
     "the 1990 &apos;s , e.g. No. 5 , No . Five , ... and so on ..."),
    ("en", 'R&D [laughter] <b> a|b "quoted."',
     "R &amp; D &#91; laughter &#93; &lt; b &gt; a &#124; b &quot; quoted . &quot;"),
    ("en", "the dogs' bowl 'tis.'", "the dogs &apos; bowl &apos; tis . &apos; "),
    ("en", "日本語 and 中国's 2,5 a,b,c", "日本語 and 中国 &apos;s 2,5 a , b , c"),
    ("en", "a\u00a0b\u2009c  d\x1ce \x02 '''", "a b c de &apos; &apos;&apos;"),
    ("en", "it’s “fine”. Why?..", "it ’ s “ fine ” . Why ? .."),
    ("de", "drei aus 10.", "drei aus 10 ."),
    ("de", "Am 3. Oktober, z.B. um 10.30 Uhr.", "Am 3. Oktober , z.B. um 10.30 Uhr ."),
    ("de", "am 3. oktober 1990 war nr. 5 dran.", "am 3. oktober 1990 war nr . 5 dran ."),
    ("de", "Er sagte: „Geht's gut?“", "Er sagte : „ Geht &apos; s gut ? “"),
    ("de", "Bücher, Hefte usw.", "Bücher , Hefte usw ."),
    ("de", "Prof. Dr. Müller, Hauptstr. 5, d.h. hier.", "Prof. Dr. Müller , Hauptstr . 5 , d.h. hier ."),
    ("de", "... und dann? Na ja...", "... und dann ? Na ja ..."),
    ("de", "50 % von 1.000.000 sind 500.000.", "50 % von 1.000.000 sind 500.000 ."),
    ("de", "www.example.com.", "www.example.com ."),
    ("de", " \t", ""),
]


@pytest.fixture(scope="module")
def tokenizers():
    return {lang: moses.Tokenizer(lang) for lang in bitext.LANGUAGES}


@pytest.mark.parametrize("lang, line, tokens", TOKENS)
def test_tokens_are_those_of_tokenizer_perl(tokenizers, lang, line, tokens):
    assert tokenizers[lang](line) == tokens


def test_lowercase_is_that_of_perl():
    assert moses.lowercase("ÄÖÜ ẞ İ ΟΔΟΣ") == "äöü ß i̇ οδοσ"


# --------------------------------------------------------------------------------------- cleaning, segmenting


@pytest.mark.parametrize("source, target, kept", [
    (3, 2, True), (2, 3, True), (4, 2, False), (31, 20, False), (1, 1, True), (0, 1, False), (1, 0, False),
    (175, 175, True), (176, 175, False), (175, 176, False),
])
def test_cleaning_bounds(source, target, kept):
    assert bitext.keep("w " * source, "w " * target, ratio=1.5) is kept


def test_cleaning_drops_endless_words_and_joins_spaces():
    lines = {"de": ["a  b ", "x" * 1000, "x" * 1001], "en": ["c d", "y", "y"]}
    assert bitext.clean(lines, ratio=1.5) == {"de": ["a b", "x" * 1000], "en": ["c d", "y"]}


def test_every_23rd_line_is_for_validation():
    train, valid = iwslt14.split(list(range(1, 70)))
    assert valid == [23, 46, 69] and train == [n for n in range(1, 70) if n % 23]


def test_tags():
    lines = ["<url>x</url>", "<talkid>1</talkid>", "<keywords>a</keywords>", "<speaker>B</speaker>",
             "<title>T</title>", "<description>D: d.</description>", "Text", ""]
    assert iwslt14.train_lines(lines) == ["<speaker>B</speaker>", "T", "D: d.", "Text", ""]
    lines = ["<doc docid='1'>", '<seg id="12"> It’s it. </seg>', "<hr/>", '<seg id="2">x</seg>\r', "</doc>"]
    assert iwslt14.test_lines(lines) == ["It's it.", "x"]


def test_sentencepiece_keeps_the_tokens():
    lines = ["der hund &amp; die katze ﬁ ½ .", "ein hund …"] * 20
    segment = bitext.segmenter("sentencepiece", bitext.learn_sentencepiece(lines, 50))
    for line in (*lines, "hund ☃ .", ""):
        assert segment(line).replace(" ", "").replace("▁", " ").strip() == line


def test_text_too_small_for_the_model(capfd):
    with pytest.raises(SystemExit):
        bitext.learn_sentencepiece(["a b"], 10_000)
    assert "--bpe-merges 10000: sentencepiece cannot learn that many" in capfd.readouterr().err
    with pytest.raises(SystemExit):
        bitext.learn_subword_nmt(["a b"], 10_000)
    assert "too small for a BPE" in capfd.readouterr().err


# ---------------------------------------------------------------------------------------------- small corpora

NOUNS = [("Hund", "dog"), ("Baum", "tree"), ("Straße", "street"), ("Vortrag", "talk")]
VERBS = [("läuft", "runs"), ("wächst", "grows"), ("endet", "ends"), ("leuchtet", "shines")]
CLOSERS = [("in den U.S.", "in the U.S."), ("um 10.", "at 10."), ("& mehr.", "& more.")]


def sentences(number, seed):
    """`number` pairs of German and English sentences."""
    choose = random.Random(seed).choice
    pairs = []
    for _ in range(number):
        chosen = choose(NOUNS), choose(VERBS), choose(CLOSERS)
        pairs.append(tuple(f"The {n} {v} {c}" if side else f"Ein {n} {v} {c}"
                           for side, (n, v, c) in enumerate(zip(*chosen, strict=True))))
    return pairs


def archive_files():
    """The files of an archive like de-en.tgz, and the pairs of text that the recipe should find in it."""
    files, train, test = {}, [], []
    text = [[], []]
    for talk in range(30):
        pairs = [("Ein Titel: Wörter", "A title: words"), ("Eine Beschreibung.", "A description.")]
        pairs += sentences(20, talk)
        pairs += [("", "nothing"), ("viel kürzer", "the much longer side"), ("w " * 176, "w " * 176)]
        train += pairs[:-3]
        for side in range(2):
            title, description, *lines = (pair[side] for pair in pairs)
            text[side] += ["<url>u</url>", "<keywords>k</keywords>", f"<talkid>{talk}</talkid>",
                           f"<title>{title}</title>", f"<description>{description}</description>", *lines]
    for side, lang in enumerate(bitext.LANGUAGES):
        files[f"de-en/train.tags.de-en.{lang}"] = "\n".join(text[side]) + "\n"
    for number, name in enumerate(iwslt14.TEST):
        pairs = [(f"Satz {number}’s.", f"Sentence {number}’s."), *sentences(3, 1000 + number)]
        test += pairs
        for side, lang in enumerate(bitext.LANGUAGES):
            segments = "\n".join(f'<seg id="{i}"> {pair[side]} </seg>' for i, pair in enumerate(pairs))
            files[f"de-en/{name.format(lang)}"] = f'<?xml version="1.0"?>\n<mteval>\n{segments}\n</mteval>\n'
    files["de-en/README"] = "not needed\n"
    return files, train, test


def pack(path, files):
    """Write a tar.gz of `{name: text or bytes}`."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


@pytest.fixture(scope="module")
def files():
    return archive_files()[0]


@pytest.fixture
def archive(tmp_path, files):
    pack(tmp_path / "de-en.tgz", files)
    return tmp_path / "de-en.tgz"


def lines_of(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def start(recipe, *options):
    """The recipe's shell script, started with this Python."""
    return subprocess.Popen([DATA_PREP / f"prepare-{recipe}.sh", *map(str, options)], text=True,
                            env={**os.environ, "PYTHON": sys.executable}, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def finish(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


# ------------------------------------------------------------------------------------------------- whole runs


def test_iwslt14_interrupted_killed_and_finished(archive, tmp_path):
    out = tmp_path / "out"
    options = ["--archive", archive, "--out", out, "--bpe-merges", 60, "--workers", 2]

    process = start("iwslt14", *options)
    while "segmenting" not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(1)  # into binarising, which takes seconds
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=300)[1]
    assert process.returncode == 130, err
    assert len([line for line in err.splitlines() if "%" not in line]) == 1 and "interrupted" in err

    process = start("iwslt14", *options)
    while not (out / "code").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=300)
    assert not (out / "data-bin").exists()

    report = finish(start("iwslt14", *options))
    _, train, test = archive_files()
    tokenizer = {lang: moses.Tokenizer(lang) for lang in bitext.LANGUAGES}
    for side, lang in enumerate(bitext.LANGUAGES):
        def plain(name, lang=lang):
            return [line.replace("@@ ", "") for line in lines_of(out / f"{name}.{lang}")]

        references = [pair[side].replace("’", "'") for pair in test]
        tokens = [moses.lowercase(tokenizer[lang](pair[side])) for pair in train]
        assert plain("valid") == tokens[22::23]
        assert plain("train") == [line for n, line in enumerate(tokens, start=1) if n % 23]
        assert plain("test") == [moses.lowercase(tokenizer[lang](line)) for line in references]
        assert lines_of(out / f"test.ref.{lang}") == references
        assert (out / "data-bin" / f"test.de-en.{lang}.bin").is_file()
    assert len(lines_of(out / "code")) == 61
    assert "train: 632 pairs" in report and "valid: 28 pairs" in report and "test: 20 pairs" in report
    assert "dropped by cleaning: 90 training pairs" in report
    assert "the public archive gives 160,239 / 7,283 / 6,750 pairs" in report
    assert sorted(path.name for path in out.iterdir()) == sorted(
        [f"{name}.{lang}" for name in (*bitext.SPLITS, "test.ref") for lang in bitext.LANGUAGES]
        + ["code", "data-bin", "preprocess.log", "stamps.json"])

    made = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert finish(start("iwslt14", *options)) == report
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == made


def test_bpe_is_that_of_the_command_line(archive, tmp_path):
    """learn_bpe.py and apply_bpe.py, as fairseq's recipe calls them, give the same merges and text."""
    corpus, _, _ = iwslt14.read(archive, 1)
    lines = [*corpus["train"]["de"], *corpus["train"]["en"]]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    code = bitext.learn_subword_nmt(lines, 60)
    with open(tmp_path / "text", encoding="utf-8") as text, open(tmp_path / "code", "wb") as learned:
        subprocess.run([sys.executable, "-m", "subword_nmt.learn_bpe", "-s", "60"],
                       stdin=text, stdout=learned, stderr=subprocess.DEVNULL, check=True)
    assert (tmp_path / "code").read_bytes() == code
    with open(tmp_path / "text", encoding="utf-8") as text:
        applied = subprocess.run([sys.executable, "-m", "subword_nmt.apply_bpe", "-c", tmp_path / "code"],
                                 stdin=text, stdout=subprocess.PIPE, check=True).stdout
    segment = bitext.segmenter("subword-nmt", code)
    assert applied.decode().split("\n")[:-1] == bitext.parallel(segment, lines, 2, "segmenting")


def multi30k_checkout(folder):
    """A checkout of multi30k/dataset: packed files and, of the test set, unpacked ones."""
    raw = folder / "data" / "task1" / "raw"
    raw.mkdir(parents=True)
    for name, number in (("train", 200), ("val", 10), ("test_2016_flickr", 8)):
        pairs = sentences(number, name)
        for side, lang in enumerate(bitext.LANGUAGES):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            if name.startswith("test"):
                (raw / f"{name}.{lang}").write_text(text, encoding="utf-8")
            else:
                with gzip.open(raw / f"{name}.{lang}.gz", "wt", encoding="utf-8") as file:
                    file.write(text)
    return raw


def test_multi30k(tmp_path):
    raw = multi30k_checkout(tmp_path / "dataset")
    out = tmp_path / "out"
    report = finish(start("multi30k", "--data", tmp_path / "dataset", "--out", out, "--source", "en",
                          "--bpe", "sentencepiece", "--bpe-merges", 90, "--joined-dictionary"))
    assert "train: 200 pairs" in report and "valid: 10 pairs" in report and "test: 8 pairs" in report
    for lang in bitext.LANGUAGES:
        assert (out / f"test.ref.{lang}").read_bytes() == (raw / f"test_2016_flickr.{lang}").read_bytes()
        plain = [line.replace(" ", "").replace("▁", " ").strip() for line in lines_of(out / f"test.{lang}")]
        tokenizer = moses.Tokenizer(lang)
        assert plain == [moses.lowercase(tokenizer(line)) for line in lines_of(out / f"test.ref.{lang}")]
        assert (out / "data-bin" / f"test.en-de.{lang}.bin").is_file()
    lines = [*lines_of(out / "train.de"), *lines_of(out / "train.en")]
    used = {piece for line in lines for piece in line.split()}
    for lang in bitext.LANGUAGES:
        dictionary = [line.split()[0] for line in lines_of(out / "data-bin" / f"dict.{lang}.txt")]
        assert used == {piece for piece in dictionary if not piece.startswith("madeupword")}
        assert f"{len(used):,} {lang} subwords" in report


def test_only_the_stages_that_a_change_concerns_run_again(tmp_path, monkeypatch):
    raw, out, binarised = multi30k_checkout(tmp_path), tmp_path / "out", []

    def fairseq_preprocess(arguments, data_bin, *_):
        binarised.append(arguments)
        data_bin.mkdir(exist_ok=True)
        for lang in bitext.LANGUAGES:
            (data_bin / f"dict.{lang}.txt").write_text("the 1\nmadeupword0000 0\n")

    def run(*options):
        """The output files that a run with these options writes."""
        before = {path: path.stat().st_mtime_ns for path in out.glob("*")}
        monkeypatch.setattr(sys, "argv", [multi30k.PROGRAM, "--data", str(raw), "--out", str(out),
                                          "--workers", "1", *options])
        multi30k.main()
        return {path.name for path in out.glob("*") if path.stat().st_mtime_ns != before.get(path)}

    monkeypatch.setattr(bitext, "fairseq_preprocess", fairseq_preprocess)
    text = {f"{name}.{lang}" for name in (*bitext.SPLITS, "test.ref") for lang in bitext.LANGUAGES}
    small = ("--bpe-merges", "50")
    assert run(*small) == text | {"code", "data-bin", "stamps.json"}
    assert run(*small) == set() and len(binarised) == 1
    assert not run(*small, "--joined-dictionary") & (text | {"code"}) and len(binarised) == 2
    assert "--joined-dictionary" in binarised[1]
    assert run("--bpe-merges", "40") >= text | {"code"} and len(binarised) == 3
    (out / "train.de").write_text("cut off")
    assert run("--bpe-merges", "40") >= text and len(binarised) == 4
    with open(raw / "test_2016_flickr.de", "a") as de, open(raw / "test_2016_flickr.en", "a") as en:
        de.write("mehr\n"), en.write("more\n")
    assert run("--bpe-merges", "40") >= text | {"code"} and len(binarised) == 5


# ------------------------------------------------------------------------------------------- errors, archives


def error_of(capfd, module, *options):
    """The one line with which the recipe ends."""
    argv, sys.argv = sys.argv, [module.PROGRAM, *map(str, options)]
    try:
        with pytest.raises(SystemExit) as ended:
            module.main()
    finally:
        sys.argv = argv
    assert ended.value.code == 2
    lines = [line for line in capfd.readouterr().err.splitlines() if "%" not in line]
    assert len(lines) == 1, lines
    return lines[0]


def test_wrong_archives(capfd, tmp_path, archive, files):
    def error(path):
        return error_of(capfd, iwslt14, "--archive", path, "--out", f"{path}.out", "--workers", 1)

    assert "no such file" in error(tmp_path / "none.tgz")

    whole = archive.read_bytes()
    for cut in (len(whole) // 2, len(whole) - 4):
        (tmp_path / f"{cut}.tgz").write_bytes(whole[:cut])
        assert "truncated" in error(tmp_path / f"{cut}.tgz")
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    (tmp_path / "damaged.tgz").write_bytes(damaged)
    assert "damaged" in error(tmp_path / "damaged.tgz")
    (tmp_path / "page.tgz").write_bytes(b"<!DOCTYPE html><title>404</title>")
    assert "not a gzip file" in error(tmp_path / "page.tgz")
    (tmp_path / "text.tgz").write_bytes(gzip.compress(b"no tar\n" * 200))
    assert "no tar archive" in error(tmp_path / "text.tgz")

    pack(tmp_path / "foreign.tgz", {name.replace("de", "fr"): text for name, text in files.items()})
    message = error(tmp_path / "foreign.tgz")
    assert "not the IWSLT'14 de-en archive" in message and "train.tags.de-en.de" in message

    train = "de-en/train.tags.de-en.de"
    pack(tmp_path / "short.tgz", {**files, train: files[train].rsplit("\n", 2)[0] + "\n"})
    assert re.search(r"train.tags.de-en.\*: 749 de lines and 750 en lines", error(tmp_path / "short.tgz"))
    pack(tmp_path / "latin1.tgz", {**files, train: files[train].encode("latin1")})
    assert re.search(r"train.tags.de-en.de:4: not UTF-8", error(tmp_path / "latin1.tgz"))
    pack(tmp_path / "empty.tgz", {name: "" for name in files})
    assert "no sentence pair is left" in error(tmp_path / "empty.tgz")


def test_wrong_options(capfd, tmp_path, archive):
    def error(*options):
        return error_of(capfd, iwslt14, "--archive", archive, *options)

    assert "--out" in error()
    message = error("--out", tmp_path / "out", "--bpe", "wordpiece")
    assert "'wordpiece'" in message and "subword-nmt" in message and "sentencepiece" in message
    assert "'0'" in error("--out", tmp_path / "out", "--bpe-merges", 0)
    assert "'fr'" in error("--out", tmp_path / "out", "--source", "fr")
    assert "give a directory" in error("--out", archive)
    assert "give a directory" in error("--out", archive / "below")


def test_wrong_multi30k_folders(capfd, tmp_path):
    def error():
        return error_of(capfd, multi30k, "--data", tmp_path / "dataset", "--workers", 1,
                        "--out", tmp_path / f"out{len(list(tmp_path.iterdir()))}")

    assert "has no train.de or train.de.gz" in error()
    raw = multi30k_checkout(tmp_path / "dataset")
    packed = (raw / "val.en.gz").read_bytes()
    (raw / "val.en.gz").write_bytes(packed[:-10])
    assert "val.en.gz: truncated" in error()
    (raw / "val.en.gz").write_bytes(b"text\n")
    assert "val.en.gz: not a gzip file" in error()
    (raw / "val.en.gz").write_bytes(gzip.compress(b"one line\n"))
    assert "10 de lines and 1 en lines" in error()


# --------------------------------------------------------------------------------------------------- download


class Handler(BaseHTTPRequestHandler):
    """Serves `server.data`, ranges too; a connection ends after `server.cut` bytes where that is given."""

    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append(asked)
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and server.ranges else 0
        if self.path != "/de-en.tgz":
            self.send_error(404)
        elif start >= len(server.data):
            self.send_error(416)
        else:
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(server.data) - start))
            self.end_headers()
            self.wfile.write(server.data[start:][:server.cut])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(archive, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.data, server.cut, server.ranges, server.asked = archive.read_bytes(), None, True, []
        server.url = f"http://127.0.0.1:{server.server_port}/de-en.tgz"
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize("ranges", [True, False])
def test_download_goes_on_where_it_stopped(server, tmp_path, capfd, ranges):
    target, part = tmp_path / "got.tgz", tmp_path / "got.tgz.part"
    server.cut = 1000
    with pytest.raises(SystemExit):
        iwslt14.download(server.url, target)
    assert f"ended at 1,000 of {len(server.data):,} bytes" in capfd.readouterr().err
    assert part.stat().st_size == 1000 and not target.exists()
    server.cut, server.ranges = None, ranges
    iwslt14.download(server.url, target)
    assert target.read_bytes() == server.data and not part.exists()
    assert server.asked == [None, "bytes=1000-"]


def test_download_killed_before_the_last_step(server, tmp_path):
    (tmp_path / "got.tgz.part").write_bytes(server.data)  # whole, but not yet checked and renamed
    iwslt14.download(server.url, tmp_path / "got.tgz")
    assert (tmp_path / "got.tgz").read_bytes() == server.data


def test_download_that_cannot_be(server, tmp_path, capfd):
    def error(url):
        with pytest.raises(SystemExit):
            iwslt14.download(url, tmp_path / "got.tgz")
        assert not (tmp_path / "got.tgz").exists()
        return [line for line in capfd.readouterr().err.splitlines() if "%" not in line][-1]

    assert "404" in error(server.url + "x")
    assert "unknown url type" in error("de-en.tgz")
    assert "refused" in error("http://127.0.0.1:1/de-en.tgz")
    server.data = b"<html>please sign in</html>"
    assert "not a gzip file" in error(server.url)
    assert not (tmp_path / "got.tgz.part").exists()  # or the next try would go on from it


def test_archive_is_downloaded_where_it_is_left_out(server, tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(bitext, "prepare", lambda out, inputs, *_: read.extend(inputs) or iwslt14.PAIRS)
    monkeypatch.setattr(sys, "argv", [iwslt14.PROGRAM, "--out", str(tmp_path / "out"), "--url", server.url])
    iwslt14.main()
    assert read == [tmp_path / "out" / "de-en.tgz"] and read[0].read_bytes() == server.data

    (tmp_path / "again").mkdir()
    read[0].rename(tmp_path / "again" / "de-en.tgz")
    monkeypatch.setattr(sys, "argv", [iwslt14.PROGRAM, "--out", str(tmp_path / "again"), "--url", server.url])
    iwslt14.main()
    assert len(server.asked) == 1  # what is there is not fetched again
