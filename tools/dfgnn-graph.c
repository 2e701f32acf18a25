/* dfgnn-graph.c - shows, converts, generates, reorders and partitions graphs */
#include "dfgnn_graph.h"
#include "graph/io/io.h"
#include "lib/base/error.h"
#include "tools/graph.h"

#include <stdlib.h>
#include <string.h>

static int convert(tool_settings *settings, int count, char **operands) {
  (void)count;
  dfgnn_csr *csr;
  dfgnn_status status = dfgnn__csr_open(&csr, operands[0]);
  if (status)
    return graph_fail(status);
  int code = graph_write(settings, csr, operands[1]);
  dfgnn_csr_free(csr);
  return code;
}

/* "knn" and "k=4", "batch=2" make "knn:k=4,batch=2"; "preset=NAME" and
 * "KIND[:...]" may stand anywhere, but once. */
static char *join(int count, char **operands, int *code) {
  size_t size = 16;
  const char *head = NULL;
  for (int i = 0; i < count; i++)
    size += strlen(operands[i]) + 1;
  char *spec = malloc(size);
  if (!spec) {
    *code = tool_error("out of memory");
    return NULL;
  }
  for (int i = 0; i < count; i++)
    if (!strncmp(operands[i], "preset=", 7) || !strchr(operands[i], '=') ||
        strchr(operands[i], ':')) {
      if (head) {
        *code = tool_usage("found both '%s' and '%s', expected one kind or "
                           "preset",
                           head, operands[i]);
        free(spec);
        return NULL;
      }
      head = operands[i];
    }
  if (!head) {
    *code = tool_usage("no kind and no --preset");
    free(spec);
    return NULL;
  }
  char *end = stpcpy(spec, head);
  int listed = strchr(head, '=') != NULL;
  for (int i = 0; i < count; i++)
    if (operands[i] != head) {
      *end++ = listed ? ',' : ':';
      end = stpcpy(end, operands[i]);
      listed = 1;
    }
  return spec;
}

static int write_attributes(const tool_settings *settings,
                            const dfgnn_csr *csr) {
  const dfgnn__array arrays[] = {{.name = "edge_attr",
                                  .data = dfgnn__csr_edge_attr(csr),
                                  .count = csr->edges,
                                  .columns = 3},
                                 {.name = NULL}};
  if (!arrays->data)
    return tool_usage("found --edge-attr for '%s', expected a kind or preset "
                      "of icosphere or sphere, whose nodes have places",
                      csr->name);
  dfgnn_status status =
      dfgnn__arrays_write(settings->edge_attr, "edge attributes", arrays);
  return status ? graph_fail(status) : TOOL_DONE;
}

static int generate(tool_settings *settings, int count, char **operands) {
  dfgnn_csr *csr;
  int code = TOOL_DONE;
  if (!settings->output)
    return tool_usage("no file to write, expected --output=FILE");
  char *spec = join(count, operands, &code);
  if (!spec)
    return code;
  dfgnn_status status = dfgnn_csr_generate(&csr, spec);
  free(spec);
  if (status)
    return graph_fail(status);
  code = graph_write(settings, csr, settings->output);
  if (!code && settings->edge_attr)
    code = write_attributes(settings, csr);
  dfgnn_csr_free(csr);
  return code;
}

static const tool_command info_command = {
    .name = "info",
    .operands = "GRAPH...",
    .summary = "Show statistics, signature and degrees of graphs",
    .text = "One graph is shown whole, with a histogram of its degrees in "
            "powers of two; of several graphs each is a row. The signature "
            "holds the statistics that the choice of a kernel looks at.",
    .options = HAS_TABLE,
    .main = graph_info};

static const tool_command convert_command = {
    .name = "convert",
    .operands = "IN OUT",
    .summary = "Write a graph in the format that the name of OUT says",
    .text = "IN is read as any GRAPH is. OUT is replaced whole or not at all. "
            "Values of a matrix are not kept. Where the first node of each "
            "graph of a batch is known, only .npz keeps it.",
    .options = HAS_ALWAYS,
    .main = convert};

static tool_command generate_command = {
    .name = "generate",
    .operands = "[KIND] [KEY=VALUE...]",
    .summary = "Make a graph and write it to --output",
    .text = NULL, /* set by main() from the tables of io */
    .options = HAS(OUTPUT) | HAS(EDGE_ATTR) | HAS_ALWAYS,
    .main = generate};

