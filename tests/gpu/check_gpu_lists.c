/* check_gpu_lists.c - graphs of edge lists on the GPU against the CPU's, in
 * both directions, and the faults of lists, found at once and late */
#include "kernels/common/device_graph.h"
#include "tests/gpu/gpu.h"

static const char *const specs[] = {
    "sbm-pattern:batch=8,seed=1",
    "region:batch=4,seed=3",
    "powerlaw:nodes=3000,edges=20000,max-degree=2000,seed=4",
    "powerlaw:nodes=3000,edges=40000,max-degree=500,columns=local,seed=5",
    "uniform:nodes=1000,sources=3000,edges=5000,seed=6",
    "uniform:nodes=1,sources=1,edges=1,seed=7",
    "uniform:nodes=4000,edges=33,seed=7",
    "grid:rows=40,columns=30",
    "uniform:nodes=70000,edges=9000,seed=8",              /* 17 bits a node */
    "uniform:nodes=400,edges=20000,seed=9",               /* 9 bits */
    "uniform:nodes=60,sources=20000,edges=30000,seed=10", /* long rows */
    "uniform:nodes=100000,edges=700000,seed=8",           /* many edges */
};

/* The edges of a graph as a list of int32 or int64, in the order of rows or
 * shuffled. */
static dfgnn_coo list_of(const dfgnn_csr *csr, int shuffled, int wide) {
  const int32_t *offsets = csr->offsets, *indices = csr->indices;
  const size_t bytes = (size_t)csr->edges * (wide ? 8 : 4) + 1;
  void *dst = zeros_of((int64_t)bytes, 1), *src = zeros_of((int64_t)bytes, 1);
  dfgnn_coo coo = INIT(dfgnn_coo, .destinations = csr->destinations,
                       .sources = csr->sources, .edges = csr->edges,
                       .index_type = wide ? DFGNN_INDEX_I64 : DFGNN_INDEX_I32);
  for (int64_t i = 0; i < csr->destinations; i++)
    for (int32_t e = offsets[i]; e < offsets[i + 1]; e++) {
      /* odd edges come first, in reverse */
      int64_t k = !shuffled ? e
                  : e % 2   ? csr->edges / 2 - 1 - e / 2
                            : csr->edges / 2 + e / 2;
      if (wide) {
        ((int64_t *)dst)[k] = i;
        ((int64_t *)src)[k] = indices[e];
      } else {
        ((int32_t *)dst)[k] = (int32_t)i;
        ((int32_t *)src)[k] = indices[e];
      }
    }
  coo.destination = dst;
  coo.source = src;
  return coo;
}

static dfgnn_coo on_device(const dfgnn_coo *coo) {
  const size_t bytes =
      (size_t)coo->edges * (coo->index_type == DFGNN_INDEX_I64 ? 8 : 4);
  dfgnn_coo there = *coo;
  there.destination = to_device(coo->destination, bytes);
  there.source = to_device(coo->source, bytes);
  there.on_device = 1;
  return there;
}

static dfgnn_status (*const create[])(dfgnn_graph **, dfgnn_context *,
                                      const dfgnn_coo *, void *) = {
    dfgnn_graph_create_coo, dfgnn_graph_create_deferred};

