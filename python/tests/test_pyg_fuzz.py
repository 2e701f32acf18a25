"""Random layers, options, graphs and types against PyG: PyG's own after
dfgnn.accelerate(), and those of dfgnn.nn.  fuzz_pyg.py has more:

    python3 python/tests/fuzz_pyg.py --cases 5000
"""

import collections
import os

import pytest

import fuzz_pyg

CASES = 300
PARTS = 6
FIRST = 1 + (int(os.environ.get("TEST_SEED", "1")) - 1) * 1000003
_by_kernels = collections.Counter()


def _count():
    return CASES // 8 if os.environ.get("TEST_QUICK") else CASES


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("nn", [False, True], ids=["accelerated", "nn"])
def test_random_layers_are_pygs(nn, part):
    wrong = []
    for seed in range(FIRST + part, FIRST + _count(), PARTS):
        case, difference, ran, refused = fuzz_pyg.check(seed, nn)
        _by_kernels["cases"] += 1
        _by_kernels["kernels"] += ran
        _by_kernels["refused"] += refused
        if difference is not None:
            wrong.append(f"{case}\n    {difference}")
    assert not wrong, "\n".join(
        wrong + ["again: python3 python/tests/fuzz_pyg.py --seed SEED"])


def test_most_of_the_cases_ran_kernels():
    if not _by_kernels["cases"]:
        pytest.skip("no case ran before")
    assert _by_kernels["kernels"] > 0.7 * _by_kernels["cases"]
    assert _by_kernels["refused"] < 0.2 * _by_kernels["cases"]
