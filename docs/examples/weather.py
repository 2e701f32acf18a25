"""Trains an encoder, a processor and a decoder to advance a flow on a sphere.

    python3 docs/examples/weather.py --level 5 --grid 181x360 --width 512 --heads 16

The shape is that of weather models on graphs (Lam et al. 2023; Lang et al.
2024): fields on a grid of latitudes and longitudes are encoded onto the points
of an icosphere, processed there over the edges of all its levels, and decoded
to the grid. All three are attention with edge features (where the other end
lies).

The weather is made: bumps that a zonal jet carries along, faster at the
equator than at the poles. Where they are one step later is known exactly.
skill is 1 - error / error of the forecast that nothing moves, on flows that
were not trained on: 0 is no forecast at all, 1 a perfect one.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

import training


# ---- points and edges -------------------------------------------------------

def icosahedron():
    """(12 points, 20 triangles): an antiprism of two rings and two poles."""
    z, r = 1 / math.sqrt(5), 2 / math.sqrt(5)
    turn = math.pi / 5
    upper = [(r * math.cos(2 * k * turn), r * math.sin(2 * k * turn), z)
             for k in range(5)]
    lower = [(r * math.cos((2 * k + 1) * turn),
              r * math.sin((2 * k + 1) * turn), -z) for k in range(5)]
    points = [(0, 0, 1), *upper, *lower, (0, 0, -1)]
    faces = []
    for k in range(5):
        a, b = 1 + k, 1 + (k + 1) % 5
        c, d = a + 5, b + 5
        faces += [(0, a, b), (a, c, b), (b, c, d), (11, d, c)]
    return torch.tensor(points), torch.tensor(faces)


def sides(faces):
    """[2, E] the sides of triangles, each once, smaller end first."""
    pairs = torch.cat([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    return pairs.sort(1).values.unique(dim=0).T


def icosphere(level):
    """(points [N, 3], edge_index of all levels, both ways)."""
    points, faces = icosahedron()
    edges = [sides(faces)]
    for _ in range(level):
        ends = edges[-1]
        number = {tuple(pair): len(points) + i
                  for i, pair in enumerate(ends.T.tolist())}
        points = torch.cat([points, F.normalize(
            points[ends[0]] + points[ends[1]], dim=1)])

        def middle(a, b):
            return number[min(a, b), max(a, b)]
        smaller = []
        for a, b, c in faces.tolist():
            ab, bc, ca = middle(a, b), middle(b, c), middle(c, a)
            smaller += [(a, ab, ca), (b, bc, ab), (c, ca, bc), (ab, bc, ca)]
        faces = torch.tensor(smaller)
        edges.append(sides(faces))
    edges = torch.cat(edges, 1)
    return points, torch.cat([edges, edges.flip(0)], 1)


def latitudes_and_longitudes(rows, columns):
    """[rows x columns, 3] points of a grid without the poles themselves."""
    latitude = (torch.arange(rows) + 0.5) / rows * math.pi - math.pi / 2
    longitude = torch.arange(columns) / columns * 2 * math.pi
    return on_sphere(latitude.repeat_interleave(columns),
                     longitude.repeat(rows))


def on_sphere(latitude, longitude):
    return torch.stack([latitude.cos() * longitude.cos(),
                        latitude.cos() * longitude.sin(), latitude.sin()], 1)


def nearest(points, others, count):
    """The edge_index to each of points from the count nearest of others."""
    near = torch.cat([(part @ others.T).topk(count).indices
                      for part in points.split(4096)])
    dst = torch.arange(len(points)).repeat_interleave(count)
    return torch.stack([near.flatten(), dst])


def edge_features(edges, sources, destinations):
    """[E, 4] where the source lies as the destination sees it (up, east,
    north), and how far away; each is scaled to a standard deviation of 1."""
    at = destinations[edges[1]]
    east = F.normalize(torch.stack(
        [-at[:, 1], at[:, 0], torch.zeros(len(at))], 1), dim=1)
    north = torch.linalg.cross(at, east)
    way = sources[edges[0]] - at
    features = torch.stack([(way * axis).sum(1) for axis in
                            (at, east, north)] + [way.norm(dim=1)], 1)
    return features / features.std(0).clamp(min=1e-6)


# ---- weather ----------------------------------------------------------------

def weather(points, count, generator, bumps=12, step=0.25):
    """(now, a step later) [count, N]: bumps that the jet carried along for
    some time, and for a step more."""
    latitude = points[:, 2].clamp(-1, 1).asin()
    longitude = torch.atan2(points[:, 1], points[:, 0])
    now, later = [], []
    for _ in range(count):
        centres = F.normalize(torch.randn(bumps, 3, generator=generator),
                              dim=1)
        heights = torch.randn(bumps, generator=generator)
        age = float(torch.rand((), generator=generator))
        for fields, time in ((now, age), (later, age + step)):
            # the air that is here now was in the west when bumps were round
            start = longitude - time * (0.5 + latitude.cos() ** 2)
            near = on_sphere(latitude, start) @ centres.T
            fields.append((heights * ((near - 1) / 0.06).exp()).sum(1))
    return torch.stack(now), torch.stack(later)


# ---- the model --------------------------------------------------------------

class Block(nn.Module):
    """Attention from sources to destinations, then a small network."""

    def __init__(self, layers, width, heads):
        super().__init__()
        self.norm_src, self.norm_dst = nn.LayerNorm(width), nn.LayerNorm(width)
        self.conv = layers.TransformerConv(width, width // heads, heads=heads,
                                           edge_dim=4)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width),
                                 nn.GELU(), nn.Linear(width, width))

    def forward(self, src, dst, edges, features):
        dst = dst + self.conv((self.norm_src(src), self.norm_dst(dst)), edges,
                              features)
        return dst + self.mlp(dst)


class Forecast(nn.Module):
    def __init__(self, layers, width, heads, depth):
        super().__init__()
        self.grid = nn.Linear(4, width)  # the field, and where it is
        self.mesh = nn.Linear(3, width)
        self.encode = Block(layers, width, heads)
        self.process = nn.ModuleList(Block(layers, width, heads)
                                     for _ in range(depth))
        self.decode = Block(layers, width, heads)
        self.out = nn.Linear(width, 1)

    def forward(self, field, earth):
        grid = self.grid(torch.cat([field.unsqueeze(1), earth["grid"]], 1))
        mesh = self.mesh(earth["mesh"])
        mesh = self.encode(grid, mesh, *earth["encode"])
        for block in self.process:
            mesh = block(mesh, mesh, *earth["process"])
        grid = self.decode(mesh, grid, *earth["decode"])
        return field + self.out(grid).squeeze(1)


def make_earth(options):
    """({points, and (edges, their features) of the three parts}, points of the
    grid)."""
    rows, columns = (int(n) for n in options.grid.split("x"))
    grid = latitudes_and_longitudes(rows, columns)
    mesh, between = icosphere(options.level)
    # each point of the grid sends to the two points of the mesh that are
    # nearest
    up = nearest(grid, mesh, 2).flip(0)
    down = nearest(grid, mesh, 3)
    device = options.device

    def part(edges, sources, destinations):
        features = edge_features(edges, sources, destinations).to(device)
        sizes = len(sources), len(destinations)
        edges = edges.to(device)
        if options.library == "dfgnn":
            import dfgnn
            edges = dfgnn.as_graph(edges, sizes)
        return edges, features
    return {"grid": grid.to(device), "mesh": mesh.to(device),
            "encode": part(up, grid, mesh),
            "process": part(between, mesh, mesh),
            "decode": part(down, mesh, grid)}, grid


def train(options):
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    device, cuda = options.device, options.device.startswith("cuda")
    earth, points = make_earth(options)
    now, later = weather(points, options.flows, generator)
    scale = now.std()
    now, later = (now / scale).to(device), (later / scale).to(device)
    tests = slice(0, 8)
    model = Forecast(training.layers(options.library), options.width,
                     options.heads, options.depth).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.rate,
                                 capturable=cuda)
    rates = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, options.rate, total_steps=options.steps + 1) \
        if not options.capture else None
    clock = training.Clock(device, parts=not options.capture)

    def step(field, wanted):
        optimizer.zero_grad()
        loss = clock.lap("forward_ms", lambda: F.mse_loss(
            model(field, earth), wanted))
        clock.lap("backward_ms", loss.backward)
        clock.lap("optimizer_ms", optimizer.step)
        return loss

    captured = None
    if options.capture:
        step, captured = training.capture(step, options.library, device)

    @torch.no_grad()
    def skill():
        errors = [F.mse_loss(model(a, earth), b)
                  for a, b in zip(now[tests], later[tests])]
        still = F.mse_loss(now[tests], later[tests])
        return 1 - math.sqrt(float(sum(errors)) / len(errors) / float(still))
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    clock.mark(skill())
    for number in range(options.steps):
        flow = 8 + number % (options.flows - 8)
        clock.epoch(lambda: step(now[flow], later[flow]))
        if rates is not None:
            rates.step()
        if number % max(1, options.steps // 20) == 0:
            clock.mark(skill())
    clock.mark(skill())
    times = clock.medians()
    edges = {name: earth[name][1].size(0) for name in ("encode", "process",
                                                       "decode")}
    return {"grid": len(points), "mesh": earth["mesh"].size(0),
            "edges": sum(edges.values()),
            "captured": captured is not None and captured(),
            "skill": clock.curve[-1][1] / 100, **times,
            "peak_MiB": training.peak_mib(device),
            "graph_MiB": sum(training.graph_mib(earth[name][0])
                             for name in edges), "curve": clock.curve}


if __name__ == "__main__":
    parser = training.arguments(
        __doc__, level=4, grid="91x180", flows=72, steps=400, width=128,
        heads=8, depth=4, rate=1e-3, seed=1, capture=False)
    training.main(parser.parse_args(), train)
