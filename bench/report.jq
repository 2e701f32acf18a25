# report.jq - makes the tables of docs/performance.md from the figures of
# bench/results; bench/report.sh gives it each file as $name and prints each table.

def graphs: ["cora", "citeseer", "pubmed", "pattern", "cluster", "mnist",
  "cifar10", "voc", "coco", "arxiv", "ppa", "proteins", "reddit_comm",
  "reddit_rand"];
def classes: [
  {name: "batches", graphs: graphs[3:9]},
  {name: "small full graphs", graphs: graphs[0:3]},
  {name: "super nodes", graphs: graphs[9:]}];
def operators: ["gt", "gat", "agnn", "gatv2"];

def digits($n): . as $x | if $x == 0 then 0 else
  pow(10; $n - 1 - ($x | fabs | log10 | floor)) as $unit
  | ($x * $unit | round) / $unit end;
def time: if . == null then "-" elif . < 1 then "\(. * 1000 | digits(3)) µs"
  else "\(digits(3)) ms" end;
def ns: if . < 1000 then "\(digits(3)) ns" else "\(. / 1000 | digits(3)) µs" end;
def percent: if . == null then "-" else "\(. * 100 | round) %" end;
def figure: if . == null then "-" else (. * 100 | round) as $x
  | "\($x / 100 | floor).\($x % 100 + 100 | tostring[1:])" end;
def mean: if length == 0 then null else (map(log) | add / length | exp) end;
def row: "| \(join(" | ")) |";
def table($head): ($head | row), ($head | map("---") | row), .[];
def lines: [.] | join("\n");
def markdown($head): [table($head)] | join("\n");
def short: sub("^[a-z]+\\.(attention|spmm|reduce)\\.[fb]wd\\."; "")
  | gsub(",(heads=grid|norm=row|order=natural)"; "");

def short_type: {bfloat16: "bf16", float16: "f16", float32: "f32"}[.];
def has_role($role): .role | split(",") | index($role);
def of($rows; $graph; $op; $role):
  first(($rows[] | select(.graph == $graph and .op == $op and has_role($role))),
    null);
def ms($rows; $graph; $op; $role): of($rows; $graph; $op; $role) | .median_ms;
def ratio($a; $b): if $a == null or $b == null then null else $a / $b end;

# the least time of the other implementations in f32
def peer($graph; $op; $pass; $heads; $dim):
  [$peers[] | select(.graph == $graph and .op == $op and .pass == $pass and
    .heads == $heads and .dim == $dim and .dtype == "f32") | .ms] | min;
def peer($graph; $op; $heads; $dim):
  peer($graph; $op; "forward"; $heads; $dim);
def peer_of($graph; $name): first(($peers[] | select(.graph == $graph and
  .op == "gt" and .pass == "forward" and .heads == 1 and .dim == 128 and
  .peer == $name) | .ms), null);
def goal($graph; $op; $pass): first(($goals[] | select(.graph == $graph and
  .op == $op and .pass == $pass) | .ms), null);
def goal($graph; $op): goal($graph; $op; "forward");

def preset_table($op): [graphs[] as $g | of($f32; $g; $op; "tuned") as $t
  | select($t) | $t.median_ms as $ms
  | [$g, ($ms | time), (goal($g; $op) | time), ($t.floor_share | percent),
     ($t.gather_share | percent)] +
    [("rule", "paper", "smmf-pmf", "unfused") as $role
     | ratio(ms($f32; $g; $op; $role); $ms) | figure] +
    [ratio(peer($g; $op; 1; 128); $ms) | figure] + ["`\($t.variant | short)`"]
  | row] | markdown(["graph", "tuned", "goal", "floor", "gather", "rule",
    "paper", "smmf, pmf", "unfused", "best f32 peer", "tuned variant"]);

# tables of the backward pass; memory is that beside inputs, outputs and gradients
def bytes: if . == null then "-" elif . < 1048576 then "\(. / 1024 | digits(3)) KB"
  else "\(. / 1048576 | digits(3)) MB" end;
def backward_table($op): [graphs[] as $g | of($backward; $g; $op; "tuned") as $t
  | select($t) | $t.median_ms as $ms | ms($f32; $g; $op; "tuned") as $forward
  | [$g, ($ms | time), (goal($g; $op; "backward") | time),
     (ratio(peer($g; $op; "backward"; 1; 128); $ms) | figure),
     (ratio(ms($backward; $g; $op; "rule"); $ms) | figure),
     (ratio($ms; $forward) | figure), ($t.floor_share | percent),
     ($t.workspace_bytes | bytes), ($t.saved_bytes | bytes),
     "`\($t.variant | short)`"] | row]
  | markdown(["graph", "tuned", "goal", "best f32 peer", "rule", "over forward",
    "floor", "workspace", "saved", "tuned variant"]);

# tables of SpMM and reductions, compared with the peer that does the same
def gather_table($op; $peer): [graphs[] as $g | of($gather; $g; $op; "tuned") as $t
  | select($t) | $t.median_ms as $ms
  | [$g, ($ms | time)] +
    (if $peer then [(goal($g; $op) | time),
      (ratio(peer($g; $op; 1; 128); $ms) | figure)] else
      [(ratio($ms; ms($gather; $g; "reduce-max"; "tuned")) | figure)] end) +
    [(ratio(ms($gather; $g; $op; "rule"); $ms) | figure),
     ($t.floor_share | percent), ($t.gather_share | percent),
     "`\($t.variant | short)`"] | row]
  | markdown(["graph", "tuned"] +
    (if $peer then ["goal", $peer] else ["over reduce-max"] end) +
    ["rule", "floor", "gather", "tuned variant"]);
