/* MLPs on edges on a GPU: both passes against the evaluation in double, and the
 * same bits in every run. */
#include "tests/gpu/gpu.h"

#include "kernels/common/cublaslt.h"
#include "kernels/mlp/cuda/run.h"
#include "tests/common/edge_mlps.h"
#include "tests/common/mlps.h"

typedef struct fixture {
  dfgnn_context *cpu, *gpu;
  dfgnn_graph *host, *device;
  int64_t destinations, sources, edges;
} fixture;

enum { MOST_EDGES = 8000 };

static dfgnn_graph *graph_on(dfgnn_context *ctx, const fixture *f,
                             const int32_t *dst, const int32_t *src) {
  dfgnn_graph *graph = NULL;
  dfgnn_coo coo = DFGNN_COO_INIT;
  coo.destinations = f->destinations;
  coo.sources = f->sources;
  coo.edges = f->edges;
  coo.destination = dst;
  coo.source = src;
  coo.index_type = DFGNN_INDEX_I32;
  ck_ok(dfgnn_graph_create_coo(&graph, ctx, &coo, NULL));
  return graph;
}

/* An edge list in no order: `rows` destinations, of which row 7 has `hub` edges
 * and every fifth none; 29 sources, of which source 3 has a quarter of the
 * edges and the last few none.  hub < 0: no edges. */
static fixture graph_with(int rows, int hub) {
  fixture f = {.cpu = context_on("cpu", "", 2),
               .gpu = gpu_context(),
               .destinations = rows,
               .sources = 29};
  static int32_t dst[MOST_EDGES], src[MOST_EDGES];
  uint64_t state = 11;
  for (int i = 0; i < rows && hub >= 0; i++)
    for (int k = 0; k < (i == 7 ? hub : i % 5 ? i % 9 : 0); k++) {
      const int source = (int)((uniform(&state) + 1) * 13);
      ck_assert_int_lt(f.edges, MOST_EDGES);
      dst[f.edges] = i;
      src[f.edges++] = k % 4 ? source : 3;
    }
  for (int e = (int)f.edges - 1; e > 0; e--) {
    const int other = (int)((uniform(&state) + 1) / 2 * e);
    const int32_t d = dst[e], s = src[e];
    dst[e] = dst[other], src[e] = src[other];
    dst[other] = d, src[other] = s;
  }
  f.host = graph_on(f.cpu, &f, dst, src);
  f.device = graph_on(f.gpu, &f, dst, src);
  return f;
}

static void free_fixture(fixture *f) {
  dfgnn_graph_destroy(f->host);
  dfgnn_graph_destroy(f->device);
  dfgnn_context_destroy(f->cpu);
  dfgnn_context_destroy(f->gpu);
}

/* ---- tensors on the device ----------------------------------------------- */

/* How far the copy of a block begins behind an aligned address: an element, if
 * `odd`. */
static size_t shift_of(const mlp_case *c, int block, int odd) {
  return odd ? c->block[block].element : 0;
}

/* Arguments whose tensors are copies on the device. */
static dfgnn_edge_mlp_args on_device(const dfgnn_edge_mlp_args *args,
                                     const mlp_case *c, void **copies,
                                     int odd) {
  dfgnn_edge_mlp_args to = *args;
  char *members = (char *)&to;
  for (size_t at = sizeof(size_t); at < sizeof to; at += sizeof(void *)) {
    void *p;
    memcpy(&p, members + at, sizeof p);
    for (int i = 0; i < c->count && p; i++)
      if (p == c->block[i].data) {
        p = (char *)copies[i] + shift_of(c, i, odd);
        memcpy(members + at, &p, sizeof p);
        break;
      }
  }
  return to;
}

static void copy_blocks(void **copies, const mlp_case *c, int odd) {
  for (int i = 0; i < c->count; i++) {
    const size_t shift = shift_of(c, i, odd);
    copies[i] = device_memory(c->block[i].bytes + shift);
    copy_memory((char *)copies[i] + shift, c->block[i].data, c->block[i].bytes);
  }
}

/* Takes the blocks back; if `again`, they have to have the bits of the host's.
 */
