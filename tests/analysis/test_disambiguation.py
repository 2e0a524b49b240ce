"""Clusters of close words and the models' choices in them against brute force, the intervals, files, mistakes."""

import math
import re

import pytest
import torch
from fairseq.data import Dictionary
from fairseq_commands import awaited, later, lm_training

from fairseq_kernels import GeneralizedSoftmax
from fairseq_kernels.analysis import disambiguation as module
from fairseq_kernels.analysis.reading import Reading, read


def test_greedy_rule():
    torch.manual_seed(2)
    weight, candidates = torch.randn(40, 5), torch.randperm(40)[:30]
    free, expected = candidates.tolist(), []
    products = (weight.double() @ weight.double().T).fill_diagonal_(-math.inf).tolist()
    for _ in range(7):
        nearest = {word: sorted(free, key=products[word].__getitem__, reverse=True)[:3] for word in free}
        tightness = {word: sum(products[word][other] for other in others) for word, others in nearest.items()}
        centre = max(free, key=tightness.get)
        expected.append([centre, *nearest[centre]])
        free = [word for word in free if word not in expected[-1]]
    assert module.clusters(weight, candidates, 4, 7).tolist() == expected


def test_frequent_words():
    dictionary = Dictionary()
    for word, count in (("a", 9), ("<laughter>", 8), ("b", 7), ("<", 6), ("c", 5), ("madeupword0000", 0)):
        dictionary.add_symbol(word, n=count)
    assert [dictionary[word] for word in module.frequent_words(dictionary, 10)] == ["a", "b", "<", "c"]
    assert [dictionary[word] for word in module.frequent_words(dictionary, 2)] == ["a", "b"]


WORDS = 20
LINES = [6, 1, 9, 3, 8, 20, 2, 11]
GROUPS = torch.tensor([[4, 7, 9], [20, 5, 11], [6, 8, 10]])


@pytest.fixture(scope="module")
def text():
    """A reading by a mixture with random parameters of lines of random words."""
    torch.manual_seed(3)
    dictionary = Dictionary()
    for word in range(WORDS):
        dictionary.add_symbol(f"w{word}", n=WORDS - word)
    lines = [[*torch.randint(dictionary.nspecial, len(dictionary), (n,)).tolist(), dictionary.eos()] for n in LINES]
    words = torch.tensor(sum(lines, []))
    positions = torch.cat([torch.arange(len(line)) for line in lines])
    layer = GeneralizedSoftmax(8, len(dictionary), kernels="2xlin,log", kernel_params="log.p=3")
    torch.nn.init.normal_(layer.bias)
    return Reading(layer, dictionary, 3 * torch.randn(len(words), 8), words, positions)


def test_questions(text):
    expected, line, asked = [], 0, module.questions(text, GROUPS)
    for position, word in enumerate(text.words.tolist()):
        for cluster in GROUPS.tolist():
            if word in cluster:
                expected.append((position, line, cluster, cluster.index(word)))
        line += word == text.dictionary.eos()
    assert list(zip(*(part.tolist() for part in asked))) == expected and len(expected) > 20


def test_answers(monkeypatch, text):
    monkeypatch.setattr(module, "CHUNK", 7)
    asked = module.questions(text, GROUPS)
    own = module.answers(text, asked)
    layer = GeneralizedSoftmax(8, len(text.dictionary), kernels="2xlin,log", kernel_params="log.p=3").double()
    layer.load_state_dict(text.layer.state_dict())
    p = layer(text.features.double()).exp().detach()
    for n, position in enumerate(asked.positions.tolist()):
        inside = [float(p[position, word]) for word in asked.choices[n]]
        target = asked.choices[n].tolist().index(int(text.words[position]))
        assert own.choice[n] == inside.index(max(inside))
        assert own.right[n] == (own.choice[n] == target)
        assert float(own.log_likelihood[n]) == pytest.approx(math.log(inside[target] / sum(inside)), abs=1e-5)
    assert 0 < own.right.mean() < 1 and not own.log_likelihood.requires_grad


@pytest.fixture(scope="module")
def values():
    """Values of two models that are equally good, and their lines, whose numbers leave some out."""
    generator = torch.Generator().manual_seed(4)
    lines = torch.randint(0, 300, (1000,), generator=generator).sort().values * 2
    return torch.randn(1000, generator=generator).double(), torch.randn(1000, generator=generator).double(), lines


def test_intervals(values):
    """Equal models; better and worse ones; seeds; a line a word: the normal approximation of a mean."""
    one, other, lines = values
    assert module.difference(one, one, lines, seed=1) == {"mean": 0, "low": 0, "high": 0, "excludes_0": False}
    same = module.difference(one, other, lines, seed=1)
    assert same["mean"] == pytest.approx(float((one - other).mean()))
    assert same["low"] < 0 < same["high"] and not same["excludes_0"]
    better, worse = module.difference(one + 1, other, lines, seed=1), module.difference(other, one + 1, lines, seed=1)
    assert better["excludes_0"] and better["low"] == pytest.approx(same["low"] + 1) and worse["high"] < 0
    assert same == module.difference(*values, seed=1) != module.difference(*values, seed=2)
    single = module.difference(one, other, torch.arange(1000), seed=1)
    half = 1.96 * float((one - other).std()) / math.sqrt(1000)
    assert single["high"] - single["low"] == pytest.approx(2 * half, rel=0.05)
    nine = [part.repeat_interleave(9) for part in (one, other, torch.arange(1000))]  # words that say the same in a line
    assert module.difference(*nine, seed=1) == pytest.approx(single)


