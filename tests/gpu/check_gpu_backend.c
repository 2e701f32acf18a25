/* check_gpu_backend.c - the CUDA backend against the CPU's: analysis, views,
 * errors, timing */
#include <math.h>

#include "tests/gpu/gpu.h"

static const char *const specs[] = {
    "sbm-pattern:batch=8,seed=1",
    "knn:batch=16,seed=2",
    "region:batch=4,seed=3",
    "powerlaw:nodes=5000,edges=60000,max-degree=3000,seed=4",
    "powerlaw:nodes=3000,edges=40000,max-degree=500,columns=local,seed=5",
    "uniform:nodes=1000,sources=3000,edges=5000,seed=6",
    "uniform:nodes=4000,edges=3000,seed=7",
    "grid:rows=40,columns=30",
    "uniform:nodes=100000,edges=700000,seed=8",            /* 17 bits a node */
    "uniform:nodes=400,edges=20000,seed=9",                /* 9 bits */
    "uniform:nodes=60,sources=20000,edges=400000,seed=10", /* long rows */
};

static void same_signature(const dfgnn_signature *gpu,
                           const dfgnn_signature *cpu, const char *label) {
#define SAME(field)                                                            \
  ck_assert_msg(gpu->field == cpu->field,                                      \
                "%s: " #field " is %.17g, CPU %.17g", label,                   \
                (double)gpu->field, (double)cpu->field)
  SAME(destinations);
  SAME(sources);
  SAME(edges);
  SAME(max_degree);
  SAME(mean_degree);
  SAME(p50_degree);
  SAME(p90_degree);
  SAME(p99_degree);
  SAME(isolated);
  for (int b = 0; b < DFGNN_HISTOGRAM_BINS; b++)
    SAME(histogram[b]);
  SAME(reuse);
  SAME(locality);
  SAME(graphs);
  SAME(largest_graph);
  SAME(density);
  SAME(fingerprint);
#undef SAME
  ck_assert_msg(fabs(gpu->degree_cv - cpu->degree_cv) <=
                    1e-9 * (1 + cpu->degree_cv),
                "%s: degree_cv is %.17g, CPU %.17g", label, gpu->degree_cv,
                cpu->degree_cv);
}

static void compare_signatures(dfgnn_context *gpu, dfgnn_context *cpu,
                               const dfgnn_csr *csr, const char *label) {
  dfgnn_signature found = DFGNN_SIGNATURE_INIT, expected = found;
  dfgnn_graph *on_gpu = NULL, *on_cpu = NULL;
  on_gpu = graph_on(gpu, csr);
  on_cpu = graph_on(cpu, csr);
  ck_ok(dfgnn_graph_signature(&found, on_gpu));
  ck_ok(dfgnn_graph_signature(&expected, on_cpu));
  same_signature(&found, &expected, label);
}

IN_CASE("signature")

TEST(the_signature_is_the_same_on_both_devices) {
  dfgnn_context *gpu = gpu_context(), *cpu = cpu_context("");
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    dfgnn_csr *csr = generated(specs[i]);
    compare_signatures(gpu, cpu, csr, specs[i]);
    csr->graphs = 0; /* the blocks are found, not given */
    const int64_t *kept = csr->graph_ptr;
    csr->graph_ptr = NULL;
    compare_signatures(gpu, cpu, csr, specs[i]);
    csr->graph_ptr = kept;
  }
}

