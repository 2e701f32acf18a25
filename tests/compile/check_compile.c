/* check_compile.c - compiles the programs of CUDA families without a GPU
 *
 *   check_compile [--all] [--family TEXT] [--arch sm_90,sm_80] [--sample N]
 *                 [--digest]
 *
 * Every variant of every CUDA family is laid out for the shapes below, plain,
 * with bias and dropout and with messages of edges, and the programs that it
 * would launch are compiled, those of edge programs (family program) and of
 * MLPs on edges (family mlp), beside those that analyze graphs, sort edges and
 * build views.
 *
 * Without options a sample is compiled: some programs of each template, for
 * each architecture in turn.  --all compiles every program for every
 * architecture; so does --family, for the families whose name holds TEXT
 * (graph: what graphs need alone).  --sample takes one program in N.  --digest
 * prints a digest of each
 * program's machine code, without the kernel's name: code that a change leaves
 * as it was keeps its digest.  Without --arch the architectures
 * are those of the list below that the compiler knows.  The last line counts
 * what was compiled.
 *
 * KEPT_KERNELS=FOLDER keeps there what compiled, by the digest of all that the
 * compiler reads: what did not change since is not compiled again. */
#include <elf.h>
#include <getopt.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dfgnn_graph.h"
#include "kernels/engine/compiler.h"
#include "lib/collect.h"
#include "lib/edge_program.h"
#include "lib/operator.h"
#include "tests/common/program_texts.h"
#include "tests/compile/edge_mlps.h"

static const struct {
  int heads, dim;
} shapes[] = {{1, 128}, {8, 16}, {16, 32}, {16, 64}, {3, 20}, {4, 48}};

static const struct {
  int bias, dropout, weights, edge_dim, edge_use;
} modes[] = {{.bias = 0},
             {.bias = 1, .dropout = 1},
             {.weights = 1},
             {.edge_dim = 11},
             {.edge_dim = 5, .edge_use = DFGNN_EDGE_KEYS},
             {.edge_dim = 64, .edge_use = DFGNN_EDGE_VALUES},
             {.edge_dim = 11, .bias = 1, .dropout = 1},
             {.edge_dim = DFGNN_EDGE_PROJECTED},
             {.edge_dim = 11, .weights = 1},
             {.edge_dim = 16}};

/* Messages of edges, and the widths of their features. */
static const struct {
  dfgnn_message message;
  int64_t edge_dim;
} messages[] = {{DFGNN_MESSAGE_RELU, DFGNN_EDGE_PROJECTED},
                {DFGNN_MESSAGE_RELU, 11},
                {DFGNN_MESSAGE_GATE, 0},
                {DFGNN_MESSAGE_GATE, DFGNN_EDGE_PROJECTED},
                {DFGNN_MESSAGE_GATE, 64},
                {DFGNN_MESSAGE_GATE_VALUE, 8}};

static const int architectures[] = {80, 90, 100, 120};

enum { SKIPPED = 77, SLICE = 256, MAX_ARCHITECTURES = 16, NAME_SIZE = 16 };

static struct {
  const char *family, *architectures;
  int all, sample, digest;
} options = {.family = ""};

static struct {
  char name[MAX_ARCHITECTURES][NAME_SIZE];
  int count;
} targets;