static void compare(dfgnn_graph *on_gpu, dfgnn_graph *on_cpu,
                    const dfgnn_coo *coo, int deferred, const char *label) {
  const dfgnn_view_request transpose = {.kind = DFGNN_VIEW_TRANSPOSE};
  dfgnn_context *gpu = on_gpu->ctx;
  dfgnn_csr found = DFGNN_CSR_INIT, expected = found;
  const dfgnn_view *columns = NULL, *right_columns = NULL;
  ck_ok(dfgnn_graph_csr(&found, on_gpu));
  ck_ok(dfgnn_graph_csr(&expected, on_cpu));
  ck_assert_int_eq(found.edges, expected.edges);
  const size_t edges = (size_t)expected.edges;
  same_array(gpu, found.offsets, expected.offsets,
             ((size_t)coo->destinations + 1) * 4, label, 0);
  same_array(gpu, found.indices, expected.indices, edges * 4, label, 1);
  const void *order = dfgnn_graph_edge_order(on_gpu, NULL);
  const void *right = dfgnn_graph_edge_order(on_cpu, NULL);
  /* nobody looks whether a trusted list is sorted, nor waits for whether one
   * that is deferred is */
  if (coo->sorted || (!coo->trusted && !deferred))
    ck_assert_int_eq(order != NULL, right != NULL);
  if (order && right)
    same_array(gpu, order, right, edges * 4, label, 2);
  ck_ok(dfgnn__graph_view(&columns, on_gpu, &transpose));
  ck_ok(dfgnn__graph_view(&right_columns, on_cpu, &transpose));
  const size_t bytes[] = {((size_t)coo->sources + 1) * 4, edges * 4, edges * 4};
  for (int k = 0; k < 3; k++)
    same_array(gpu, columns->array[k], right_columns->array[k], bytes[k], label,
               3 + k);
  ck_assert_int_ge(columns->extra, right_columns->extra);
}

/* Makes graphs of a list in host memory and in device memory on the GPU, and
 * compares them with the graph that the CPU makes of it. */
static void compare_lists(dfgnn_context *gpu, dfgnn_context *cpu,
                          const dfgnn_coo *coo, int deferred,
                          const char *label) {
  dfgnn_graph *on_gpu = NULL, *on_cpu = NULL;
  const dfgnn_coo there = on_device(coo);
  on_cpu = listed_on(cpu, coo);
  for (int device = 0; device < 2; device++) {
    ck_ok(create[deferred](&on_gpu, gpu, device ? &there : coo, NULL));
    compare(on_gpu, on_cpu, coo, deferred, label);
    ck_assert_uint_gt(dfgnn_graph_bytes(on_gpu), 0);
    dfgnn_graph_destroy(on_gpu);
  }
}

enum { SORTED = 1, TRUSTED = 2, LOOPS = 4, DEFERRED = 8, WIDE = 16, HOWS = 32 };

IN_CASE("lists")

TEST(edge_lists_are_sorted_as_on_the_cpu) {
  dfgnn_context *gpu = gpu_context(), *cpu = cpu_context("");
  int checked = 0, number = 0;
  for (size_t i = 0; i < sizeof specs / sizeof *specs - (few() > 1); i++) {
    dfgnn_csr *csr = generated(specs[i]);
    ck_assert_int_eq(csr->offset_type, DFGNN_INDEX_I32);
    for (int how = 0; how < HOWS; how++)
      for (int shuffled = 0; shuffled < 2; shuffled++) {
        if ((how & SORTED && shuffled) || !in_part(number++))
          continue;
        checked++;
        dfgnn_coo coo = list_of(csr, shuffled, how & WIDE);
        coo.sorted = !!(how & SORTED);
        coo.trusted = !!(how & TRUSTED);
        coo.self_loops = !!(how & LOOPS);
        compare_lists(gpu, cpu, &coo, !!(how & DEFERRED), specs[i]);
      }
  }
  ck_assert_int_gt(checked, 0);
}

/* ---- faults -------------------------------------------------------------- */

static void set_node(const dfgnn_coo *coo, int source, int64_t edge,
                     int64_t node) {
  char *array = (char *)(source ? coo->source : coo->destination);
  const int32_t narrow = (int32_t)node;
  if (coo->index_type == DFGNN_INDEX_I64)
    copy_memory(array + edge * 8, &node, 8);
  else
    copy_memory(array + edge * 4, &narrow, 4);
}

static const char *const with_faults[] = {
    "uniform:nodes=1000,sources=3000,edges=5000,seed=6",
    "uniform:nodes=60,sources=20000,edges=40000,seed=10"};

IN_CASE("faults")