def gather_means: [("spmm-sum", "reduce-max") as $op
  | [graphs[] as $g | ratio(peer($g; $op; 1; 128);
      ms($gather; $g; $op; "tuned")) | values] as $all
  | [$op, ($all | length | tostring), ($all | mean | figure),
     ($all | min | figure), ($all | max | figure)] | row]
  | markdown(["operator", "graphs", "geometric mean", "least", "most"]);

def class_table: [operators[] as $op | classes[] as $c
  | [$op, $c.name] +
    [("unfused", "smmf-pmf", "paper", "rule") as $role | [$c.graphs[] as $g
      | ratio(ms($f32; $g; $op; $role); ms($f32; $g; $op; "tuned")) | values]
      | mean | figure] +
    [[$c.graphs[] as $g | ratio(peer($g; $op; 1; 128);
      ms($f32; $g; $op; "tuned")) | values] | mean | figure] +
    [("unfused", "PyG") as $name | if $op == "gt" then
      ([$c.graphs[] as $g | ratio(peer_of($g; $name);
        ms($f32; $g; $op; "tuned")) | values] | mean | figure) else "-" end]
  | row] | markdown(["operator", "class", "over unfused", "over smmf, pmf",
    "over the paper’s rule", "over our rule", "over the best f32 peer",
    "over their unfused", "over PyG"]);