static void take_blocks(mlp_case *c, void **copies, int odd, int again) {
  for (int i = 0; i < c->count; i++) {
    void *before = malloc(c->block[i].bytes + 1);
    memcpy(before, c->block[i].data, c->block[i].bytes);
    copy_memory(c->block[i].data, (char *)copies[i] + shift_of(c, i, odd),
                c->block[i].bytes);
    ck_assert_msg(!again ||
                      !memcmp(before, c->block[i].data, c->block[i].bytes),
                  "block %d has other bits in the second run", i);
    free(before);
    free_device(copies[i]);
  }
}

static void execute(const fixture *f, const dfgnn_edge_mlp *mlp,
                    const dfgnn_edge_mlp_args *args, dfgnn_pass pass,
                    const dfgnn_mlp_tuning *tuning) {
  const dfgnn_queue queue = {.engine = dfgnn__context_engine(f->gpu)};
  dfgnn_mlp_job job = {.mlp = *mlp, .args = *args, .pass = pass};
  dfgnn_view_request requests[DFGNN_MAX_VIEWS] = {0};
  const dfgnn_view *views[DFGNN_MAX_VIEWS] = {0};
  if (!tuning) {
    ck_ok(dfgnn_edge_mlp_execute(mlp, f->device, args, pass, NULL));
    return;
  }
  ck_ok(dfgnn__graph_know(f->device));
  job.rows = f->device->exact;
  if (!mlp->edge_list)
    job.rows.edge_order = NULL;
  const int count = dfgnn__mlp_cuda_views(&job, requests);
  for (int i = 0; i < count; i++)
    ck_ok(dfgnn__graph_view(&views[i], f->device, &requests[i]));
  void *workspace =
      device_memory(dfgnn__mlp_plan(&job, &f->gpu->info, tuning).bytes);
  ck_ok(dfgnn__mlp_cuda_tuned(&job, views, &queue, &f->gpu->info, tuning,
                              workspace));
  ck_cu(CtxSynchronize);
  free_device(workspace);
}

static void is_right(const fixture *f, const mlp_case *c, const char *what) {
  for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++) {
    const char *where = "";
    double worst = -1;
    ck_ok(dfgnn_edge_mlp_check(&worst, &where, &c->mlp, f->host,
                               pass ? &c->backward : &c->forward,
                               (dfgnn_pass)pass));
    ck_assert_msg(worst <= 1, "%s, pass %d: %s is %g times its bound off", what,
                  pass, where, worst);
  }
}

/* Of a check: tensors begin behind an element; edges have factors; inner values
 * are kept between the passes. */
enum { ODD = 1, FACTORS = 2, KEPT = 4 };

static void check(const fixture *f, const dfgnn_edge_mlp *mlp,
                  const dfgnn_mlp_tuning *tuning, int flags, const char *what) {
  const int odd = (flags & ODD) != 0;
  mlp_case c;
  void *copies[MLP_BLOCKS];
  mlp_make(&c, mlp, f->destinations, f->sources, f->edges,
           (flags & FACTORS) != 0, 17);
  if (flags & KEPT)
    mlp_keep(&c);
  for (int again = 0; again < 2; again++) {
    copy_blocks(copies, &c, odd);
    for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++) {
      const dfgnn_edge_mlp_args args =
          on_device(pass ? &c.backward : &c.forward, &c, copies, odd);
      execute(f, mlp, &args, (dfgnn_pass)pass, tuning);
    }
    ck_cu(CtxSynchronize);
    take_blocks(&c, copies, odd, again);
  }
  is_right(f, &c, what);
  mlp_free(&c);
}

/* ---- tests --------------------------------------------------------------- */

START_TEST(every_shape_is_right_in_both_passes) {
  char what[32];
  if (!in_part(_i))
    return;
  fixture f = graph_with(quick() ? 31 : 200, quick() ? 90 : 3000);
  snprintf(what, sizeof what, "MLP %d", _i);
  check(&f, &edge_mlps[_i], NULL, 0, what);
  free_fixture(&f);
}
END_TEST

START_TEST(a_graph_without_edges_gives_zeros) {
  fixture f = graph_with(9, -1);
  check(&f, &edge_mlps[_i], NULL, 0, "no edges");
  free_fixture(&f);
}
END_TEST