def test_random_clusters_are_of_the_same_words_and_frequencies():
    """Each place has a word among the 20 that are about as frequent as the former one, mostly another."""
    counts = torch.arange(1000, 0, -1) ** 2
    close = torch.randperm(200, generator=torch.Generator().manual_seed(1)).view(40, 5) + 10
    random = module.shuffled(close, counts, seed=1)
    assert random.shape == close.shape and random.unique().tolist() == close.unique().tolist()
    assert ((random - 10) // 20 == (close - 10) // 20).all()
    assert (random != close).float().mean() > 0.8
    assert not torch.equal(random, module.shuffled(close, counts, seed=2))


def test_a_gain_that_is_everywhere_is_none_beyond_random_clusters(values):
    _, _, lines = values

    def answers_of(losses):
        return module.Answers(torch.zeros(0), torch.zeros(0), -losses)

    generator = torch.Generator().manual_seed(5)
    close, random = (torch.rand(1000, generator=generator).double() + shift for shift in (1.0, 0.2))
    baseline = [answers_of(close), answers_of(random)]
    same = [(answers_of(0.9 * loss), before) for loss, before in zip((close, random), baseline)]
    gain = module.gain_beyond_random(*same, lines, seed=1)
    assert [gain[key] for key in ("mean", "low", "high")] == pytest.approx([0, 0, 0], abs=1e-12)
    more = [(answers_of(0.8 * close), baseline[0]), same[1]]
    gain = module.gain_beyond_random(*more, lines, seed=1)
    assert gain["mean"] == pytest.approx(0.1) and gain["low"] == pytest.approx(0.1) and gain["excludes_0"]


@pytest.fixture(scope="module", autouse=True)
def small():
    """Three clusters of three among twenty words."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("SIZE", 3), ("VOCABULARY", 20), ("EXAMPLES", 2)):
            patch.setattr(module, name, value)
        yield


@pytest.fixture(scope="module")
def lin_lm(lm_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lin")
    return awaited(folder, later(*lm_training(lm_data, folder, "--kernels", "lin")))


def test_differences(lm_data, lin_lm, mixture_lm):
    checkpoints = {"lin": lin_lm.last, "mix": mixture_lm.last, "again": lin_lm.last}
    metrics, sentences = module.compare(lm_data, checkpoints)
    lin, mix, again = ({metric["metric"].removeprefix("cluster_"): metric for metric in metrics[name]}
                       for name in ("lin", "mix", "again"))  # fmt: skip
    assert set(mix) - set(lin) == {"gain_beyond_random"} and not any("difference" in metric for metric in lin.values())
    for figure in ("accuracy", "log_likelihood"):
        interval = mix[figure]["difference"]
        assert interval["mean"] == pytest.approx(mix[figure]["value"] - lin[figure]["value"])
        assert interval["low"] <= interval["mean"] <= interval["high"]
        assert again[figure]["difference"] == {"mean": 0, "low": 0, "high": 0, "excludes_0": False}
    weight = read(checkpoints["lin"], lm_data).layer.weight.detach()
    close, losses, choices = module.clusters(weight, torch.arange(4, 24), 3, 3), {}, {}
    for name, own in (("lin", lin), ("mix", mix)):
        reading = read(checkpoints[name], lm_data)
        for groups in (module.shuffled(close, torch.tensor(reading.dictionary.count), module.SEED), close):
            asked = module.questions(reading, groups)
            said = choices[name] = module.answers(reading, asked)
            losses.setdefault(name, []).append(float(said.log_likelihood.mean()))
        assert own["accuracy"]["value"] == pytest.approx(float(said.right.mean()))
        assert own["log_likelihood"]["value"] == pytest.approx(losses[name][1])
    shares = [mine / baseline for mine, baseline in zip(losses["mix"], losses["lin"])]
    assert mix["gain_beyond_random"]["value"] == pytest.approx(shares[0] - shares[1])
    assert again["gain_beyond_random"]["value"] == 0 and not again["gain_beyond_random"]["difference"]["excludes_0"]
    better, worse = (int(number) for number in re.findall(r"wrong: (\d+) times", sentences["mix"])[::-1])
    difference = mix["accuracy"]["difference"]["mean"]
    details = metrics["mix"][0]["details"]
    assert (better - worse) / details["positions"] == pytest.approx(difference) and better + worse > 0
    assert details["clusters"] == 3 and set(sentences) == {"mix", "again"}
    shown, text = sentences["mix"].splitlines(), [reading.dictionary[word] for word in reading.words]
    assert "- " + ", ".join(reading.dictionary[word] for word in close[0]) in shown
    for winner, loser in ("lin", "mix"), ("mix", "lin"):  # two sentences, those that the models differ most in
        right, wrong, rows = choices[winner], choices[loser], {}
        for n in (right.log_likelihood - wrong.log_likelihood).argsort(descending=True):
            end = int(asked.positions[n])
            line = text[end - int(reading.positions[end]) : end]
            words = {name: reading.dictionary[asked.choices[n, choices[name].choice[n]]] for name in choices}
            if right.right[n] > wrong.right[n]:
                rows.setdefault((*line, text[end]), [f"| {who} | {' '.join(line)} **{word}** |" for who, word in
                                                     {"Ground Truth": text[end], **words}.items()])  # fmt: skip
        [start] = [n for n, line in enumerate(shown) if line.startswith(f"{winner} right, {loser} wrong: ")]
        assert shown[start + 4 :][: 3 * min(2, len(rows))] == sum(list(rows.values())[:2], [])


def test_a_mixture_s_vectors_make_no_clusters(lm_data, mixture_lm):
    with pytest.raises(SystemExit, match="--kernels lin"):
        module.compare(lm_data, {"mix": mixture_lm.last})