static const tool_command reorder_command = {
    .name = "reorder",
    .operands = "IN [OUT]",
    .summary =
        "Number the nodes of a graph anew, so that neighbours lie together",
    .text =
        "Shows what each method changes: the time of finding the order, and "
        "before and after it reuse (distinct columns of 16 rows over their "
        "edges), locality (share of edges near the diagonal) and bandwidth "
        "(largest distance of an edge from the diagonal). With OUT, the graph "
        "in the order of the one method is written there; --map writes the "
        "old numbers, by which features are permuted: row i of the new graph "
        "was row rows[i], source j was columns[j], edge e was edges[e].\n"
        "\n"
        "degree: by falling degree, the sum of in-degree and out-degree.\n"
        "\n"
        "rcm: reverse Cuthill-McKee; neighbours get near numbers. For meshes "
        "and road nets.\n"
        "\n"
        "metis: parts of 256 nodes with few edges between them, by METIS, if "
        "the library was built with it.\n"
        "\n"
        "community: nested communities by modularity, as Rabbit Order finds "
        "them. For social nets and the web.\n"
        "\n"
        "All but degree look at edges in both directions. A square graph has "
        "one order for rows and columns; of a rectangular one both are "
        "ordered, by its bipartite graph. Nodes of a batch stay within their "
        "graphs. The same graph gives the same order.",
    .options = HAS(METHOD) | HAS(MAP) | HAS_TABLE,
    .main = graph_reorder};

static const tool_command partition_command = {
    .name = "partition",
    .operands = "IN PARTS OUT_DIR",
    .summary = "Divide a graph among the ranks of a job",
    .text =
        "Writes OUT_DIR/part-R-of-PARTS.npz for each rank R, which "
        "dfgnn.distributed loads: the rows of its nodes, whose columns are "
        "its own nodes and then its halo (nodes of other ranks that they "
        "read), and the rows that it sends to each other rank. Parts have "
        "about the same work, counted as the edges of their rows and 4 per "
        "row.\n"
        "\n"
        "The report has a row per part: CUT is the share of its edges that "
        "read the halo; SENDS counts its rows that others read, once for each "
        "rank; BALANCE is its number of edges over the mean; MEMORY is that "
        "of its matrices with their transposes and of one f32 tensor of 128 "
        "features, halo included. The same graph gives the same parts. A "
        "graph of more than 2^20 edges is grouped before METIS sees it.",
    .options = HAS(BY) | HAS_TABLE,
    .main = graph_partition};

static const tool_section sections[] = {
    {"FORMATS",
     "The format is found from the first bytes of a file and from its name. "
     "All text formats are also read and written as gzip (name.gz). Duplicate "
     "edges and self loops are kept.\n"
     "\n"
     ".npz: scipy.sparse.save_npz of a CSR matrix, stored or deflated; arrays "
     "format, shape, indptr, indices and data, the indices of 32 or 64 bits, "
     "and optionally graph_ptr, the first node of each graph of a batch and "
     "the number of nodes. Row i lists the nodes that i attends to, in the "
     "order they have. data is not read: every stored entry is an edge.\n"
     "\n"
     ".mtx: Matrix Market, coordinate; pattern, real, integer or complex; "
     "general, symmetric, skew-symmetric or hermitian (these three stand for "
     "both directions). Row i lists the nodes that i attends to. Every stored "
     "entry is an edge, a zero too.\n"
     "\n"
     ".graph: METIS, counted from 1, with or without sizes and weights, which "
     "are skipped. Writing one needs a symmetric graph.\n"
     "\n"
     ".txt, .csv, .tsv: a list of edges as SNAP and OGB have it, a line "
     "'source destination' each, counted from 0, separated by blanks, a comma "
     "or a semicolon. Further columns are skipped, as are comments (# and %) "
     "and, in .csv and .tsv, a first line of names. There are as many nodes "
     "as the largest number plus one, or as a comment '# Nodes: N' says if "
     "that is more. Writing one needs a square graph.\n"},
    {"LIMITS",
     "A graph has fewer than 2147483648 sources, a text file also as many "
     "destinations. A file may unpack to 64 MiB plus 256 times its size, and "
     "to 64 GiB at most; the offsets that its number of rows asks for (8 bytes "
     "each) must fit the same limit. So neither a gzip bomb nor a header that "
     "lies fills the memory. DFGNN_MAX_FILE sets another limit.\n"},
    {"ENVIRONMENT",
     "DFGNN_MAX_FILE: bytes that a file may unpack to, such as 1000000, 512M "
     "or 100G, instead of the limit above.\n"
     "\n"
     "DFGNN_LOG: none, error, warn, info or debug.\n"},
    {"OUTPUT",
     "An object of info --json has graph, destinations, sources, edges, "
     "mean_degree, p50_degree, p90_degree, p99_degree, max_degree, degree_cv "
     "(standard deviation over mean), isolated (share of rows without edges), "
     "p50_source_degree, p99_source_degree, max_source_degree, source_cv, "
     "isolated_sources, self_loops, duplicates, symmetric, sorted, reuse "
     "(distinct columns of 16 rows over their edges), locality (share of edges "
     "near the diagonal), graphs (blocks on the diagonal), largest_graph, "
     "density, fingerprint, histogram (share of rows of degree 0, 1, 2..3, "
     "4..7 and so on). One of reorder --json has graph, method, destinations, "
     "sources, edges, reorder_ms, and reuse, locality and bandwidth with "
     "reuse_before, locality_before and bandwidth_before. One of partition "
     "--json has graph, part, nodes, edges, cut (edges that read the halo), "
     "cut_share, boundary (rows with such edges), halo, sends, balance and "
     "bytes.\n"},
    {"EXAMPLES",
     "What a graph is like:\n"
     "    dfgnn-graph info cora.npz\n"
     "    dfgnn-graph info powerlaw:nodes=5000,edges=60000,max-degree=800\n"
     "\n"
     "From Matrix Market to NumPy, and back compressed:\n"
     "    dfgnn-graph convert cora.mtx cora.npz\n"
     "    dfgnn-graph convert cora.npz cora.mtx.gz\n"
     "\n"
     "A batch of PATTERN graphs, and a tenth of the paper's Reddit:\n"
     "    dfgnn-graph generate sbm-pattern --batch 1024 --seed 1 -o p.npz\n"
     "    dfgnn-graph generate --preset reddit_comm --scale 0.1 -o r.npz\n"
     "\n"
     "A mesh of a weather model with the attributes of its edges:\n"
     "    dfgnn-graph generate --preset h_to_h -o h.npz --edge-attr e.npz\n"
     "    e = numpy.load('e.npz')['edge_attr']\n"
     "\n"
     "The nodes of communities together, and where they came from:\n"
     "    dfgnn-graph reorder --method all r.npz\n"
     "    dfgnn-graph reorder --method community r.npz c.npz --map order.npz\n"
     "    x = x[numpy.load('order.npz')['rows']]\n"
     "\n"
     "Four parts of a graph for four GPUs:\n"
     "    dfgnn-graph partition r.npz 4 r-parts\n"},
    {NULL, NULL}};