/* Rows that are cut by spans, which are cut by launches; blocks of a warp; both
 * ways, and every size of a streamed product. */
static const dfgnn_mlp_tuning tunings[] = {
    {.warps = 1, .span = 1, .launch_bytes = 1},
    {.warps = 4, .span = 3, .launch_bytes = 100000},
    {.warps = 2, .span = 100},
    {.warps = 4, .span = 2, .lockstep = DFGNN_MLP_LOCKSTEP},
    {.way = DFGNN_MLP_STREAMED, .launch_bytes = 1, .stages = 2},
    {.way = DFGNN_MLP_STREAMED, .columns = 256, .stages = 4},
    {.way = DFGNN_MLP_STREAMED, .wgmma = DFGNN_MLP_WGMMA, .stages = 2},
    {.way = DFGNN_MLP_STREAMED, .wgmma = DFGNN_MLP_WGMMA, .columns = 256},
    {.wgmma = DFGNN_MLP_WGMMA, .launch_bytes = 100000},
};
enum { TUNINGS = sizeof tunings / sizeof *tunings };

START_TEST(every_way_to_divide_is_right) {
  static const int some[] = {0, 1, 8, 9};
  const dfgnn_edge_mlp *mlp = &edge_mlps[some[_i % 4]];
  char what[32];
  if (!in_part(_i))
    return;
  if (tunings[_i / 4].wgmma == DFGNN_MLP_WGMMA && mlp->dtype == DFGNN_F32)
    return;
  fixture f = graph_with(31, 300);
  snprintf(what, sizeof what, "MLP %d, tuning %d", some[_i % 4], _i / 4);
  check(&f, mlp, &tunings[_i / 4], 0, what);
  free_fixture(&f);
}
END_TEST

START_TEST(tensors_that_are_not_aligned_are_right) {
  fixture f = graph_with(31, 40);
  check(&f, &edge_mlps[0], _i ? &tunings[4] : NULL, ODD,
        "shifted by an element");
  free_fixture(&f);
}
END_TEST

START_TEST(factors_of_edges_are_right_in_both_passes) {
  static const int some[] = {0, 1, 2, 3, 9, 11};
  fixture f = graph_with(31, 90);
  check(&f, &edge_mlps[some[_i]], NULL, FACTORS, "factors of edges");
  free_fixture(&f);
}
END_TEST

/* By the rule, in launches of a span, and layer by layer; of one layer, too. */
static const dfgnn_mlp_tuning kept_by[] = {
    {0},
    {.warps = 4, .span = 3, .launch_bytes = 1},
    {.way = DFGNN_MLP_STREAMED, .launch_bytes = 1},
};
enum { KEPT_BY = sizeof kept_by / sizeof *kept_by };

START_TEST(inner_values_that_are_kept_are_right_in_both_passes) {
  const dfgnn_edge_mlp *mlp = &edge_mlps[_i / KEPT_BY];
  const int factors = mlp->norm != DFGNN_NORM_NONE ? FACTORS : 0;
  char what[48];
  if (!in_part(_i))
    return;
  fixture f = graph_with(31, _i % 2 ? 300 : 60);
  snprintf(what, sizeof what, "kept, MLP %d, tuning %d", _i / KEPT_BY,
           _i % KEPT_BY);
  check(&f, mlp, &kept_by[_i % KEPT_BY], KEPT | factors | _i % 2, what);
  free_fixture(&f);
}
END_TEST