/* Random blocks on the diagonal with isolated rows between and inside. */
TEST(diagonal_blocks_are_found_as_on_the_cpu) {
  dfgnn_context *gpu = gpu_context(), *cpu = cpu_context("");
  uint64_t seed = 20261121;
  printf("seed %llu\n", (unsigned long long)seed);
  for (int round = 0; round < 40; round++) {
    enum { N = 300 };
    int32_t offsets[N + 1] = {0}, indices[N * 4];
    int32_t edges = 0;
    for (int begin = 0; begin < N;) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      int size = 1 + (int)(seed >> 33) % 12, isolated = (seed >> 60) < 6;
      size = size < N - begin ? size : N - begin;
      for (int i = begin; i < begin + size; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        int degree = isolated ? 0 : (int)(seed >> 33) % 4;
        for (int k = 0; k < degree; k++)
          indices[edges++] = begin + (int)((seed >> (8 * k)) & 0xff) % size;
        offsets[i + 1] = edges;
      }
      begin += size;
    }
    dfgnn_csr csr = csr32(N, N, offsets, indices);
    compare_signatures(gpu, cpu, &csr, "random blocks");
  }
}

TEST(small_graphs_have_signatures) {
  dfgnn_context *gpu = gpu_context(), *cpu = cpu_context("");
  const int32_t none[] = {0, 0, 0, 0}, loop[] = {0, 1}, first[] = {0};
  dfgnn_csr csr = csr32(0, 0, none, first);
  compare_signatures(gpu, cpu, &csr, "no rows");
  csr = csr32(3, 3, none, first);
  compare_signatures(gpu, cpu, &csr, "no edges");
  csr = csr32(1, 1, loop, first);
  compare_signatures(gpu, cpu, &csr, "one loop");
  csr = csr32(1, 7, loop, first);
  compare_signatures(gpu, cpu, &csr, "one row");
}

/* ---- views --------------------------------------------------------------- */

static void compare_views(dfgnn_graph *on_gpu, dfgnn_graph *on_cpu,
                          dfgnn_view_request request, const char *label) {
  const dfgnn_view *found = NULL, *expected = NULL;
  ck_ok(dfgnn__graph_view(&found, on_gpu, &request));
  ck_ok(dfgnn__graph_view(&expected, on_cpu, &request));
  ck_assert_int_eq(found->count, expected->count);
  /* the GPU gives a bound for a small matrix, without waiting for its largest
   * column */
  if (request.kind == DFGNN_VIEW_TRANSPOSE)
    ck_assert_int_ge(found->extra, expected->extra);
  else
    ck_assert_int_eq(found->extra, expected->extra);
  const dfgnn_matrix *m = &on_cpu->matrix;
  const size_t n = (size_t)(request.transposed ? m->sources : m->destinations);
  const size_t count = (size_t)expected->count, edges = (size_t)m->edges;
  const size_t width = m->offsets64 ? 8 : 4;
  const size_t items[] = {count * 4, (count + 1) * 8, (n + 1) * 4,
                          (size_t)expected->extra * 4};
  const size_t columns[] = {(count + 1) * width, edges * 4, edges * width, 0};
  const size_t slices[] = {(count + n) * width};
  const size_t *bytes = request.kind == DFGNN_VIEW_TRANSPOSE ? columns
                        : request.kind == DFGNN_VIEW_SLICES  ? slices
                                                             : items;
  int arrays = request.kind == DFGNN_VIEW_WORK_ITEMS  ? 4
               : request.kind == DFGNN_VIEW_TRANSPOSE ? 3
                                                      : 1;
  for (int k = 0; k < arrays; k++)
    same_array(on_gpu->ctx, found->array[k], expected->array[k], bytes[k],
               label, k);
}

IN_CASE("views")

TEST(views_are_the_same_on_both_devices) {
  dfgnn_context *gpu = gpu_context(), *cpu = cpu_context("");
  static const dfgnn_view_request requests[] = {
      {DFGNN_VIEW_ROW_OF_EDGE, 0, 0},  {DFGNN_VIEW_DEGREE_ORDER, 0, 0},
      {DFGNN_VIEW_WORK_ITEMS, 1, 0},   {DFGNN_VIEW_WORK_ITEMS, 32, 0},
      {DFGNN_VIEW_WORK_ITEMS, 256, 0}, {DFGNN_VIEW_TRANSPOSE, 0, 0},
      {DFGNN_VIEW_DEGREE_ORDER, 0, 1}, {DFGNN_VIEW_WORK_ITEMS, 32, 1},
      {DFGNN_VIEW_SLICES, 1, 0},       {DFGNN_VIEW_SLICES, 3, 1},
      {DFGNN_VIEW_PLACE_ORDER, 0, 0},  {DFGNN_VIEW_PLACE_ORDER, 0, 1}};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    dfgnn_graph *on_gpu = NULL, *on_cpu = NULL;
    dfgnn_csr *csr = NULL; /* borrowed by the CPU */
    csr = generated(specs[i]);
    on_gpu = graph_on(gpu, csr);
    on_cpu = graph_on(cpu, csr);
    for (size_t k = 0; k < sizeof requests / sizeof *requests; k++)
      compare_views(on_gpu, on_cpu, requests[k], specs[i]);
  }
}