TEST(an_edge_out_of_range_is_named) {
  dfgnn_context *gpu = gpu_context();
  dfgnn_graph *graph = NULL;
  char text[96];
  for (int how = 0; how < 16; how++) {
    const int source = how & 1, wide = how >> 1 & 1, deferred = how >> 2 & 1;
    dfgnn_csr *csr = generated(with_faults[how >> 3]);
    dfgnn_coo list = list_of(csr, 1, wide), there = on_device(&list);
    const int64_t nodes = source ? there.sources : there.destinations;
    const int64_t node = how & 2 ? -1 : nodes;
    set_node(&there, source, 4321, node);
    snprintf(text, sizeof text, "%s[4321] = %d ",
             source ? "source" : "destination", (int)node);
    if (!deferred) {
      ck_invalid(dfgnn_graph_create_coo(&graph, gpu, &there, NULL), text);
    } else {
      /* told once, to the call that waits or to one of another list; of
       * several edges the first */
      dfgnn_csr found = DFGNN_CSR_INIT;
      set_node(&there, !source, 4322, -7);
      set_node(&there, source, 4999, nodes);
      ck_ok(dfgnn_graph_create_deferred(&graph, gpu, &there, NULL));
      if (source) {
        ck_fails(dfgnn_graph_csr(&found, graph), DFGNN_ERROR_DEVICE, text);
      } else {
        dfgnn_graph *other = NULL;
        ck_cu(CtxSynchronize);
        ck_fails(dfgnn_graph_create_coo(&other, gpu, &list, NULL),
                 DFGNN_ERROR_DEVICE, text);
        listed_on(gpu, &list);
      }
      /* what reads the matrix stays in its arrays: all edges are in range */
      dfgnn_signature signature = DFGNN_SIGNATURE_INIT;
      ck_ok(dfgnn_graph_signature(&signature, graph));
      ck_assert_int_eq(signature.edges, there.edges);
      dfgnn_graph_destroy(graph);
    }
  }
}

IN_CASE("order")

TEST(a_list_that_is_not_sorted_as_was_said_is_refused_late) {
  dfgnn_context *gpu = gpu_context();
  dfgnn_plan *plan = NULL;
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  dfgnn_csr *csr = generated(specs[2]);
  dfgnn_coo coo = list_of(csr, 1, 0);
  coo.sorted = 1;
  dfgnn_graph *graph = listed_on(gpu, &coo);
  ck_invalid(dfgnn_plan_create(&plan, gpu, graph, &problem),
             "but the list was said to be sorted");
}

/* ---- plans --------------------------------------------------------------- */

enum { HEADS = 2, DIM = 8 };

typedef struct pass_tensors {
  float *query, *key, *value, *out, *lse, *grad_out;
  float *grad[3]; /* of query, key and value */
  size_t of_dst, of_src;
} pass_tensors;

static float *numbers(size_t count) {
  float *host = zeros_of((int64_t)count, sizeof *host);
  for (size_t i = 0; i < count; i++)
    host[i] = (float)((i * 2654435761u >> 7) % 1001) / 500 - 1;
  return to_device(host, count * sizeof *host);
}

static pass_tensors tensors_of(const dfgnn_coo *coo) {
  pass_tensors t = {.of_dst = (size_t)coo->destinations * HEADS * DIM,
                    .of_src = (size_t)coo->sources * HEADS * DIM};
  t.query = numbers(t.of_dst);
  t.key = numbers(t.of_src);
  t.value = numbers(t.of_src);
  t.grad_out = numbers(t.of_dst);
  t.out = numbers(t.of_dst);
  t.lse = numbers((size_t)coo->destinations * HEADS);
  for (int k = 0; k < 3; k++)
    t.grad[k] = numbers(k ? t.of_src : t.of_dst);
  return t;
}