static const tool_command *const commands[] = {
    &info_command,    &convert_command,   &generate_command,
    &reorder_command, &partition_command, NULL};

static const tool_program program = {
    "dfgnn-graph", "inspect, convert, generate, reorder and partition graphs",
    "A GRAPH is a file (Matrix Market, SciPy CSR .npz, METIS, SNAP or OGB edge "
    "list), a directory of such files, a quoted glob, or the specification of "
    "a generator: KIND, KIND:KEY=VALUE,KEY=VALUE or "
    "preset=NAME,KEY=VALUE, with gen: before it where a file has that name. "
    "Node i of a graph attends to the nodes of row i.",
    commands, sections};

/* Makes the text about kinds, their settings and presets from io's tables. */
static char *describe_generators(void) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  const dfgnn__generator_info *info;
  if (!out)
    return NULL;
  fputs("A kind's settings are given as KEY=VALUE, as --KEY=VALUE or in one "
        "specification KIND:KEY=VALUE,KEY=VALUE. The same settings make the "
        "same graph on every machine.\n"
        "\n"
        "Kinds, and their settings with what they are by default (of words, "
        "the first), follow.\n",
        out);
  for (size_t i = 0; (info = dfgnn__generator_kind(i)); i++)
    fprintf(out, "\n%s: %s; %s.\n", info->name, info->summary, info->settings);
  fputs(
      "\n--preset=NAME makes a benchmark graph of the DF-GNN paper or one like "
      "those of weather models; --scale from 0 to 1 shrinks it and --seed "
      "varies it where its kind draws at random, other settings of its kind "
      "override:\n",
      out);
  for (size_t i = 0; (info = dfgnn__generator_preset(i)); i++)
    fprintf(out, "  %-12s %s\n", info->name, info->summary);
  if (fclose(out)) {
    free(text);
    return NULL;
  }
  return text;
}

#define MAX_JOINED 32
static char joined[MAX_JOINED][256];

/* Settings of generators are options, too: "--batch 4" and "--batch=4" become
 * the operand "batch=4".  Returns the new argc, -1 on wrong usage. */
static int settings_to_operands(int argc, char **argv) {
  int kept = 2, used = 0;
  for (int i = 2; i < argc; i++) {
    char *text = argv[i], name[64];
    size_t n = strcspn(text, "=");
    argv[kept++] = text;
    if (strncmp(text, "--", 2) || n - 2 >= sizeof name)
      continue;
    memcpy(name, text + 2, n - 2);
    name[n - 2] = 0;
    if (!dfgnn__generator_setting(name))
      continue;
    argv[kept - 1] = text + 2;
    if (text[n])
      continue;
    if (i + 1 == argc || used == MAX_JOINED ||
        (size_t)snprintf(joined[used], sizeof *joined, "%s=%s", name,
                         argv[++i]) >= sizeof *joined) {
      fprintf(stderr, "%s generate: --%s needs a value\n", program.name, name);
      return -1;
    }
    argv[kept - 1] = joined[used++];
  }
  argv[kept] = NULL;
  return kept;
}

TOOL_MAIN(graph)(int argc, char **argv) {
  char *text = describe_generators();
  if (!text)
    return tool_error("out of memory");
  generate_command.text = text;
  if (argc > 2 && !strcmp(argv[1], "generate"))
    argc = settings_to_operands(argc, argv);
  int code = argc < 0 ? TOOL_USAGE : tool_main(&program, argc, argv);
  free(text);
  return code;
}
