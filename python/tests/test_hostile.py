"""Generated messages of a hostile user's.  DFGNN_HOSTILE says how many, from
DFGNN_HOSTILE_SEED on (four calls each; 1000 for a night)."""

import os

import pytest

pytest.importorskip("torch_geometric.nn")

import hostile  # noqa: E402

COUNT = int(os.environ.get("DFGNN_HOSTILE", "25"))
FIRST = int(os.environ.get("DFGNN_HOSTILE_SEED", "0"))
_served = []


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
@pytest.mark.filterwarnings("error:.*takes PyG's own path")
def test_a_message_is_its_own(seed):
    told, served, _ = hostile.compare(seed)
    _served.append(served)
    assert told is None, f"{told}, of\n{hostile.source(seed)}"
