"""Trains a MeshGraphNet to advance waves on an irregular mesh.

    python3 docs/examples/mesh.py --points 64 --width 128 --depth 8

The mesh is a square of points that are moved at random, each joined to the
eight around it (Pfaff et al. 2021 have such meshes).  The waves are made: sums
of standing waves of a membrane that is held at its edge, whose height and
speed are known exactly at any time.  The model is given both at the points,
and tells them a time step later; --library pyg computes the same blocks with
torch's operations, which keep an inner value of every edge.

skill is 1 - error / error of the forecast that nothing moves, on waves that
were not trained on: 0 is no forecast at all, 1 a perfect one; rollout is that
after eight steps, each from the one before.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

import training


# ---- the mesh ---------------------------------------------------------------

def make_mesh(side, generator):
    """(points [N, 2] in the unit square, edge_index, features of edges [E, 3],
    whether a point is on the edge [N])."""
    at = torch.arange(side)
    row, column = at.repeat_interleave(side), at.repeat(side)
    inner = ((row > 0) & (row < side - 1) & (column > 0)
             & (column < side - 1))
    points = torch.stack([row, column], 1) / (side - 1)
    moved = (torch.rand(side * side, 2, generator=generator) - 0.5) * 0.7
    points = points + moved / (side - 1) * inner.unsqueeze(1)
    ends = []
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            there = ((row + down).clamp(0, side - 1) == row + down) & (
                (column + right).clamp(0, side - 1) == column + right)
            if down or right:
                node = (row * side + column)[there]
                ends.append(torch.stack([node + down * side + right, node]))
    edges = torch.cat(ends, 1)
    way = (points[edges[0]] - points[edges[1]]) * (side - 1)
    features = torch.cat([way, way.norm(dim=1, keepdim=True)], 1)
    return points, edges, features, ~inner


# ---- waves ------------------------------------------------------------------

def waves(points, count, steps, generator, step=0.04, modes=4):
    """[count, steps + 1, N, 2]: height and speed at each step, of standing
    waves of random size and phase."""
    k = torch.arange(1, modes + 1)
    a, b = k.repeat_interleave(modes), k.repeat(modes)
    shapes = torch.sin(math.pi * points[:, :1] * a) * torch.sin(
        math.pi * points[:, 1:] * b)
    speed = math.pi * (a ** 2 + b ** 2).sqrt()
    size = torch.randn(count, 1, modes * modes, generator=generator) / speed
    phase = torch.rand(count, 1, modes * modes, generator=generator) * 7
    angle = phase + speed * step * torch.arange(steps + 1).view(1, -1, 1)
    height = (size * angle.cos()) @ shapes.T
    change = -(size * speed * angle.sin()) @ shapes.T
    return torch.stack([height, change], -1)


# ---- the model --------------------------------------------------------------

def by_torch(block, x, edges, features):
    """Computes what a dfgnn.nn.MeshBlock does by torch's operations."""
    src, dst = edges
    made = features + block.edge.mlp(torch.cat(
        [features, x[src], x[dst]], 1))
    total = torch.zeros_like(x).index_add(0, dst, made)
    return x + block.node(torch.cat([total, x], 1)), made


class MeshGraphNet(nn.Module):
    """Networks of nodes and of edges, blocks, and a network of nodes."""

    def __init__(self, width, depth, fused):
        super().__init__()
        from dfgnn.nn import MeshBlock

        def network(inputs, outputs):
            return nn.Sequential(nn.Linear(inputs, width), nn.SiLU(),
                                 nn.Linear(width, outputs))
        self.fused = fused
        self.nodes, self.edges = network(3, width), network(3, width)
        self.blocks = nn.ModuleList(MeshBlock(width) for _ in range(depth))
        self.out = network(width, 2)

    def forward(self, field, mesh):
        x = self.nodes(torch.cat([field, mesh["border"]], 1))
        e = self.edges(mesh["features"])
        for block in self.blocks:
            x, e = block(x, mesh["graph"], e) if self.fused else by_torch(
                block, x, mesh["edges"], e)
        change = self.out(x) * (1 - mesh["border"])
        return field + change


def batched(mesh, count, points):
    """The mesh, `count` times side by side."""
    moves = torch.arange(count, device=mesh["edges"].device) * points
    edges = (mesh["edges"].unsqueeze(1) + moves.view(1, -1, 1)).flatten(1)
    found = {"edges": edges, "features": mesh["features"].repeat(count, 1),
             "border": mesh["border"].repeat(count, 1)}
    if mesh["graph"] is not None:
        import dfgnn
        found["graph"] = dfgnn.as_graph(edges, count * points)
    return found


def train(options):
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    device, fused = options.device, options.library == "dfgnn"
    points, edges, features, border = make_mesh(options.points, generator)
    count = len(points)
    mesh = {"edges": edges.to(device), "features": features.to(device),
            "border": border.float().unsqueeze(1).to(device),
            "graph": fused or None}
    mesh = batched(mesh, options.batch, count)
    one = batched(dict(mesh, edges=edges.to(device),
                       features=features.to(device),
                       border=mesh["border"][:count],
                       graph=fused or None), 1, count)
    data = waves(points, options.waves, 8, generator)
    data = (data / data.std((0, 1, 2))).to(device)
    tests, given = data[:8], data[8:]
    model = MeshGraphNet(options.width, options.depth, fused).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.rate)
    rates = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, options.rate, total_steps=options.steps + 1)
    clock = training.Clock(device)

    def step(now, later):
        optimizer.zero_grad()
        loss = clock.lap("forward_ms", lambda: F.mse_loss(
            model(now, mesh), later))
        clock.lap("backward_ms", loss.backward)
        clock.lap("optimizer_ms", optimizer.step)

    @torch.no_grad()
    def skill(steps):
        error = still = 0.0
        for wave in tests:
            field = wave[0]
            for _ in range(steps):
                field = model(field, one)
            error += float(F.mse_loss(field, wave[steps]))
            still += float(F.mse_loss(wave[0], wave[steps]))
        return 1 - math.sqrt(error / still)
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
    clock.mark(skill(1))
    for number in range(options.steps):
        which = torch.randint(len(given), (options.batch,),
                              generator=generator)
        at = torch.randint(8, (options.batch,), generator=generator)
        now, later = (torch.cat([given[w, t + k] for w, t in zip(
            which.tolist(), at.tolist())]) for k in (0, 1))
        clock.epoch(lambda: step(now, later))
        rates.step()
        if number % max(1, options.steps // 10) == 0:
            clock.mark(skill(1))
    clock.mark(skill(1))
    times = clock.medians()
    times["step_ms"] = times.pop("epoch_ms")
    return {"nodes": count, "edges": edges.size(1), "batch": options.batch,
            "skill": clock.curve[-1][1] / 100, "rollout": skill(8), **times,
            "peak_MiB": training.peak_mib(device), "curve": clock.curve}


if __name__ == "__main__":
    parser = training.arguments(
        __doc__, points=32, waves=64, steps=300, batch=4, width=64, depth=4,
        rate=2e-3, seed=1)
    training.main(parser.parse_args(), train)