/* ---- arrays in device memory --------------------------------------------- */

IN_CASE("arrays")

TEST(device_arrays_of_64_bits_are_read) {
  dfgnn_context *gpu = gpu_context(), *cpu = cpu_context("");
  dfgnn_signature found = DFGNN_SIGNATURE_INIT, expected = found;
  dfgnn_csr *csr = generated(specs[3]);
  size_t n = (size_t)csr->destinations + 1, m = (size_t)csr->edges;
  int64_t *offsets = zeros_of((int64_t)n, 8);
  int64_t *indices = zeros_of((int64_t)m, 8);
  for (size_t i = 0; i < n; i++)
    offsets[i] = csr->offset_type == DFGNN_INDEX_I64
                     ? ((const int64_t *)csr->offsets)[i]
                     : ((const int32_t *)csr->offsets)[i];
  for (size_t e = 0; e < m; e++)
    indices[e] = csr->index_type == DFGNN_INDEX_I64
                     ? ((const int64_t *)csr->indices)[e]
                     : ((const int32_t *)csr->indices)[e];
  dfgnn_csr wide = *csr;
  wide.offset_type = wide.index_type = DFGNN_INDEX_I64;
  wide.offsets = offsets;
  wide.indices = indices;
  dfgnn_graph *graph = graph_on(cpu, &wide);
  ck_ok(dfgnn_graph_signature(&expected, graph));
  wide.offsets = to_device(offsets, n * 8);
  wide.indices = to_device(indices, m * 8);
  wide.on_device = 1;
  graph = graph_on(gpu, &wide);
  ck_ok(dfgnn_graph_signature(&found, graph));
  same_signature(&found, &expected, "64-bit arrays");

  const int64_t beyond = (int64_t)1 << 31;
  copy_memory((int64_t *)wide.indices + 5, &beyond, 8);
  ck_invalid(dfgnn_graph_create_csr(&graph, gpu, &wide, NULL),
             "indices[5] = 2147483648 is out of range");
}

TEST(columns_in_device_memory_are_taken) {
  dfgnn_context *gpu = gpu_context(), *cpu = cpu_context("");
  const dfgnn_view_request request = {.kind = DFGNN_VIEW_TRANSPOSE};
  dfgnn_graph *on_cpu = NULL, *on_gpu = NULL;
  const dfgnn_view *expected = NULL, *found = NULL;
  dfgnn_csr *csr = generated(specs[5]);
  on_cpu = graph_on(cpu, csr);
  ck_ok(dfgnn__graph_view(&expected, on_cpu, &request));
  const size_t edges = (size_t)csr->edges;
  dfgnn_csr there = *csr;
  there.on_device = there.trusted = 1;
  there.offsets = to_device(csr->offsets, ((size_t)csr->destinations + 1) * 4);
  there.indices = to_device(csr->indices, edges * 4);
  there.column_offsets =
      to_device(expected->array[0], ((size_t)csr->sources + 1) * 4);
  there.column_rows = to_device(expected->array[1], edges * 4);
  there.column_edges = to_device(expected->array[2], edges * 4);
  on_gpu = graph_on(gpu, &there);
  ck_ok(dfgnn__graph_view(&found, on_gpu, &request));
  ck_assert_ptr_eq(found->array[1], there.column_rows);
  compare_views(on_gpu, on_cpu, request, "columns");
  compare_views(on_gpu, on_cpu,
                (dfgnn_view_request){DFGNN_VIEW_DEGREE_ORDER, 0, 1},
                "an order of columns");
}

