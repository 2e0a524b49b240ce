"""Every kernel, with defaults and with other values of its hyper-parameters: what the tests are repeated over."""

from fairseq_kernels import KERNELS
from fairseq_kernels.kernels.spec import build_kernels

# (kernel, hyper-parameters)
FIXED = [
    *((name, "") for name in KERNELS),
    ("lin", "lin.scale=2.5"),
    *(("log", f"log.p={p}") for p in (1, 1.5, 8)),
    ("log", "log.p=3,log.gamma=0.3,log.scale=4"),
    ("log", "log.gamma=0.3"),
    *(("pow", f"pow.p={p}") for p in (1, 1.5, 8)),
    ("pow", "pow.p=3,pow.gamma=0.3,pow.scale=0.5"),
    ("pow", "pow.gamma=0.3"),
    ("pol", "pol.p=1"),
    ("pol", "pol.p=3,pol.alpha=0.5,pol.c=-0.2"),
    ("rbf", "rbf.gamma=0.1,rbf.scale=10"),
    ("ssg", "ssg.floor=0.5,ssg.scale=2"),
    ("mog", "mog.components=1"),
    ("mog", "mog.components=3,mog.floor=0.01"),
    ("hpb", "hpb.gamma=0.5,hpb.cap=0.9,hpb.scale=3"),
    ("wav", "wav.a=2,wav.b=5,wav.scale=7"),
    ("sig", "sig.scale=2"),
    ("abs", "abs.scale=0.5"),
    ("cap", "cap.c=2,cap.alpha=3,cap.scale=0.5"),
    ("cos", "cos.scale=12"),
]
# all real-valued hyper-parameters trained
LEARNED = [
    (name, ",".join(f"{name}.{h.name}=learned" for h in kernel.all_hyperparameters() if h.domain != "count"))
    for name, kernel in KERNELS.items()
]
# and from other values than their defaults, which may be 1
LEARNED_FROM = [
    ("pol", "pol.alpha=learned:0.5,pol.c=learned:-0.2,pol.p=3"),
    ("log", "log.p=learned:3,log.gamma=learned:0.3,log.scale=learned:2"),
    ("pow", "pow.p=learned:3,pow.gamma=learned:0.3"),
    *((name, f"{name}.gamma=learned:0.3") for name in ("log", "pow")),
    ("hpb", "hpb.gamma=learned:0.5,hpb.cap=learned:0.9"),
    ("cap", "cap.c=learned:2,cap.alpha=learned:0.7"),
    ("cap", "cap.alpha=learned:0.7"),
]
EVERY = [*FIXED, *LEARNED, *LEARNED_FROM]


def ids(settings):
    return [params or name for name, params in settings]


def build(name, params, embed_dim):
    """One kernel in float64."""
    [kernel] = build_kernels(name, embed_dim, params)
    return kernel.double()