static const dfgnn_matrix matrix = {.destinations = 10000,
                                    .sources = 10000,
                                    .edges = 100000,
                                    .relations = 4,
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

/* ---- all programs -------------------------------------------------------- */

/* Lists what every step-th of the variants that serve a problem launches, from
 * the first-th on. */
static int collect_some(dfgnn_programs *list, const dfgnn_problem *given,
                        size_t first, size_t step) {
  const dfgnn_signature signature = signature_of();
  const dfgnn_device_info device = device_of();
  const dfgnn_variant **serve = calloc(dfgnn__variant_count(), sizeof *serve);
  dfgnn_problem problem;
  size_t count = 0;
  int served = 0;
  if (!serve)
    exit(EXIT_FAILURE);
  const dfgnn_setting setting = {.problem = &problem,
                                 .matrix = &matrix,
                                 .signature = &signature,
                                 .device = &device};
  if (!dfgnn__problem_complete(&problem, given))
    for (size_t i = 0; i < dfgnn__variant_count(); i++) {
      const dfgnn_variant *v = dfgnn__variant(i);
      if (strstr(v->family->name, options.family) &&
          !dfgnn__variant_refusal(v, &setting))
        serve[count++] = v;
    }
  for (size_t i = count ? first % count : 0; i < count; i += step, served++)
    if (dfgnn__collect_programs(list, serve[i], &setting, NULL, 1)) {
      fprintf(stderr, "FAILED %s, %d x %d: %s\n", serve[i]->name,
              (int)problem.heads, (int)problem.dim, dfgnn_last_error());
      exit(EXIT_FAILURE);
    }
  free(serve);
  return served;
}

static int collect(dfgnn_programs *list, const dfgnn_problem *given) {
  return collect_some(list, given, 0, 1);
}

static int collect_messages(dfgnn_programs *list, const dfgnn_problem *p) {
  int served = 0;
  for (size_t m = 0; m < sizeof messages / sizeof *messages; m++) {
    dfgnn_problem sends = *p;
    sends.message = messages[m].message;
    sends.edge_dim = messages[m].edge_dim;
    served += collect(list, &sends);
  }
  return served;
}

/* Kernels of edge programs and their gradients, of a variant each. */
static int collect_edge_programs(dfgnn_programs *list) {
  int served = 0;
  for (int i = 0; i < PROGRAMS; i++) {
    dfgnn_edge_program *both[2] = {NULL};
    const dfgnn_dtype dtype = (dfgnn_dtype)(i % DFGNN_DTYPE_COUNT);
    dfgnn_status status = dfgnn_edge_program_create(&both[0], programs[i]);
    if (!status)
      status = dfgnn_edge_program_gradient(&both[1], both[0], NULL, NULL);
    for (int pass = 0; !status && pass < 2; pass++) {
      dfgnn_problem problem;
      status = dfgnn__edge_program_as_problem(&problem, both[pass], dtype);
      if (!status)
        served += collect_some(list, &problem, (size_t)(7 * i + pass),
                               dfgnn__variant_count());
    }
    if (status) {
      fprintf(stderr, "FAILED %s: %s\n", programs[i], dfgnn_last_error());
      exit(EXIT_FAILURE);
    }
    /* their sources stay with the engine */
    dfgnn_edge_program_destroy(both[0]);
    dfgnn_edge_program_destroy(both[1]);
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
            p.heads = shapes[s].heads;
            p.dim = shapes[s].dim;
            p.bias = modes[m].bias;
            p.dropout = modes[m].dropout;
            p.weights = modes[m].weights;
            p.edge_dim = modes[m].edge_dim;
            p.edge_use = (dfgnn_edge_use)modes[m].edge_use;
            p.deterministic = 0;
            if (dfgnn__operator(p.op, p.pass))
              served += collect(list, &p);
            if (m == 0)
              served += collect_messages(list, &p);
          }
  const dfgnn_device_info device = device_of();
  return served + collect_edge_programs(list) +
         collect_edge_mlps(list, options.family, &matrix, &device);
}

/* ---- the sample ---------------------------------------------------------- */

static int same_template(const dfgnn_program *a, const dfgnn_program *b) {
  return !strcmp(a->source, b->source) && !strcmp(a->name, b->name);
}

/* The number of programs of a template in the sample: 1 of 36, 2 of 144, 15 of
 * 7383.  A program takes 0.3 s of a core. */
static size_t sample_size(size_t count) {
  size_t size = 1;
  while (36 * size * size < count)
    size++;
  return size;
}

/* Numbers the templates and says which template each program is of, mostly that
 * of the program before it; returns the number of templates. */
static size_t number_templates(size_t *template_of, size_t *first,
                               const dfgnn_programs *all) {
  size_t templates = 0, t = 0;
  for (size_t i = 0; i < dfgnn__programs_count(all); i++) {
    const dfgnn_program *p = dfgnn__programs_get(all, i);
    if (!templates || !same_template(dfgnn__programs_get(all, first[t]), p)) {
      t = 0;
      while (t < templates &&
             !same_template(dfgnn__programs_get(all, first[t]), p))
        t++;
    }
    if (t == templates)
      first[templates++] = i;
    template_of[i] = t;
  }
  return templates;
}

/* The first programs of a template are those of f32; equal steps spread the
 * sample over its types, shapes and modes. */
static void sample_template(dfgnn_programs *some, const dfgnn_programs *all,
                            const size_t *template_of, size_t t) {
  size_t count = 0, seen = 0, taken = 0;
  for (size_t i = 0; i < dfgnn__programs_count(all); i++)
    count += template_of[i] == t;
  for (size_t i = 0; i < dfgnn__programs_count(all); i++)
    if (template_of[i] == t && seen++ * sample_size(count) >= taken * count) {
      (void)dfgnn__programs_add(some, dfgnn__programs_get(all, i));
      taken++;
    }
}

static void sample_templates(dfgnn_programs *some, const dfgnn_programs *all) {
  size_t count = dfgnn__programs_count(all);
  size_t *template_of = calloc(2 * count, sizeof *template_of);
  if (!template_of)
    exit(EXIT_FAILURE);
  size_t templates = number_templates(template_of, template_of + count, all);
  for (size_t t = 0; t < templates; t++)
    sample_template(some, all, template_of, t);
  free(template_of);
}

/* The programs of the k-th architecture: all, one in N, or its share of the
 * sample. */
static void choose(dfgnn_programs *some, const dfgnn_programs *list, int k) {
  const int shared = !options.all && !options.sample;
  size_t first = shared ? (size_t)k : 0, step = 1;
  if (options.sample > 0)
    step = (size_t)options.sample;
  if (shared)
    step = (size_t)targets.count;
  for (size_t i = first; i < dfgnn__programs_count(list); i += step)
    (void)dfgnn__programs_add(some, dfgnn__programs_get(list, i));
}

static void find_targets(void) {
  const dfgnn_compiler_info *c = dfgnn__compiler();
  char list[256];
  if (options.architectures) {
    snprintf(list, sizeof list, "%s", options.architectures);
    for (char *a = strtok(list, ","); a && targets.count < MAX_ARCHITECTURES;
         a = strtok(NULL, ","))
      snprintf(targets.name[targets.count++], NAME_SIZE, "%.15s", a);
    return;
  }
  for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
    for (int k = 0; k < c->architecture_count; k++)
      if (c->architectures[k] == architectures[i])
        snprintf(targets.name[targets.count++], NAME_SIZE, "sm_%d",
                 architectures[i]);
}

/* ---- digests ------------------------------------------------------------- */

/* Is the section code, constants or shared memory of a kernel?  Bank 4 has the
 * addresses of all variables of the sources, read or not. */
static int is_code(const char *section) {
  return !strncmp(section, ".text.", 6) ||
         (!strncmp(section, ".nv.constant", 12) && section[12] != '4') ||
         !strncmp(section, ".nv.shared", 10);
}

/* Adds the sections of a cubin in their order, with their sizes and, in sh_info
 * of code, the number of registers. */
static void add_sections(crypto_generichash_state *state, const char *code) {
  const Elf64_Ehdr *file = (const Elf64_Ehdr *)code;
  const Elf64_Shdr *section = (const Elf64_Shdr *)(code + file->e_shoff);
  const char *names = code + section[file->e_shstrndx].sh_offset;
  for (int i = 0; i < file->e_shnum; i++) {
    const Elf64_Shdr *s = &section[i];
    const uint64_t about[] = {s->sh_size, s->sh_info >> 24};
    if (!is_code(names + s->sh_name))
      continue;
    crypto_generichash_update(state, (const unsigned char *)about,
                              sizeof about);
    if (s->sh_type != SHT_NOBITS)
      crypto_generichash_update(
          state, (const unsigned char *)code + s->sh_offset, s->sh_size);
  }
}

static void print_digest(void *data, const dfgnn_program *program,
                         const dfgnn_keys_of *keys, const dfgnn_image *image,
                         const char *target) {
  crypto_generichash_state state;
  unsigned char digest[16];
  char hex[sizeof digest * 2 + 1], text[512];
  (void)data, (void)keys;
  crypto_generichash_init(&state, NULL, 0, sizeof digest);
  if (image->ptx)
    crypto_generichash_update(&state, image->code, image->bytes);
  else
    add_sections(&state, image->code);
  crypto_generichash_final(&state, digest, sizeof digest);
  dfgnn__program_text(text, sizeof text, program);
  printf("%s %s %s\n", target,
         sodium_bin2hex(hex, sizeof hex, digest, sizeof digest), text);
}

/* ---- compiling ----------------------------------------------------------- */

/* Compiles a slice of the programs, so that a long run shows how far it is;
 * returns the number of programs that compiled. */
static size_t compile_slice(dfgnn_engine *engine, const dfgnn_programs *chosen,
                            size_t from) {
  dfgnn_programs *slice = NULL;
  dfgnn_kernel_info info;
  size_t end = from + SLICE, compiled = 0;
  if (end > dfgnn__programs_count(chosen))
    end = dfgnn__programs_count(chosen);
  if (dfgnn__programs_create(&slice))
    exit(EXIT_FAILURE);
  for (size_t i = from; i < end; i++)
    (void)dfgnn__programs_add(slice, dfgnn__programs_get(chosen, i));
  if (dfgnn__engine_prepare(engine, slice, 0, NULL))
    fprintf(stderr, "FAILED: %s\n", dfgnn_last_error());
  for (size_t i = from; i < end; i++)
    compiled += (size_t)dfgnn__engine_kernel_info(
        &info, engine, dfgnn__programs_get(chosen, i));
  dfgnn__programs_destroy(slice);
  return compiled;
}

/* Returns 1 if every program chosen for the k-th architecture compiled. */
static int compile_for(size_t *all_compiled, const dfgnn_programs *list,
                       int k) {
  const char *arch = targets.name[k];
  dfgnn_programs *chosen = NULL;
  dfgnn_engine *engine = NULL;
  size_t compiled = 0;
  if (dfgnn__engine_offline(&engine, arch) || dfgnn__programs_create(&chosen)) {
    fprintf(stderr, "FAILED %s: %s\n", arch, dfgnn_last_error());
    return 0;
  }
  if (options.digest)
    dfgnn__engine_keep_images(engine, print_digest, NULL);
  choose(chosen, list, k);
  size_t count = dfgnn__programs_count(chosen);
  for (size_t i = 0; i < count; i += SLICE) {
    compiled += compile_slice(engine, chosen, i);
    if (count > SLICE)
      fprintf(stderr, "%s: %zu of %zu\n", arch,
              i + SLICE < count ? i + SLICE : count, count);
  }
  printf("%s: %zu of %zu programs compiled\n", arch, compiled, count);
  fflush(stdout);
  *all_compiled += compiled;
  dfgnn__programs_destroy(chosen);
  dfgnn__engine_close(engine);
  return count > 0 && compiled == count;
}

static void parse(int argc, char **argv) {
  static const struct option names[] = {
      {"all", no_argument, NULL, 'A'},
      {"family", required_argument, NULL, 'f'},
      {"arch", required_argument, NULL, 'a'},
      {"sample", required_argument, NULL, 's'},
      {"digest", no_argument, NULL, 'D'},
      {0}};
  for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;)
    switch (c) {
    case 'A':
      options.all = 1;
      break;
    case 'f':
      options.family = optarg;
      options.all = 1;
      break;
    case 'a':
      options.architectures = optarg;
      break;
    case 's':
      options.sample = atoi(optarg) > 0 ? atoi(optarg) : 1;
      break;
    case 'D':
      options.digest = 1;
      break;
    default:
      exit(2);
    }
}