static void refused(dfgnn_context *gpu, const int32_t *offsets,
                    const int32_t *indices, int64_t edges, int64_t graphs,
                    const int64_t *graph_ptr, const char *text) {
  dfgnn_graph *graph = NULL;
  dfgnn_csr csr =
      INIT(dfgnn_csr, .destinations = 4, .sources = 4, .edges = edges,
           .offsets = to_device(offsets, 5 * sizeof *offsets),
           .indices = to_device(indices, 6 * sizeof *indices), .on_device = 1,
           .graphs = graphs, .graph_ptr = graph_ptr);
  /* The matrix is checked while the host goes on: the first call that needs it
   * reports the error, and so does every later one. */
  dfgnn_signature signature = DFGNN_SIGNATURE_INIT;
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  dfgnn_plan *plan = NULL;
  dfgnn_status status = dfgnn_graph_create_csr(&graph, gpu, &csr, NULL);
  if (!status) {
    ck_invalid(dfgnn_plan_create(&plan, gpu, graph, &problem), text);
    ck_invalid(dfgnn_graph_signature(&signature, graph), text);
    dfgnn_graph_destroy(graph);
  } else {
    ck_assert_msg(strstr(dfgnn_last_error(), text) != NULL, "%s",
                  dfgnn_last_error());
  }
  ck_assert_ptr_null(plan);
}

TEST(a_wrong_device_matrix_names_its_first_wrong_row) {
  dfgnn_context *gpu = gpu_context();
  const int32_t offsets[] = {0, 2, 4, 5, 6}, indices[] = {0, 1, 0, 1, 2, 3};
  const int32_t begins[] = {1, 2, 4, 5, 6}, falls[] = {0, 2, 1, 5, 6};
  const int32_t ends[] = {0, 2, 4, 5, 5}, beyond[] = {0, 2, 9, 5, 6};
  const int32_t columns[] = {0, 1, 0, 4, 2, -1},
                negative[] = {0, 1, 0, 1, -7, 3};
  const int64_t graphs[] = {0, 1, 4};
  refused(gpu, begins, indices, 6, 0, NULL, "row 0 is wrong");
  refused(gpu, falls, indices, 6, 0, NULL, "offsets fall at row 1");
  refused(gpu, ends, indices, 6, 0, NULL, "row 3 is wrong");
  refused(gpu, beyond, indices, 6, 0, NULL, "row 1");
  refused(gpu, offsets, columns, 6, 0, NULL, "indices[3] = 4 in row 1");
  refused(gpu, offsets, negative, 6, 0, NULL, "indices[4] = -7 in row 2");
  refused(gpu, offsets, indices, 6, 2, graphs, "row 0 leaves graph 0");
}

IN_CASE("time")

TEST(a_million_edges_on_the_device_are_analyzed_in_milliseconds) {
  NOT_QUICK;
  dfgnn_context *gpu = gpu_context();
  double best = 1e9;
  dfgnn_csr *csr =
      generated("powerlaw:nodes=170000,edges=1000000,max-degree=13000,seed=3");
  dfgnn_csr there = *csr;
  size_t wide = csr->offset_type == DFGNN_INDEX_I64 ? 8 : 4;
  size_t index = csr->index_type == DFGNN_INDEX_I64 ? 8 : 4;
  there.offsets =
      to_device(csr->offsets, ((size_t)csr->destinations + 1) * wide);
  there.indices = to_device(csr->indices, (size_t)csr->edges * index);
  there.on_device = 1;
  for (int i = 0; i < 5; i++) {
    double begin = seconds_now();
    graph_on(gpu, &there);
    double ms = 1e3 * (seconds_now() - begin);
    best = ms < best ? ms : best;
  }
  printf("graph of a million edges: %.3f ms\n", best);
  ck_assert_double_lt(best, 3);
}