# What the tuned choice is over others in the rows of the last campaign's commit, which
# are most of a file, and in those of the same device code: geometric mean and least.
def problem: [.graph, .op, .pass, .heads, .dim, .edge_dim, .message];
def campaign_cell($rows; $role): [$rows | group_by(problem)[]
    | ratio((map(select(has_role($role)))[0] // {}).median_ms;
        (map(select(has_role("tuned")))[0] // {}).median_ms) | values]
  | if length > 0 then "\(mean | figure) (\(min | figure))" else "" end;
def campaign_table: [(["four attentions, 1 x 128, f32", $f32],
    ["GT and GAT, 8 x 16, f32", $eight],
    ["GT and GAT, 1 x 128, bf16", $bf16],
    ["GT and GATv2, 4 x 32 and 8 x 32, f32, both passes", $heads_f32],
    ["GT and GATv2, 16 x 32, f16, both passes", $heads_f16],
    ["GT and GATv2 with 11 edge features, 4 x 32, f32, both passes", $edges_f32],
    ["GT and GATv2 with 11 edge features, 16 x 32, f16, both passes", $edges_f16],
    ["four attentions, 1 x 128, f32, backward", $backward],
    ["sums and reductions of 128, f32", $gather],
    ["sums and reductions of messages of 64, f32, both passes", $messages])
    as [$name, $all]
  | ($all | group_by(.commit) | max_by(length) // []) as $last
  | ($last | map([.code, .digest]) | unique) as $codes
  | [$all[] | select(.commit == $last[0].commit or
      (.digest and ([.code, .digest] | IN($codes[]))))] as $rows
  | select($rows | length > 0)
  | [$name, ($rows | map(.graph) | unique | length | tostring),
     ($rows | map(problem) | unique | length | tostring)]
    + [("rule", "paper", "smmf-pmf", "unfused") as $role
       | if $role == "rule" or any($rows[]; has_role("paper"))
         then campaign_cell($rows; $role) else "" end] | row]
  | markdown(["figures", "graphs", "problems", "rule", "paper’s rule",
    "better of smmf and pmf", "unfused"]);
def baseline_table: [graphs[] as $g
  | ms($f32; $g; "gt"; "unfused") as $u | ms($f32; $g; "gt"; "smmf-pmf") as $s
  | peer_of($g; "unfused") as $pu | peer_of($g; "DF-GNN") as $pd
  | [$g, ($u | time), ($pu | time), (ratio($u; $pu) | figure), ($s | time),
     ($pd | time), (ratio($s; $pd) | figure)] | row]
  | markdown(["graph", "our unfused", "theirs", "ratio", "our smmf, pmf",
    "DF-GNN", "ratio"]);

def missed_table: [graphs[] as $g | operators[] as $op
  | ms($f32; $g; $op; "tuned") as $ms | goal($g; $op) as $goal
  | select($ms > $goal) | {ratio: ($ms / $goal),
    row: [$g, $op, ($ms | time), ($goal | time), ($ms / $goal | figure)]}]
  | sort_by(-.ratio) | map(.row | row)
  | markdown(["graph", "operator", "tuned", "goal", "ratio"]);

# the cases where a baseline or a peer is faster than the tuned choice, beyond noise
def slower: [([$f32, $eight, $bf16][] as $rows | $rows[0] as $any
  | graphs[] as $g | operators[] as $op
  | of($rows; $g; $op; "tuned") as $t | select($t)
  | (("rule", "paper", "smmf-pmf", "unfused") as $role
     | {name: $role, ms: ms($rows; $g; $op; $role)}),
    (select($any.dtype == "f32") | {name: "the best f32 peer",
      ms: peer($g; $op; $any.heads; $any.dim)})
  | select(.ms != null and .ms < $t.median_ms * 0.98)
  | [$g, "\($op) \($any.dtype) \($any.heads)x\($any.dim)", .name,
     ($t.median_ms / .ms | figure), $t.source] | row)]
  | markdown(["graph", "problem", "faster", "tuned is slower by", "its source"]);

def against($rows; $other; $name): [graphs[] as $g
  | ["gt", "gat"] as $ops
  | [$g] + [$ops[] as $op | ms($f32; $g; $op; "tuned") as $one
    | ms($rows; $g; $op; "tuned") as $ms
    | ($one | time), ($ms | time), (ratio($ms; $one) | figure)] | row]
  | markdown(["graph", "gt f32 1x128", "gt \($name)", "ratio", "gat f32 1x128",
    "gat \($name)", "ratio"]);
def eight_peer_table: [graphs[] as $g | peer($g; "gt"; 8; 16) as $p
  | select($p) | ms($eight; $g; "gt"; "tuned") as $ms
  | [$g, ($ms | time), ($p | time), ($p / $ms | figure)] | row]
  | markdown(["graph", "gt 8x16", "best peer", "faster by"]);

def regret_rows($name; $rows): [$rows[] | select(.dim)] as $all
  | select($all != [])
  | (([$all[].dim] | unique[]), null) as $dim
  | [$all[] | select($dim == null or .dim == $dim)]
  | [$name, ($dim // "all"), ([.[].graph] | unique | length)] +
    [("exact", "left_out", "rule", "paper") as $k
     | [.[]["\($k)_regret"] | values] | "\(mean | figure) (\(max | figure))"] +
    [([.[].spread] | mean | figure), ([.[].candidates] | max)] | map(tostring)
  | row;
# regret on graphs that neither store nor model knows, by kind of problem; a choice is worse
# than the rule's if it takes 1.05 times as long
def unseen_row($name): . as $all
  | [$name, length] + [("left_out", "model", "race", "rule", "paper") as $k
      | [.[]["\($k)_regret"] | values] | if . == [] then "-"
        else "\(mean | figure) (\(max | figure))" end]
    + ([.[] | select(.left_out_regret and .rule_regret)
        | .left_out_regret / .rule_regret] | [(map(select(. > 1.05)) | length),
          (max | figure)]) | map(tostring) | row;
def unseen_table: [$regret_unseen[] | select(.dim)] as $all
  | [($all | group_by([.op, .heads, .dim, .dtype, .edge_dim])[]
      | . as $rows | .[0] | "\(.op | ascii_upcase) \(.heads) x \(.dim) \(.dtype)\(
        if (.edge_dim // 0) > 0 then ", features of edges" else "" end)" as $name
      | $rows | unseen_row($name)),
    ($all | group_by(.graph)[] | unseen_row(.[0].graph | sub(":.*"; ""))),
    ($all | select(length > 0) | unseen_row("all"))]
  | markdown(["problems, graphs", "number", "choice", "model", "race", "rule",
    "paper’s rule", "worse than the rule", "most"]);
def regret_table: [regret_rows("H200"; $regret),
    regret_rows("H200, spmm-sum and reduce-max"; $regret_gather),
    regret_rows("CPU, 2 threads"; $regret_cpu)]
  | markdown(["device", "width", "graphs", "exact", "leave one out", "rule",
    "paper’s rule", "spread", "candidates"]);

def ablation_table: [["cora", $ablation_cora], ["pattern", $ablation_pattern],
    ["arxiv", $ablation_arxiv]] as $all
  | [("smmf", "pmf") as $kernel
  | [$all[0][1][] | select(.variant | contains(".\($kernel)/")) | .variant]
  | sort[] as $v | ["`\($v | short)`"] +
    [$all[] | .[1] as $rows
     | ($rows | map(select(.variant == $v))[0].median_ms) as $ms
     | ([$rows[] | select((.variant | contains(".\($kernel)/")) and
         (.variant | endswith("balance=row,vec=1,softmax=redundant")))
         | .median_ms] | max) as $plain
     | "\($ms | time) (\($plain / $ms | figure))"] | row]
  | markdown(["kernel"] + [$all[][0]]);

# each optimisation of the paper left out, and all of them; of smmf with rows=8
def optimisation_bars: [("smmf", "pmf") as $kernel
  | ({balance: "row", vec: "wide", softmax: "once", name: "unbalanced"},
     {balance: "edge", vec: "1", softmax: "once", name: "scalar"},
     {balance: "edge", vec: "wide", softmax: "redundant",
      name: "redundant"},
     {balance: "edge", vec: "wide", softmax: "once", name: "all"}) as $one
  | ["\($kernel):\($one.name)"] +
    [($ablation_cora, $ablation_pattern, $ablation_arxiv) as $rows
     | [$rows[] | select((.variant | contains(".\($kernel)/")) and
         (.variant | contains("rows=8,") or $kernel == "pmf"))] as $rows
     | ($rows[] | select(.variant | endswith(
         "balance=row,vec=1,softmax=redundant")) | .median_ms) as $plain
     | ($rows[] | select(.variant | endswith(
         "balance=\($one.balance),vec=\($one.vec),softmax=\($one.softmax)"))
        | $plain / .median_ms)] | map(tostring) | join(" ")] | join("\n");

def width_table: [["cora", $widths_cora], ["pubmed", $widths_pubmed],
    ["pattern", $widths_pattern], ["arxiv", $widths_arxiv]][] as $one
  | [$one[1][].dim] | unique[] as $d
  | [$one[1][] | select(.dim == $d)] as $rows
  | ms($rows; $one[0]; "gt"; "tuned") as $ms
  | [$one[0], ($d | tostring), ($ms | time)] +
    [("rule", "paper", "smmf-pmf", "unfused") as $role
     | ratio(ms($rows; $one[0]; "gt"; $role); $ms) | figure] | row;

def sixty_four_table: [["cora", $widths_cora], ["pattern", $widths_pattern],
    ["arxiv", $widths_arxiv]] | [.[] as $one
  | [$one[1][] | select(.dim == 64)] as $rows
  | ms($rows; $one[0]; "gt"; "tuned") as $ms | peer($one[0]; "gt"; 1; 64) as $p
  | [$one[0], ($ms | time), ($p | time), (ratio($p; $ms) | figure)] | row]
  | markdown(["graph", "gt 1x64", "best f32 peer", "faster by"]);

def batch_table: [[$batches[].graph] | unique
  | sort_by(capture("batch=(?<n>[0-9]+)").n | tonumber)[] as $g
  | ms($batches; $g; "gt"; "tuned") as $ms
  | [($g | capture("batch=(?<n>[0-9]+)").n), ($ms | time)] +
    [("rule", "paper", "smmf-pmf", "unfused") as $role
     | ratio(ms($batches; $g; "gt"; $role); $ms) | figure] | row]
  | markdown(["graphs", "tuned", "rule", "paper", "smmf, pmf", "unfused"]);

def dispatch_table: [($dispatch + $dispatch_cpu)[]
  | [.device, .graph, .op, .source, (.cached_plan_ns | ns), (.new_plan_ns | ns),
     (.new_graph_ns | ns), (.execute_ns | ns)] | row]
  | markdown(["device", "graph", "operator", "source", "cached plan",
    "new plan", "new graph", "execute"]);

def cost_table: [$cost[] | [.graph, (.candidates | tostring),
    "\(.exhaustive_s | digits(3)) s", "\(.tuned_s | digits(3)) s",
    (.share | percent), (.regret | figure)] | row]
  | markdown(["graph", "candidates", "exhaustive", "tuned", "share", "regret"]);

def torch_table: [[$torch[] | select(has_role("tuned"))][]
  | . as $t | [$torch[] | select(.graph == $t.graph)] as $rows
  | [$t.graph, ($t.torch_ms | time), ($t.median_ms | time),
     ($t.torch_ms / $t.median_ms | figure)] +
    [("smmf-pmf", "unfused") as $role
     | ratio(ms($rows; $t.graph; "gt"; $role); $t.median_ms) | figure] +
    [($t.gather_share | percent)] | row]
  | markdown(["graph", "torch", "tuned", "faster by", "smmf, pmf", "unfused",
    "gather"]);

def cpu_table: [[$cpu[].graph] | unique[] as $g | of($cpu; $g; "gt"; "tuned")
    | {source, ms: .median_ms} + ([("unfused", "smmf-pmf", "rule", "paper")
      as $role | {($role): ratio(ms($cpu; $g; "gt"; $role); .median_ms)}]
      | add)] as $all
  | [({name: "measured on the graph", of: ["exact"]},
      {name: "near graphs or the rule", of: ["nearest", "similar", "rule"]})
     as $part | [$all[] | select(.source | IN($part.of[]))]
     | select(length > 0) | . as $rows
     | [$part.name, (length | tostring)] +
       [("unfused", "smmf-pmf", "rule", "paper") as $role
        | [$rows[][$role] | values]
        | "\(mean | figure) (\(min | figure))"] | row]
  | markdown(["chosen by", "graphs", "unfused", "smmf, pmf", "rule", "paper"]);

def headline: [graphs[] as $g | ms($f32; $g; "gt"; "tuned") as $t
  | ms($f32; $g; "gat"; "tuned") as $a
  | [$g, ($t | time), (ratio(ms($f32; $g; "gt"; "unfused"); $t) | figure),
     (ratio(peer($g; "gt"; 1; 128); $t) | figure), ($a | time),
     (ratio(ms($f32; $g; "gat"; "unfused"); $a) | figure)] | row]
  | markdown(["graph", "GT", "over unfused", "over the best f32 peer", "GAT",
    "over unfused"]);

# GT where tensor cores may serve, and the gain over the best of the other variants
# that were timed beside them
def tensor_row($g; $dtype; $math; $pass):
  [$tensor[] | select(.graph == $g and .op == "gt" and .dtype == $dtype and
    .math == $math and .pass == $pass and .status == "ok")] as $rows
  | ($rows | map(select(.variant | test("\\.(dense|window)/"))) | min_by(.median_ms)) as $best
  | ($rows | map(select(.variant | test("\\.(dense|window)/") | not))
    | min_by(.median_ms)) as $other
  | select($best) | [$g, $pass, $dtype, $math, ($best.median_ms | time),
     (first(($goals_tensor[] | select(.graph == $g and .dtype == $dtype and
       .math == $math and .pass == $pass) | .ms), null) | time),
     ($other.median_ms | time), (ratio($other.median_ms; $best.median_ms) | figure),
     ($best.floor_share | percent), "`\($best.variant | short)`"] | row;
def tensor_table: [graphs[] as $g | ("forward", "backward") as $pass
  | (["f32", "f32"], ["f32", "tf32"], ["bf16", "f32"]) as $type
  | tensor_row($g; $type[0]; $type[1]; $pass)]
  | markdown(["graph", "pass", "storage", "math", "best of dense and window", "goal",
    "best other", "faster by", "floor", "variant"]);

# the goals for several heads, and the best variant of each pass, or the sum of both
def best_of($g; $pass): first((($heads_weather + $heads_more + $heads_f16), $heads)
  | [.[] | select(.graph == $g.graph and .op == $g.op and .heads == $g.heads and
      .dim == $g.dim and .dtype == $g.dtype and .pass == $pass)]
  | select(length > 0) | min_by(.median_ms)) // null;
def prototype($g; $pass): first(($peers[] | select(.peer == "prototype" and
  .graph == $g.graph and .op == $g.op and .pass == $pass and
  .heads == $g.heads and .dim == $g.dim and .dtype == $g.dtype) | .ms), null);
def sum_of($parts): if $parts | any(. == null) then null else $parts | add end;
def heads_table: [$goals_heads[] as $g
  | (if $g.pass == "both" then ["forward", "backward"] else [$g.pass] end) as $passes
  | [$passes[] as $pass | best_of($g; $pass)] as $best
  | sum_of([$best[].median_ms]) as $ms
  | [$g.graph, ($g.op | ascii_upcase), "\($g.heads) x \($g.dim) \($g.dtype)",
     $g.pass, ($ms | time), ($g.ms | time),
     (if $ms == null then "-" elif $ms <= $g.ms then "yes" else "no" end),
     (sum_of([$passes[] as $pass | prototype($g; $pass)]) | time),
     ([$best[] | select(.) | "`\(.variant | short)`"] | join(" "))] | row]
  | markdown(["graph", "op", "shape", "pass", "ms", "goal", "reached",
    "prototype", "variants"]);

# the table of attention with edge features
def edges_of($g; $pass): [$edge_features[] | select(.graph == $g.graph and
  .heads == $g.heads and .dim == $g.dim and .edge_dim == $g.edge_dim and
  .dtype == $g.dtype and .pass == $pass)] | min_by(.median_ms);
def edges_table: [$goals_edges[] as $g
  | edges_of($g; "forward") as $f | edges_of($g; "backward") as $b
  | sum_of([$f.median_ms, $b.median_ms]) as $ms | select($ms)
  | [$g.graph, "\($g.heads) x \($g.dim) \($g.dtype)", ($f.median_ms | time),
     ($b.median_ms | time), ($ms | time), ($g.ms | time),
     (if $ms <= $g.ms then "yes" else "no" end), ($g.anemoi | time),
     (ratio($g.anemoi; $ms) | figure)] | row]
  | markdown(["graph", "shape", "forward", "backward", "both", "goal", "reached",
    "anemoi", "faster by"]);

# the GPU that a row was measured on: H100, H200
def gpu: .device // "-" | sub("NVIDIA "; "") | split(" ")[0];
# where the host binds, or others are as fast: a step of ours beside the best of PyG
def near_row($what; $gpu; $own; $pyg): select($own and $pyg)
  | [$what, $gpu, ($own | time), ($pyg | time), ($own / $pyg | figure)] | row;
def near_table: [($steps[] | select(.model == "cora_transformer")
    | near_row("cora, 2 x TransformerConv"; gpu; .dfgnn_eager_ms;
        [.pyg_eager_ms, .pyg_compiled_ms | values] | min)),
    ($python_minibatch[] | select(.given == "edge_index")
      | near_row("sampled blocks as an edge_index, \(.layer)"; gpu; .dfgnn_ms; .pyg_ms)),
    ($accelerate[] | select(.model | IN("gin", "gps"))
      | near_row("\(.model) on new graphs"; "H100"; .dfgnn_ms; .pyg_ms)),
    ($forces[] | near_row("forces of \(.atoms) atoms"; "H200"; .dfgnn.ms; .pyg.ms)),
    ($mlp_models | group_by([.model, .dtype])[]
      | near_row("\(.[0].model), \(.[0].dtype | short_type)"; "H100";
          (map(select(.way == "dfgnn"))[0] // {}).step_ms;
          (map(select(.way == "compiled"))[0] // {}).step_ms)),
    ($python_messages[] | select(.name == "gine" and .fields == 64 and .edges > 100000)
      | near_row("GINE, 64 features an edge, \(.dtype | sub("torch."; "") | short_type), both passes";
          "H100"; .both_dfgnn; .both_pyg))]
  | markdown(["step", "GPU", "dfgnn", "PyG", "dfgnn over PyG"]);

# the table of training steps over sampled blocks
def minibatch_table: [("GATConv", "SAGEConv", "TransformerConv") as $layer
  | [$python_minibatch[] | select(.layer == $layer)] as $rows
  | select($rows | length > 0)
  | [$layer, ($rows[0].pyg_ms | time)]
    + [("edge_index", "trusted", "known", "captured") as $given
       | first(($rows[] | select(.given == $given)), null) | .dfgnn_ms | time]
    + [("edge_index", "captured") as $given
       | first(($rows[] | select(.given == $given)), null) | .speedup | figure]
    | row]
  | markdown(["layer", "PyG", "dfgnn, an edge_index", "a trusted sorted list",
    "known graphs", "captured with room", "PyG over an edge_index",
    "over captured"]);

# the cost of bias and dropout
def mode_ms($k; $pass; $mode): first(($modes[] | select(.graph == $k.graph and
  .op == $k.op and .heads == $k.heads and .dim == $k.dim and .pass == $pass and
  (.mode // (if has_role("tuned") | not then "" elif .dropout then "dropout"
    elif .bias then "bias" else "plain" end)) == $mode) | .median_ms), null);
def both_ms($k; $mode):
  sum_of([mode_ms($k; "forward"; $mode), mode_ms($k; "backward"; $mode)]);
def modes_table: [("gt", "gat") as $op | ([1, 128], [8, 16]) as $shape
  | ("mnist", "pattern", "arxiv", "voc") as $graph
  | {$op, $graph, heads: $shape[0], dim: $shape[1]} as $k
  | mode_ms($k; "forward"; "plain") as $forward | both_ms($k; "plain") as $both
  | [($op | ascii_upcase), "\($k.heads) x \($k.dim)", $graph, ($forward | time),
     (ratio(mode_ms($k; "forward"; "dropout"); $forward) | figure),
     (ratio(mode_ms($k; "forward"; "bias"); $forward) | figure), ($both | time),
     (ratio(both_ms($k; "dropout"); $both) | figure),
     (ratio(both_ms($k; "bias"); $both) | figure)] | row]
  | markdown(["op", "shape", "graph", "forward", "dropout", "bias", "both passes",
    "dropout", "bias"]);

# tables of the layers of the PyTorch package compared with PyG's
def layers: ["TransformerConv", "GATConv", "GATv2Conv", "AGNNConv", "GCNConv",
  "SAGEConv", "SAGEConv-max", "GINConv", "PNA"];
def layer($g; $l; $library): first(($python[] | select(.graph == $g and
  .layer == $l and .library == $library)), null);
def layer_cell($g; $l; $key): layer($g; $l; "dfgnn") as $o
  | if $o == null or $o.status != "ok" then "-"
    elif $o[$key] then ($o[$key] | figure)
    else layer($g; $l; "pyg").status end;
def layer_table($key): [graphs[] as $g | select($g != "reddit_rand")
  | [$g] + [layers[] as $l | layer_cell($g; $l; $key)] | row]
  | markdown(["graph"] + layers);
# geometric means of how many times as fast and as small, and on how many graphs PyG's
# layer does not fit
def layer_means: [layers[] as $l
  | [graphs[] as $g | {$g, o: layer($g; $l; "dfgnn")} | select(.o.status == "ok")] as $all
  | [$l] + [classes[] as $c | [$all[] | select(.g | IN($c.graphs[])) | .o.speedup | values]
      | mean | figure]
    + [([$all[].o.memory_ratio | values] | mean | figure),
       ([$all[] | select(.o.speedup | not)] | length | tostring)] | row]
  | markdown(["layer", (classes[].name), "memory", "PyG out of memory on"]);
def accelerate_table: [$accelerate[] | [.model, (.pyg_ms | time), (.dfgnn_ms | time),
    (.speedup | figure), (.pyg_bytes / .dfgnn_bytes | figure)] | row]
  | markdown(["model", "PyG", "accelerated", "times as fast", "memory"]);
# the best of `block` beside the best of split and of the families of whole rows
def block_least($rows; $family): [$rows[] | select(.variant
  | test("\\.(\($family))/")) | .median_ms] | min;
def block_cells($g; $is): [[$block[] | select(.graph == $g and (.variant | contains($is)))]
    | group_by([.op, .dtype, .heads, .dim])[] | . as $rows
    | {block: block_least($rows; "block"), split: block_least($rows; "split"),
       other: block_least($rows; "split|row|balanced|online")} | select(.block)] as $all
  | ("split", "other") as $of | [$all[] | .[$of] / .block]
  | if length > 0 then "\(mean | figure) (\(min | figure))" else "-" end;
def block_table: [([$block[].graph] | unique[]) as $g
  | [$g, block_cells($g; "spmm"), block_cells($g; "attention")]
  | select(.[1:] | any(. != "-")) | row]
  | markdown(["graph", "sums: split over block", "best other over block",
    "attention: split over block", "best other over block"]);
# how sums compare with the best algorithm of cuSPARSE
def spmm_means: [("spmm-sum", "spmm-weighted") as $op | ("f32", "bf16") as $type
  | ([$spmm[].dim] | unique[]) as $dim
  | [$spmm[] | select(.op == $op and .dtype == $type and .dim == $dim)] as $rows
  | select($rows | length > 0) | ($rows | min_by(.times)) as $least
  | [$op, $type, ($dim | tostring), ($rows | length | tostring),
     ([$rows[].times] | mean | figure), "\($least.times | figure) (\($least.graph))",
     ([$rows[].times] | max | figure)] | row]
  | markdown(["operator", "type", "width", "graphs", "geometric mean", "least", "most"]);
# the table of whole training steps: median ms of each way
def step_names: {"cora_gat": "cora, GAT 8x8 + 1x7, dropout .6",
  "cora_transformer": "cora, 2 x TransformerConv 8x8",
  "mnist_transformer": "mnist x 1024, 4 x TransformerConv 8x8",
  "pattern_transformer": "pattern x 1024, 4 x TransformerConv 8x8",
  "arxiv_gat": "arxiv, GAT 8x32 + 1x40, dropout .3",
  "arxiv_transformer": "arxiv, 3 x TransformerConv 8x16"};
def step_name: step_names[.model];
def pyg_best: [.pyg_eager_ms, .pyg_compiled_ms, .pyg_overhead_ms,
  .pyg_captured_ms | values] | min;
def step_table($ways): [$steps[] | . as $r
  | [step_name] + [$ways[] | $r["pyg_\(.)_ms"] | time]
    + [$ways[] | $r["dfgnn_\(.)_ms"] | time]
    + [ratio(pyg_best; .dfgnn_captured_ms) | figure] | row]
  | markdown(["model", ($ways[] | "PyG \(.)"), ($ways[] | "dfgnn \(.)"),
    "captured over the best of PyG"]);
def gigabytes: if . == null then "-" else "\(. / 1e9 | digits(2)) GB" end;
# how long the first step takes, which compiles, and the memory of steps
def first_table($ways): [$steps[] | . as $r
  | select([$ways[] | $r["pyg_\(.)_first_s"], $r["dfgnn_\(.)_first_s"]
    | values] | length > 0)
  | [step_name] + [("pyg", "dfgnn") as $library | $ways[]
     | $r["\($library)_\(.)_first_s"]
     | if . == null then "-" else "\(digits(2)) s" end]
    + [("pyg", "dfgnn") as $library | ("eager", "compiled") as $way
       | $r["\($library)_\($way)_bytes"] | gigabytes] | row]
  | markdown(["model", ("PyG", "dfgnn") as $library | $ways[]
    | "\($library) \(.)"] + ["memory of PyG eager", "PyG compiled",
    "dfgnn eager", "dfgnn compiled"]);
# the README's: what a user would pick instead is the better of eager and compiled
def step_short: [$steps[]
  | ([.pyg_eager_ms, .pyg_compiled_ms | values] | min) as $pyg
  | [step_name, (.pyg_eager_ms | time), (.pyg_compiled_ms | time),
     (.dfgnn_eager_ms | time), (ratio($pyg; .dfgnn_eager_ms) | figure),
     (.dfgnn_captured_ms | time), (ratio($pyg; .dfgnn_captured_ms) | figure),
     (.pyg_compiled_bytes | gigabytes),
     (.dfgnn_eager_bytes // .dfgnn_bytes | gigabytes)] | row]
  | markdown(["model", "PyG", "PyG compiled", "dfgnn", "faster by",
    "dfgnn captured", "faster by", "memory of PyG compiled", "of dfgnn"]);
# the table of the examples: [name, rows, key of the score]
def example_table: [(["cora, GAT", $cora_captured, "accuracy"],
    ["pattern, 1024 graphs", $pattern, "accuracy"],
    ["pattern, 1024 graphs", $pattern_captured, "accuracy"],
    ["sampled neighbours", $minibatch, "accuracy"],
    ["flow on a sphere", $weather, "skill"]) as [$name, $rows, $goal]
  | $rows[] | [$name + (if .model and $name != "cora, GAT" then ", \(.model)"
      else "" end), (first($rows[] | select(.device)) | gpu),
     .library + (if .captured then ", captured" else "" end),
     (.step_ms // .epoch_ms | time), (.[$goal] | figure),
     (if .seconds_to_80 then "\(.seconds_to_80 | digits(3)) s" else "-" end),
     "\(.peak_MiB | digits(3)) MB", (.speedup | figure)] | row]
  | markdown(["example", "GPU", "layers", "epoch or step", "accuracy or skill",
    "to 80 %", "peak memory", "faster by"]);
def epoch_table: [($cora_gat, $cora_transformer, $pattern)[]
  | [(if .graphs then "pattern, \(.graphs) graphs, width \(.width)"
      else "cora, \(.model)" end), gpu, .library, (.preprocess_ms | time),
     (.forward_ms | time), (.backward_ms | time), (.epoch_ms | time),
     "\(.peak_MiB | digits(3)) MB", (.accuracy | figure), (.speedup | figure)]
  | row] | markdown(["example", "GPU", "layers", "preprocess", "forward", "backward",
    "epoch", "peak memory", "accuracy", "faster by"]);
def overhead_table: [$overhead[] | [(.execute_us, .forward_us, .forward_over_us,
    .both_us, .autograd_us) | "\(digits(3)) µs"] | row]
  | markdown(["dfgnn_execute", "forward", "over the call",
    "forward and backward", "of which torch, for a function that does nothing"]);

# layers whose messages have features of the edge, on graphs of arxiv's size and larger
def message_names: {"gine": "GINE", "gine given": "GINE", "gated": "ResGated"};
def two_digits: if . == null then "-" else figure end;
def python_messages_table: [$python_messages[]
  | select(.edges > 100000 and message_names[.name] and (.dtype != "torch.float16"
      or .dim > 128))
  | [message_names[.name] + (if .name == "gine given" then ", e given"
      elif .fields then ", F \(.fields)" else "" end)
      + (if .dim > 128 then ", \(.dim) features" else "" end),
     (.dtype | sub("torch."; "") | short_type), (.fwd_pyg | two_digits),
     (.fwd_dfgnn | two_digits), (.both_pyg | two_digits), (.both_dfgnn | two_digits),
     (.both_pyg_mb | round | tostring), (.both_dfgnn_mb | round | tostring)] | row]
  | markdown(["layer", "type", "forward: PyG", "dfgnn", "both: PyG", "dfgnn",
    "memory of both: PyG", "dfgnn"]);

# tables of MLPs on edges: `dfgnn` beside the other ways of the same block
def megabytes: if . == null then "-" else "\(digits(3)) MB" end;
def blocks_of($rows): $rows | map([.block, .dtype]) | reduce .[] as $b
  ([]; if index([$b]) then . else . + [$b] end);
def mlp_table: [blocks_of($mlp)[] as [$block, $dtype]
  | [$mlp[] | select(.block == $block and .dtype == $dtype)] as $rows
  | first($rows[] | select(.way == "dfgnn")) as $own
  | first($rows[] | select(.way == "compiled")) as $peer
  | [$block, $own.edges, ($dtype | short_type), ($own.forward_ms | time),
     ($peer.forward_ms | time), ($peer.forward_ms / $own.forward_ms | figure),
     ($own.both_ms | time), ($peer.both_ms | time),
     ($peer.both_ms / $own.both_ms | figure), ($own.step_mb | megabytes),
     ($peer.step_mb | megabytes)] | map(tostring) | row]
  | markdown(["block", "edges", "type", "forward", "compiled", "faster by",
    "both passes", "compiled", "faster by", "memory", "compiled"]);
def mlp_models_table: [[$mlp_models[] | {model, dtype}] | unique[] as $of
  | [$mlp_models[] | select(.model == $of.model and .dtype == $of.dtype)] as $rows
  | ([("dfgnn", "compiled", "dfgnn captured", "compiled captured") as $way
      | {($way): first($rows[] | select(.way == $way))}] | add) as $by
  | [$of.model, ($of.dtype | short_type), ($by.dfgnn.step_ms | time),
     ($by.compiled.step_ms | time),
     (ratio($by.compiled.step_ms; $by.dfgnn.step_ms) | figure),
     ($by["dfgnn captured"].step_ms | time), ($by["compiled captured"].step_ms | time),
     ($by.dfgnn.peak_mb | megabytes), ($by.compiled.peak_mb | megabytes)]
  | row]
  | markdown(["model", "type", "dfgnn", "compiled", "faster by", "dfgnn captured",
    "compiled captured", "memory of dfgnn", "compiled"]);
def cpu_mlp_table: [blocks_of($cpu_mlp)[] as [$block, $dtype]
  | [$cpu_mlp[] | select(.block == $block and .dtype == $dtype)] as $rows
  | first($rows[] | select(.way == "dfgnn")) as $own
  | [$block, $own.edges, ($dtype | short_type)] + ([("forward_ms", "both_ms") as $key
     | ($own[$key] | time), (("cat", "compiled") as $way
       | first($rows[] | select(.way == $way))[$key] / $own[$key] | figure)])
  | map(tostring) | row]
  | markdown(["block", "edges", "type", "forward", "torch over it", "compiled over it",
    "both passes", "torch over it", "compiled over it"]);

# of which commits the rows of each file are; report.sh makes the list
def commit_table: [$commits[] | [.file, (.rows | tostring),
    ([.commits[] | "\(.commit // "not said"): \(.rows)"] | join(", ")), .why // ""]
  | row] | markdown(["file", "rows", "of commits", "remark"]);

def headline_more: [graphs[] as $g
  | select(peer($g; "gt"; "backward"; 1; 128))
  | [$g] + [("gt", "gat") as $op | ms($backward; $g; $op; "tuned") as $ms
      | ($ms | time), (ratio(peer($g; $op; "backward"; 1; 128); $ms) | figure)] +
    [("spmm-sum", "reduce-max") as $op | ms($gather; $g; $op; "tuned") as $ms
      | ($ms | time), (ratio(peer($g; $op; 1; 128); $ms) | figure)] | row]
  | markdown(["graph", "GT backward", "faster by", "GAT backward", "faster by",
    "SpMM sum", "faster by", "maximum", "faster by"]);

{gt: preset_table("gt"), gat: preset_table("gat"), agnn: preset_table("agnn"),
 gatv2: preset_table("gatv2"),
 backward_gt: backward_table("gt"), backward_gat: backward_table("gat"),
 backward_agnn: backward_table("agnn"), backward_gatv2: backward_table("gatv2"),
 spmm_sum: gather_table("spmm-sum"; "cuSPARSE"),
 spmm_weighted: gather_table("spmm-weighted"; null),
 reduce_max: gather_table("reduce-max"; "turbo_gnn"),
 reduce_pna: gather_table("reduce-pna"; null), gather_means: gather_means,
 classes: class_table, campaign: campaign_table,
 baselines: baseline_table,
 missed: missed_table, slower: slower,
 heads: against($eight; $f32; "f32 8x16"), heads_peer: eight_peer_table, sixty_four: sixty_four_table,
 bf16: against($bf16; $f32; "bf16 1x128"), regret: regret_table, regret_unseen: unseen_table,
 ablation: ablation_table,
 widths: ([width_table] | markdown(["graph", "width", "tuned", "rule", "paper",
   "smmf, pmf", "unfused"])),
 batches: batch_table, dispatch: dispatch_table, cost: cost_table,
 torch: torch_table, cpu: cpu_table, headline: headline,
 headline_more: headline_more, layers: layer_table("speedup"),
 layer_memory: layer_table("memory_ratio"), layer_means: layer_means,
 accelerate: accelerate_table, spmm_means: spmm_means, block: block_table, commits: commit_table, epochs: epoch_table,
 steps: step_table(["eager", "compiled", "captured"]),
 steps_first: first_table(["compiled"]),
 steps_short: step_short, near: near_table,
 examples: example_table,
 overhead: overhead_table, tensor: tensor_table,
 heads_goals: heads_table, modes: modes_table, edges: edges_table,
 minibatch: minibatch_table, messages: python_messages_table, mlp: mlp_table, mlp_models: mlp_models_table,
 cpu_mlp: cpu_mlp_table,
 speedup: ([graphs[] as $g | ms($f32; $g; "gt"; "tuned") as $t
   | [$g, ratio(ms($f32; $g; "gt"; "unfused"); $t),
      ratio(peer($g; "gt"; 1; 128); $t)] | map(tostring) | join(" ")] | join("\n")),
 optimisations: optimisation_bars}
