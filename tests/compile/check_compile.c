/* check_compile.c - compiles the programs of CUDA families without a GPU
 *
 *   check_compile [--family TEXT] [--arch sm_90,sm_80] [--sample N] [--list]
 *                 [--heads H --dim D] [--dtype f16] [--no-graphs]
 *
 * Every variant of every CUDA family (those whose name holds TEXT) is laid out
 * for the shapes below, plain and with bias and dropout, and what it would
 * launch is compiled, beside what is launched to analyze graphs, sort edges and
 * build views (--family graph: that alone).  --sample takes one program in N;
 * --list prints the programs and compiles nothing.  The last line counts. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/compiler.h"
#include "lib/collect.h"
#include "lib/operator.h"

static const struct {
  int heads, dim;
} shapes[] = {{1, 128}, {8, 16}, {16, 32}, {16, 64}, {3, 20}, {4, 48}};

static const struct {
  int bias, dropout, weights;
} modes[] = {{0, 0, 0}, {1, 1, 0}, {0, 0, 1}};

enum { SKIPPED = 77, MAX_ARCHITECTURES = 16 };

static struct {
  const char *family, *architectures;
  int sample, list, heads, dim, dtype, graphs;
} options = {"", "sm_90", 1, 0, 0, 0, -1, 1};

static const dfgnn_matrix matrix = {.destinations = 10000,
                                    .sources = 10000,
                                    .edges = 100000,
                                    .max_degree = 700};

static dfgnn_signature signature_of(void) {
  dfgnn_signature s = DFGNN_SIGNATURE_INIT;
  s.destinations = matrix.destinations;
  s.sources = matrix.sources;
  s.edges = matrix.edges;
  s.max_degree = matrix.max_degree;
  s.mean_degree = 10;
  s.graphs = 100;
  s.largest_graph = 100;
  s.density = .1;
  s.reuse = .5;
  s.locality = 1;
  return s;
}

static dfgnn_device_info device_of(void) {
  dfgnn_device_info d = DFGNN_DEVICE_INFO_INIT;
  snprintf(d.backend, sizeof d.backend, "cuda");
  snprintf(d.arch, sizeof d.arch, "sm_90");
  d.units = 132;
  d.cache_bytes = 60 << 20;
  d.shared_bytes = 227 << 10;
  return d;
}

static int collect(dfgnn_programs *list, const dfgnn_problem *given) {
  const dfgnn_signature signature = signature_of();
  const dfgnn_device_info device = device_of();
  dfgnn_problem problem;
  int served = 0;
  if (dfgnn__problem_complete(&problem, given))
    return 0;
  const dfgnn_setting setting = {.problem = &problem,
                                 .matrix = &matrix,
                                 .signature = &signature,
                                 .device = &device};
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (!strstr(v->family->name, options.family) ||
        dfgnn__variant_refusal(v, &setting))
      continue;
    if (dfgnn__collect_programs(list, v, &setting, NULL, 1)) {
      fprintf(stderr, "FAILED %s, %d x %d: %s\n", v->name, (int)problem.heads,
              (int)problem.dim, dfgnn_last_error());
      exit(EXIT_FAILURE);
    }
    served++;
  }
  return served;
}

static int collect_all(dfgnn_programs *list) {
  int served = 0;
  for (int op = 0; op < DFGNN_OP_COUNT; op++)
    for (int pass = 0; pass < 2; pass++)
      for (int dtype = DFGNN_F32; dtype <= DFGNN_F64; dtype++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
          for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
            dfgnn_problem p = DFGNN_PROBLEM_INIT;
            p.op = (dfgnn_op)op;
            p.pass = (dfgnn_pass)pass;
            p.dtype = (dfgnn_dtype)dtype;
            p.heads = options.heads ? options.heads : shapes[s].heads;
            p.dim = options.dim ? options.dim : shapes[s].dim;
            p.bias = modes[m].bias;
            p.dropout = modes[m].dropout;
            p.weights = modes[m].weights;
            p.deterministic = 0;
            if (options.dtype >= 0 && dtype != options.dtype)
              continue;
            if (dfgnn__operator(p.op, p.pass))
              served += collect(list, &p);
          }
  return served;
}

static int compile_for(const dfgnn_programs *list, const char *arch) {
  dfgnn_programs *some = NULL;
  dfgnn_engine *engine = NULL;
  size_t count = dfgnn__programs_count(list);
  if (dfgnn__engine_offline(&engine, arch) || dfgnn__programs_create(&some)) {
    fprintf(stderr, "%s: %s\n", arch, dfgnn_last_error());
    return EXIT_FAILURE;
  }
  for (size_t i = 0; i < count; i += (size_t)options.sample)
    (void)dfgnn__programs_add(some, dfgnn__programs_get(list, i));
  dfgnn_status status = dfgnn__engine_prepare(engine, some, 0, NULL);
  if (status)
    fprintf(stderr, "FAILED %s: %s\n", arch, dfgnn_last_error());
  printf("%s: %zu of %zu programs %s\n", arch, dfgnn__programs_count(some),
         count, status ? "were tried, at least one failed" : "compiled");
  dfgnn__programs_destroy(some);
  dfgnn__engine_close(engine);
  return status ? EXIT_FAILURE : EXIT_SUCCESS;
}

static void parse(int argc, char **argv) {
  static const struct option names[] = {
      {"family", required_argument, NULL, 'f'},
      {"arch", required_argument, NULL, 'a'},
      {"sample", required_argument, NULL, 's'},
      {"heads", required_argument, NULL, 'h'},
      {"dim", required_argument, NULL, 'd'},
      {"dtype", required_argument, NULL, 't'},
      {"list", no_argument, NULL, 'l'},
      {"no-graphs", no_argument, NULL, 'g'},
      {0}};
  dfgnn_dtype dtype;
  for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;)
    switch (c) {
    case 'f':
      options.family = optarg;
      break;
    case 'a':
      options.architectures = optarg;
      break;
    case 's':
      options.sample = atoi(optarg) > 0 ? atoi(optarg) : 1;
      break;
    case 'h':
      options.heads = atoi(optarg);
      break;
    case 'd':
      options.dim = atoi(optarg);
      break;
    case 't':
      if (dfgnn_dtype_parse(&dtype, optarg))
        exit(2);
      options.dtype = (int)dtype;
      break;
    case 'g':
      options.graphs = 0;
      break;
    case 'l':
      options.list = 1;
      break;
    default:
      exit(2);
    }
}

int main(int argc, char **argv) {
  dfgnn_programs *list = NULL;
  char text[512], archs[256];
  int result = EXIT_SUCCESS;
  parse(argc, argv);
  if (dfgnn__programs_create(&list))
    return EXIT_FAILURE;
  int served = collect_all(list);
  if (options.graphs && dfgnn__collect_graph_programs(list)) {
    fprintf(stderr, "FAILED graphs: %s\n", dfgnn_last_error());
    return EXIT_FAILURE;
  }
  printf("%d pairs of a variant and a problem need %zu programs\n", served,
         dfgnn__programs_count(list));
  if (dfgnn__programs_count(list) == 0)
    return EXIT_FAILURE; /* a test that looped over nothing fails */
  for (size_t i = 0; options.list && i < dfgnn__programs_count(list); i++) {
    const dfgnn_program *p = dfgnn__programs_get(list, i);
    dfgnn__program_text(text, sizeof text, p);
    printf("%s: %s\n", p->source, text);
  }
  if (options.list)
    return EXIT_SUCCESS;
  if (!*dfgnn__compiler()->path) {
    fprintf(stderr, "skipped: %s\n", dfgnn__compiler()->problem);
    return SKIPPED;
  }
  snprintf(archs, sizeof archs, "%s", options.architectures);
  for (char *a = strtok(archs, ","); a; a = strtok(NULL, ","))
    if (compile_for(list, a))
      result = EXIT_FAILURE;
  dfgnn__programs_destroy(list);
  return result;
}