/* ---- time and device ----------------------------------------------------- */

typedef struct fill_call {
  void *memory;
  size_t bytes;
  int calls;
} fill_call;

static dfgnn_status fill(void *data, void *stream) {
  fill_call *f = data;
  f->calls++;
  return dfgnn__driver()->MemsetD8Async(cu_address(f->memory), 1, f->bytes,
                                        stream)
             ? DFGNN_ERROR_DEVICE
             : DFGNN_OK;
}

TEST(time_follows_the_work) {
  NOT_QUICK;
  dfgnn_context *gpu = gpu_context();
  const dfgnn_backend *backend = gpu->backend;
  double bandwidth = 0, ms[2];
  ck_ok(backend->copy_bandwidth(gpu->device, &bandwidth));
  ck_assert_double_gt(bandwidth, 1e10);
  for (int cold = 0; cold < 2; cold++)
    for (int size = 0; size < 2; size++) {
      dfgnn_sample sample;
      fill_call f = {.bytes = size ? (size_t)512 << 20 : (size_t)256 << 20};
      ck_ok(backend->allocate(gpu->device, &f.memory, f.bytes));
      ck_ok(backend->time(gpu->device, &sample, fill, &f, 0, cold));
      backend->release(gpu->device, f.memory);
      ms[size] = sample.ms;
      if (size) { /* twice the bytes take twice the time */
        ck_assert_double_gt(ms[1], 1.6 * ms[0]);
        ck_assert_double_lt(ms[1], 2.5 * ms[0]);
        ck_assert_double_gt(1e3 * (double)f.bytes / ms[1], bandwidth / 6);
        ck_assert_double_lt(1e3 * (double)f.bytes / ms[1], 3 * bandwidth);
      }
    }
}

TEST(a_failing_call_fails_its_timing) {
  NOT_QUICK;
  dfgnn_context *gpu = gpu_context();
  dfgnn_sample sample;
  fill_call f = {.memory = (void *)8, .bytes = 64};
  ck_assert_int_ne(gpu->backend->time(gpu->device, &sample, fill, &f, 0, 0),
                   DFGNN_OK);
  ck_assert_int_eq(f.calls, 1);
}

IN_CASE("device")

TEST(the_device_is_described) {
  dfgnn_context *gpu = gpu_context();
  dfgnn_device_info info = DFGNN_DEVICE_INFO_INIT;
  ck_ok(dfgnn_context_device(&info, gpu));
  printf("%s, %s, %d multiprocessors, L2 %lld, shared %lld, driver %s, "
         "runtime %s\n",
         info.model, info.arch, info.units, (long long)info.cache_bytes,
         (long long)info.shared_bytes, info.driver, info.runtime);
  ck_assert_str_eq(info.backend, "cuda");
  ck_assert(!strncmp(info.arch, "sm_", 3));
  ck_assert_int_gt(info.units, 0);
  ck_assert_int_gt(info.cache_bytes, 0);
  ck_assert_int_gt(info.memory_bytes, 0);
  ck_assert_int_ge(info.shared_bytes, 48 << 10);
  ck_assert(strchr(info.driver, '.') && strchr(info.runtime, '.'));
}

IN_CASE("time")

TEST(too_large_an_allocation_is_an_error_that_passes) {
  NOT_QUICK;
  dfgnn_context *gpu = gpu_context();
  void *memory = NULL;
  ck_fails(gpu->backend->allocate(gpu->device, &memory, (size_t)1 << 50),
           DFGNN_ERROR_MEMORY, "cannot allocate");
  ck_assert_ptr_null(memory);
  ck_ok(gpu->backend->allocate(gpu->device, &memory, 1024));
  ck_assert_int_eq((int)((uintptr_t)memory % 256), 0);
  gpu->backend->release(gpu->device, memory);
}

GPU_MAIN("gpu_backend")