/* MLPs whose rows are whole multiples of 64 bytes. */
static const dfgnn_edge_mlp by_library[] = {
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_BF16, .layers = 3, .edge_dim = 64,
     .width = {96, 160, 64}, .activation = DFGNN_ACTIVATION_SILU,
     .norm = DFGNN_NORM_LAYER, .epsilon = 1e-5, .residual = 1,
     .reduce_dst = DFGNN_REDUCE_SUM, .edge_list = 1},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_F32, .math = DFGNN_MATH_TF32,
     .layers = 2, .edge_dim = 48, .width = {144, 48},
     .activation = DFGNN_ACTIVATION_GELU, .last = DFGNN_ACTIVATION_TANH,
     .norm = DFGNN_NORM_RMS, .epsilon = 1e-5, .reduce_dst = DFGNN_REDUCE_MEAN,
     .reduce_src = DFGNN_REDUCE_SUM},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_F16, .layers = 2, .edge_dim = 32,
     .width = {64, 64}, .activation = DFGNN_ACTIVATION_RELU,
     .last = DFGNN_ACTIVATION_SOFTPLUS, .gate = 1, .norm = DFGNN_NORM_LAYER,
     .epsilon = 1e-5, .residual = 1, .reduce_src = DFGNN_REDUCE_MEAN},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_BF16, .layers = 2,
     .width = {64, 96}, .activation = DFGNN_ACTIVATION_RELU,
     .reduce_dst = DFGNN_REDUCE_MAX},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_BF16, .layers = 1, .edge_dim = 32,
     .width = {64}, .last = DFGNN_ACTIVATION_TANH, .gate = 1,
     .reduce_dst = DFGNN_REDUCE_MIN, .reduce_src = DFGNN_REDUCE_MAX,
     .edge_list = 1},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_BF16, .layers = 1, .width = {32}},
};
enum { BY_LIBRARY = sizeof by_library / sizeof *by_library };

/* One launch; a launch for each 128 edges; no edges; tensors that a library
 * cannot read, for which our kernels stand in. */
START_TEST(products_of_a_library_are_right) {
  const dfgnn_mlp_tuning tuning = {.way = DFGNN_MLP_STREAMED,
                                   .product = DFGNN_MLP_LIBRARY,
                                   .launch_bytes = _i % 4 == 1 ? 1 : 0};
  const dfgnn_edge_mlp *mlp = &by_library[_i / 4];
  char what[48];
  if (!in_part(_i))
    return;
  fixture f = graph_with(31, _i % 4 == 2 ? -1 : 300);
  const dfgnn_mlp_job job = {.mlp = *mlp, .pass = DFGNN_PASS_BACKWARD};
  const char *why = dfgnn__mlp_cuda_refuses(&job, &f.gpu->info, &tuning);
  if (dfgnn__has_cublaslt()) {
    ck_assert_msg(!why, "%s", why);
    snprintf(what, sizeof what, "MLP %d by a library, way %d", _i / 4, _i % 4);
    check(&f, mlp, &tuning, _i % 4 == 3 ? ODD : 0, what);
    check(&f, mlp, &tuning, KEPT | (_i % 4 == 3 ? ODD : 0), what);
  } else {
    ck_assert_ptr_nonnull(strstr(why, "DFGNN_CUBLASLT"));
  }
  free_fixture(&f);
}
END_TEST

/* Puts both passes on a stream, whose plans and workspaces were made before. */
static void execute_both(const fixture *f, const mlp_case *c, void **copies,
                         void *const *workspaces, cu_stream stream) {
  for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++) {
    const dfgnn_edge_mlp_args args =
        on_device(pass ? &c->backward : &c->forward, c, copies, 0);
    ck_ok(dfgnn_edge_mlp_execute_in(&c->mlp, f->device, &args, (dfgnn_pass)pass,
                                    workspaces[pass], stream));
  }
}

static cu_graph_exec capture_both(const fixture *f, const mlp_case *c,
                                  void **copies, void *const *workspaces,
                                  cu_stream stream) {
  cu_graph graph = NULL;
  cu_graph_exec exec = NULL;
  ck_cu(StreamBeginCapture, stream, CU_CAPTURE_GLOBAL);
  execute_both(f, c, copies, workspaces, stream);
  ck_cu(StreamEndCapture, stream, &graph);
  ck_cu(GraphInstantiate, &exec, graph, 0);
  ck_cu(GraphDestroy, graph);
  return exec;
}

static void make_workspaces(void **workspaces, const fixture *f,
                            const mlp_case *c, void **copies) {
  for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++) {
    size_t bytes = 0;
    const dfgnn_edge_mlp_args args =
        on_device(pass ? &c->backward : &c->forward, c, copies, 0);
    ck_ok(dfgnn_edge_mlp_workspace(&bytes, &c->mlp, f->device, &args,
                                   (dfgnn_pass)pass));
    workspaces[pass] = device_memory(bytes);
  }
}

