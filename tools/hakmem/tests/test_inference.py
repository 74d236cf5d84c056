# SPDX-License-Identifier: MIT
"""Negative controls: no effect must not be found, a planted one must.

Experiments are simulated with noise as machines make it: white, drifting,
with long tails to one side, in bursts, and switching between two speeds.
"""

import pytest

np = pytest.importorskip("numpy")

from hakmem_workbench import factorial, inference  # noqa: E402
from hakmem_workbench.report import short  # noqa: E402

KINDS = ("white", "drift", "tails", "bursts", "levels")
SPREAD = 0.02


@pytest.fixture(autouse=True)
def fewer_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coarser tails make false claims rather more likely, and the tests quicker."""
    monkeypatch.setattr(inference, "RESAMPLES", 1200)


def noise(kind: str, blocks: int, arms: int, rng):  # type: ignore[no-untyped-def]
    """Logarithms of times, blocks × arms; arms are in random order, as they ran."""
    shape = (blocks, arms)
    white = rng.normal(0, SPREAD, shape)
    if kind == "drift":
        white = white + np.cumsum(rng.normal(0, SPREAD / 2, blocks * arms)).reshape(shape)
    elif kind == "tails":
        white = np.abs(rng.standard_t(2, shape)) * SPREAD
    elif kind == "bursts":
        busy = np.repeat(rng.random((blocks * arms) // 4 + 1) < 0.2, 4)[: blocks * arms]
        white = white + 6 * SPREAD * busy.reshape(shape)
    elif kind == "levels":
        white = white + 0.6 * (np.cumsum(rng.random(blocks) < 0.15) % 2)[:, None]
    return rng.permuted(white, axis=1)


def experiment(kind: str, blocks: int, effects: list[float], seed: int) -> inference.Judgement:
    rng = np.random.default_rng(seed)
    times = 0.05 * np.exp(noise(kind, blocks, 2 + len(effects), rng))
    others = {f"v{i}": times[:, 2 + i] * (1 + effect) for i, effect in enumerate(effects)}
    return inference.judge("base", times[:, 0], times[:, 1], others, seed)


@pytest.mark.parametrize("blocks", [10, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_found_where_there_is_nothing(kind: str, blocks: int) -> None:
    """Two variants without effect, 40 experiments: at least 38 must say so of both."""
    clean = 0
    for seed in range(40):
        comparisons = experiment(kind, blocks, [0.0, 0.0], seed).comparisons.values()
        clean += all(comparison.verdict == "same" for comparison in comparisons)
        assert all(
            "no difference above the noise" in comparison.sentence
            for comparison in comparisons
            if comparison.verdict == "same"
        )
    assert clean >= 38


@pytest.mark.parametrize("effect", [0.05, -0.05])
@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_difference_is_found(kind: str, effect: float) -> None:
    found = 0
    for seed in range(20):
        (comparison,) = experiment(kind, 20, [effect], seed).comparisons.values()
        assert comparison.verdict != ("faster" if effect > 0 else "slower")
        found += comparison.verdict != "same"
    assert found >= (15 if kind == "bursts" else 19)


def test_the_interval_covers_the_truth() -> None:
    covered = 0
    for seed in range(40):
        (comparison,) = experiment("drift", 20, [0.05], seed).comparisons.values()
        covered += comparison.ratio.low <= 1.05 <= comparison.ratio.high
    assert covered >= 38


def test_many_variants_share_the_level() -> None:
    """Ten variants without effect: a false claim is as rare as with one."""
    for seed in range(3):
        found = experiment("white", 20, [0.0] * 10, seed).comparisons.values()
        assert all(one.verdict == "same" for one in found)
        assert all(one.level == 1 - (1 - inference.LEVEL) / 10 for one in found)


def test_differences_below_the_smallest_claim() -> None:
    """A third of a percent is layout, however sure the statistics are."""
    rng = np.random.default_rng(0)
    times = np.exp(rng.normal(0, 0.0002, (60, 3)))
    others = {"v": times[:, 2] * 1.003}
    comparison = inference.judge("base", times[:, 0], times[:, 1], others, 0).comparisons["v"]
    assert comparison.ratio.low > 1 and comparison.verdict == "same"


def test_too_few_runs() -> None:
    comparison = experiment("white", 5, [0.5], 0).comparisons["v0"]
    assert comparison.verdict == "few" and "too few runs" in comparison.sentence


def test_an_unsteady_machine_is_told_and_raises_the_bar() -> None:
    """The baseline differs from itself by 6 %: 4 % are then nothing."""
    rng = np.random.default_rng(1)
    times = np.exp(rng.normal(0, 0.005, (30, 3)))
    judgement = inference.judge(
        "base", times[:, 0], times[:, 1] * 1.06, {"v": times[:, 2] * 1.07}, 0
    )
    assert not judgement.noise.steady
    assert "was not steady" in inference.noise_sentence("base", judgement.noise)
    assert judgement.comparisons["v"].verdict == "same"


def test_words() -> None:
    judgement = experiment("white", 30, [0.10, -0.50], 3)
    slower, faster = judgement.comparisons.values()
    assert (
        slower.sentence.startswith("v0 takes ")
        and " % more time than base (between +" in slower.sentence
    )
    assert "times as fast" in faster.sentence
    assert inference.change(1.05) == "+5.0 %" and inference.change(0.95) == "−5.0 %"


def test_same_seed_same_answer() -> None:
    assert experiment("tails", 20, [0.02], 9) == experiment("tails", 20, [0.02], 9)


FACTORS = [
    factorial.Factor("header", ("true", "false", "small")),
    factorial.Factor("backend", ("shared_pool", "legacy")),
    factorial.Factor("release", ("batch", "direct")),
]


def analysed(seed: int, header: float, crossed: float) -> factorial.Analysis:
    rng = np.random.default_rng(seed)
    combinations = factorial.cells(FACTORS)
    logs = noise("levels", 20, len(combinations) + 1, rng)
    for number, (first, second, _) in enumerate(combinations):
        logs[:, number] += header * (first == "false") + crossed * (
            first == "false" and second == "legacy"
        )
    times = np.exp(logs)
    base = inference.noise_of(times[:, 0], times[:, -1], seed)
    return factorial.analyse(FACTORS, times[:, :-1], base, seed)


def test_factors_without_effect() -> None:
    claims = 0
    for seed in range(30):
        analysis = analysed(seed, 0.0, 0.0)
        claims += any(e.verdict != "same" for e in [*analysis.main, *analysis.interactions])
    assert claims <= 2


def test_main_effect_is_found_and_only_that() -> None:
    found = 0
    for seed in range(20):
        analysis = analysed(seed, np.log(1.05), 0.0)
        effects = {effect.name: effect for effect in analysis.main}
        planted = effects.pop("header: false instead of true")
        found += planted.verdict == "slower" and 1.03 < planted.ratio.value < 1.07
        assert all(effect.verdict == "same" for effect in effects.values())
    assert found >= 18


def test_interaction_is_found() -> None:
    analysis = analysed(0, 0.0, np.log(1.10))
    crossed = {effect.name: effect for effect in analysis.interactions}
    planted = crossed["header=false with backend=legacy"]
    assert planted.verdict == "slower" and 1.05 < planted.ratio.value < 1.15
    assert len(crossed) == 5
    assert "than their single effects predict" in planted.sentence


def test_shares_add_up() -> None:
    analysis = analysed(0, np.log(1.5), 0.0)
    assert sum(analysis.shares.values()) == pytest.approx(1)
    assert analysis.shares["header"] > 0.9


def test_parse_factor() -> None:
    assert factorial.parse_factor("header=true,false") == factorial.Factor(
        "header", ("true", "false")
    )
    for text in ("header", "header=", "header=true", "=a,b", "header=a,a"):
        with pytest.raises(factorial.Problem):
            factorial.parse_factor(text)


def test_an_interval_without_one_has_a_reason() -> None:
    """A report of 'no difference' beside 1.010 – 1.030 gives the reason."""
    told = set()
    for seed in range(60):
        random = np.random.default_rng(seed)
        first, again, other = np.exp(random.normal(0, 0.02, (3, 15)))
        judged = inference.judge("a", first, again, {"b": other * 1.012}, seed)
        comparison = judged.comparisons["b"]
        if comparison.verdict != "same" or not comparison.ratio.excludes_one:
            assert comparison.reason == ""
            continue
        told.add(comparison.reason.split()[0])
        assert comparison.reason in comparison.sentence
        assert short(comparison) == f"no difference: {comparison.reason}"
    assert told, "no such case among the seeds"


@pytest.mark.parametrize(
    ("low", "value", "high", "p", "said"),
    [
        (0.99, 1.01, 1.03, 0.5, ""),
        (1.01, 1.02, 1.03, 0.001, "within the noise of 3.0 %"),
        (0.90, 0.92, 0.95, 0.04, "chance gives as much in 4.0 % of cases"),
    ],
)
def test_reasons(low: float, value: float, high: float, p: float, said: str) -> None:
    assert inference.reason_of(inference.Ratio(value, low, high), p, 0.03) == said