/* Runs both passes; returns whether a view of the second has padded items. */
static int run_both(dfgnn_context *gpu, dfgnn_graph *graph, pass_tensors *t) {
  int padded = 0;
  dfgnn_problem problem = PROBLEM(.heads = HEADS, .dim = DIM);
  dfgnn_args args = ARGS(.query = t->query, .key = t->key, .value = t->value,
                         .out = t->out, .lse = t->lse);
  ck_ok(dfgnn_call(gpu, graph, &problem, &args, NULL));
  problem.pass = DFGNN_PASS_BACKWARD;
  args.grad_out = t->grad_out;
  args.grad_query = t->grad[0];
  args.grad_key = t->grad[1];
  args.grad_value = t->grad[2];
  ck_ok(dfgnn_call(gpu, graph, &problem, &args, NULL));
  dfgnn_plan *plan = plan_on(gpu, graph, &problem);
  for (int k = 0; k < DFGNN_MAX_VIEWS; k++)
    padded |= plan->views[k] && dfgnn__is_padded(&plan->views[k]->request);
  return padded;
}

IN_CASE("plans")

TEST(plans_of_batches_wait_for_nothing_and_give_the_same) {
  /* rows, then columns, are uneven: both are cut */
  static const char *const uneven[] = {
      "powerlaw:nodes=500,edges=3400,max-degree=400,seed=4",
      "bipartite:nodes=900,sources=300,edges=3500,heavy=3,share=0.5,seed=5"};
  dfgnn_context *gpu = gpu_context();
  for (size_t way = 0; way < 2 * (sizeof uneven / sizeof *uneven); way++) {
    const size_t i = way / 2;
    dfgnn_graph *graph = NULL;
    dfgnn_csr *csr = generated(uneven[i]);
    dfgnn_coo list = list_of(csr, 1, 1);
    list.self_loops = way % 2;
    dfgnn_coo there = on_device(&list);
    pass_tensors t = tensors_of(&there);
    float *right[3] = {NULL};
    /* the first graphs of a shape are looked at, those after them are not */
    for (int turn = 0; turn < 4; turn++) {
      ck_ok(dfgnn_graph_create_deferred(&graph, gpu, &there, NULL));
      const int padded = run_both(gpu, graph, &t);
      if (turn == 0 || turn == 3)
        ck_assert_int_eq(padded, turn == 3);
      ck_assert_int_eq(!dfgnn__graph_known(graph), padded);
      ck_cu(CtxSynchronize);
      for (int k = 0; k < 3; k++) {
        const size_t bytes = (k ? t.of_src : t.of_dst) * sizeof *right[k];
        if (turn == 0)
          copy_memory(right[k] = zeros_of((int64_t)bytes, 1), t.grad[k], bytes);
        else
          same_array(gpu, t.grad[k], right[k], bytes, uneven[i], k);
        fill_device(t.grad[k], 0xff, bytes);
      }
      dfgnn_graph_destroy(graph);
    }
  }
}

IN_CASE("streams")

/* ---- streams ------------------------------------------------------------- */

TEST(a_graph_is_given_back_in_the_order_of_the_stream_that_used_it) {
  dfgnn_context *gpu = gpu_context();
  const cu_stream streams[] = {make_stream(), make_stream(), NULL};
  dfgnn_graph *graph = graph_of(gpu, specs[4]);
  void *used = streams[0];
  ck_assert_int_eq(dfgnn__graph_stream(graph, &used), 1);
  ck_assert_ptr_null(used);
  for (int several = 0; several < 2; several++) {
    for (int k = 0; k < 3; k++) {
      dfgnn__graph_used(graph, streams[k]);
      ck_assert_int_eq(dfgnn__graph_stream(graph, &used), several ? k == 0 : 1);
      ck_assert_ptr_eq(used, several && k ? NULL : streams[k]);
      if (!several) {
        dfgnn__graph_used(graph, streams[k]);
        ck_assert_int_eq(dfgnn__graph_stream(graph, &used), 1);
        disown(graph);
        dfgnn_graph_destroy_on(graph, DFGNN_STREAM_USED);
        graph = graph_of(gpu, specs[4]);
      }
    }
  }
  disown(graph);
  dfgnn_graph_destroy_on(graph, DFGNN_STREAM_USED);
  ck_cu(CtxSynchronize);
  ck_cu(StreamDestroy, streams[0]);
  ck_cu(StreamDestroy, streams[1]);
}

GPU_MAIN("gpu_lists")