/* Layers are wide, so that the rule leaves products to the library. */
START_TEST(captured_products_of_a_library_replay_to_the_same_bits) {
  dfgnn_edge_mlp mlp = by_library[0];
  mlp.edge_dim = mlp.width[0] = mlp.width[1] = mlp.width[2] = 256;
  fixture f = graph_with(9, 40);
  void *copies[MLP_BLOCKS], *workspaces[DFGNN_PASS_COUNT];
  cu_stream stream = make_stream();
  cu_graph_exec exec = NULL;
  mlp_case c;
  mlp_make(&c, &mlp, f.destinations, f.sources, f.edges, 0, 17);
  if (_i)
    mlp_keep(&c);
  for (int run = 0; run < 3; run++) { /* directly, and as two replays */
    copy_blocks(copies, &c, 0);
    if (!run) {
      make_workspaces(workspaces, &f, &c, copies);
      execute_both(&f, &c, copies, workspaces, stream);
    } else {
      exec = capture_both(&f, &c, copies, workspaces, stream);
      ck_cu(GraphLaunch, exec, stream);
    }
    ck_cu(StreamSynchronize, stream);
    if (exec)
      ck_cu(GraphExecDestroy, exec);
    take_blocks(&c, copies, 0, run);
  }
  is_right(&f, &c, "captured");
  for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++)
    free_device(workspaces[pass]);
  mlp_free(&c);
  ck_cu(StreamDestroy, stream);
  free_fixture(&f);
}
END_TEST

START_TEST(a_library_multiplies_wide_layers_by_rule) {
  fixture f = graph_with(9, 3);
  dfgnn_mlp_job job = {.mlp = by_library[0], .pass = DFGNN_PASS_BACKWARD};
  const int64_t there =
      dfgnn__has_cublaslt() ? DFGNN_MLP_LIBRARY : DFGNN_MLP_OWN;
  job.mlp.edge_dim = job.mlp.width[0] = job.mlp.width[2] = 512;
  ck_assert_int_eq(dfgnn__mlp_rule(&job, &f.gpu->info, NULL).product, there);
  job.args.weight[1] = (const char *)&job + 2;
  ck_assert_int_eq(dfgnn__mlp_rule(&job, &f.gpu->info, NULL).product,
                   DFGNN_MLP_OWN);
  free_fixture(&f);
}
END_TEST

static dfgnn_mlp_job job_of(const dfgnn_edge_mlp *mlp) {
  return (dfgnn_mlp_job){.mlp = *mlp, .pass = DFGNN_PASS_BACKWARD};
}

static const char *refusal(const fixture *f, const dfgnn_edge_mlp *mlp,
                           const dfgnn_mlp_tuning *tuning) {
  const dfgnn_mlp_job job = job_of(mlp);
  return dfgnn__mlp_cuda_refuses(&job, &f->gpu->info, tuning);
}

START_TEST(every_value_of_a_knob_is_right_or_refused) {
  const dfgnn_mlp_knob *knob = &dfgnn__mlp_knobs[_i];
  fixture f = graph_with(31, 60);
  int ran = 0;
  ck_assert_int_gt(knob->count, 1);
  for (int way = DFGNN_MLP_RESIDENT; way <= DFGNN_MLP_STREAMED; way++)
    for (int k = 0; k < knob->count && knob->ways >> way & 1; k++) {
      dfgnn_mlp_tuning tuning = {.way = way};
      char what[64];
      memcpy((char *)&tuning + knob->offset, &knob->value[k],
             sizeof knob->value[k]);
      snprintf(what, sizeof what, "%s %lld", knob->name,
               (long long)knob->value[k]);
      if (refusal(&f, &edge_mlps[0], &tuning))
        continue;
      check(&f, &edge_mlps[0], &tuning, 0, what);
      ran++;
    }
  ck_assert_msg(ran > 1, "%s ran %d times", knob->name, ran);
  free_fixture(&f);
}
END_TEST