static int compile_list(const dfgnn_programs *all) {
  dfgnn_programs *sample = NULL;
  size_t compiled = 0;
  int good = 1;
  if (!*dfgnn__compiler()->path) {
    fprintf(stderr, "skipped: %s\n", dfgnn__compiler()->problem);
    return SKIPPED;
  }
  find_targets();
  if (dfgnn__programs_create(&sample))
    exit(EXIT_FAILURE);
  sample_templates(sample, all);
  for (int k = 0; k < targets.count; k++)
    good &=
        compile_for(&compiled, options.all || options.sample ? all : sample, k);
  dfgnn__programs_destroy(sample);
  printf("%zu programs compiled for %d architectures by NVRTC %d.%d\n",
         compiled, targets.count, dfgnn__compiler()->major,
         dfgnn__compiler()->minor);
  return good && compiled > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv) {
  dfgnn_programs *list = NULL;
  const char *kept = getenv("KEPT_KERNELS");
  char cache[1024];
  int result = EXIT_SUCCESS;
  parse(argc, argv);
  if (kept && *kept) {
    snprintf(cache, sizeof cache, "%s/compiled.db", kept);
    setenv("DFGNN_KERNEL_CACHE", cache, 1);
  }
  if (dfgnn__programs_create(&list))
    return EXIT_FAILURE;
  int served = collect_all(list);
  if ((!*options.family || !strcmp(options.family, "graph")) &&
      dfgnn__collect_graph_programs(list)) {
    fprintf(stderr, "FAILED graphs: %s\n", dfgnn_last_error());
    return EXIT_FAILURE;
  }
  printf("%d pairs of a variant and a problem need %zu programs\n", served,
         dfgnn__programs_count(list));
  if (dfgnn__programs_count(list) == 0)
    result = EXIT_FAILURE; /* a test that looped over nothing fails */
  else
    result = compile_list(list);
  dfgnn__programs_destroy(list);
  return result;
}