START_TEST(a_tuning_that_cannot_run_is_refused) {
  static const struct {
    dfgnn_mlp_tuning tuning;
    const char *says;
  } bad[] = {{{.way = 3}, "way"},
             {{.warps = 33}, "warps"},
             {{.span = -1}, "span"},
             {{.lockstep = 3}, "lockstep"},
             {{.columns = 64}, "columns"},
             {{.stages = 5}, "stages"},
             {{.wgmma = 3}, "wgmma"},
             {{.launch_bytes = -1}, "launch_bytes"},
             {{.product = 3}, "product"},
             {{.way = 2, .product = 2, .stages = 2}, "own products"}};
  fixture f = graph_with(9, 3);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    const char *why = refusal(&f, &edge_mlps[0], &bad[i].tuning);
    ck_assert_ptr_nonnull(why);
    ck_assert_msg(strstr(why, bad[i].says) != NULL, "%s", why);
  }
  for (int i = 9; i < EDGE_MLPS; i++) {
    const dfgnn_mlp_tuning resident = {.way = DFGNN_MLP_RESIDENT};
    const dfgnn_mlp_job job = job_of(&edge_mlps[i]);
    const int64_t way = dfgnn__mlp_rule(&job, &f.gpu->info, NULL).way;
    ck_assert_int_eq(way, i < EDGE_MLPS - 1 ? DFGNN_MLP_STREAMED : way);
    ck_assert_int_eq(refusal(&f, &edge_mlps[i], &resident) != NULL,
                     way == DFGNN_MLP_STREAMED);
  }
  free_fixture(&f);
}
END_TEST

START_TEST(what_is_not_served_is_said) {
  fixture f = graph_with(9, 3);
  dfgnn_edge_mlp mlp = edge_mlps[0];
  dfgnn_edge_mlp_args args = DFGNN_EDGE_MLP_ARGS_INIT;
  args.edge = args.weight[0] = args.weight[1] = args.weight[2] = &mlp;
  args.edge_out = args.out_dst = &mlp;
  ck_ok(dfgnn_edge_mlp_serves(&mlp, f.device, &args, DFGNN_PASS_FORWARD));
  mlp.dtype = DFGNN_F64;
  ck_assert_int_eq(
      dfgnn_edge_mlp_serves(&mlp, f.device, &args, DFGNN_PASS_FORWARD),
      DFGNN_ERROR_UNSUPPORTED);
  ck_assert_ptr_nonnull(strstr(dfgnn_last_error(), "f64"));
  free_fixture(&f);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("gpu_mlp");
  TCase *run_case = tcase_create("mlps");
  tcase_set_timeout(run_case, 0);
  tcase_add_loop_test(run_case, every_shape_is_right_in_both_passes, 0,
                      EDGE_MLPS);
  suite_add_tcase(suite, run_case);
  TCase *others = tcase_create("others");
  tcase_set_timeout(others, 0);
  tcase_add_loop_test(others, a_graph_without_edges_gives_zeros, 1, EDGE_MLPS);
  tcase_add_loop_test(others, every_way_to_divide_is_right, 0, 4 * TUNINGS);
  tcase_add_loop_test(others, tensors_that_are_not_aligned_are_right, 0, 2);
  tcase_add_loop_test(others, factors_of_edges_are_right_in_both_passes, 0, 6);
  tcase_add_loop_test(others, every_value_of_a_knob_is_right_or_refused, 0,
                      DFGNN_MLP_KNOBS);
  tcase_add_test(others, a_tuning_that_cannot_run_is_refused);
  tcase_add_test(others, what_is_not_served_is_said);
  suite_add_tcase(suite, others);
  TCase *kept = tcase_create("kept");
  tcase_set_timeout(kept, 0);
  tcase_add_loop_test(kept, inner_values_that_are_kept_are_right_in_both_passes,
                      0, KEPT_BY * EDGE_MLPS);
  suite_add_tcase(suite, kept);
  TCase *library = tcase_create("library");
  tcase_set_timeout(library, 0);
  tcase_add_loop_test(library, products_of_a_library_are_right, 0,
                      4 * BY_LIBRARY);
  tcase_add_test(library, a_library_multiplies_wide_layers_by_rule);
  suite_add_tcase(suite, library);
  TCase *captured = tcase_create("captured");
  tcase_set_timeout(captured, 0);
  tcase_add_loop_test(
      captured, captured_products_of_a_library_replay_to_the_same_bits, 0, 2);
  suite_add_tcase(suite, captured);
  return run_on_gpu(suite);
}
