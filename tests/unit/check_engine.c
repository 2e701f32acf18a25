/* check_engine.c - the engine against a scripted driver and compiler: what is
 * compiled, loaded and launched, and what happens when any of it fails */
#include "kernels/engine/cache.h"
#include "kernels/engine/constants.h"
#include "tests/unit/engine_script.h"

/* ---- programs ------------------------------------------------------------ */

TEST(a_program_reads_as_its_template_expression) {
  char text[128];
  const dfgnn_program p = program_of(7),
                      plain = {SCRIPT_SOURCE, SCRIPT_NAME, 0, {0}};
  dfgnn__program_text(text, sizeof text, &p);
  ck_assert_str_eq(text, "dfgnn::something<dfgnn::bfloat_t, 7, int64_t>");
  dfgnn__program_text(text, sizeof text, &plain);
  ck_assert_str_eq(text, "dfgnn::something");
}

#define SHAPE_CONSTANTS(X) X(type) X(lanes)
typedef struct shape_constants {
  SHAPE_CONSTANTS(DFGNN_CONSTANT_MEMBER)
} shape_constants;

TEST(constants_with_names_are_members_of_one_type) {
  char text[256];
  const shape_constants shape = {.lanes = 32, .type = DFGNN_TYPE(DFGNN_F64)};
  const dfgnn_program p = DFGNN_PROGRAM_OF(SCRIPT_SOURCE, "dfgnn::something",
                                           SHAPE_CONSTANTS, &shape);
  dfgnn__program_text(text, sizeof text, &p);
  ck_assert_str_eq(text, "dfgnn::something<type=double, lanes=32>");
  dfgnn__program_expression(text, sizeof text, &p);
  ck_assert_str_eq(text, "dfgnn::something<program_constants>");
  dfgnn__program_source(text, sizeof text, &p);
  ck_assert_ptr_nonnull(strstr(text, "struct program_constants {\n"
                                     "  using type = double;\n"
                                     "  static constexpr int lanes = 32;\n"
                                     "};\n"));
}

TEST(a_list_holds_each_program_once_and_launches_nothing) {
  dfgnn_programs *list = NULL;
  ck_ok(dfgnn__programs_create(&list));
  queue = (dfgnn_queue){.list = list};
  for (int i = 0; i < 40; i++)
    ck_ok(launch(i & 15, one));
  ck_ok(dfgnn__fill(&queue, NULL, 0, 100));
  ck_assert_uint_eq(dfgnn__programs_count(list), 16);
  ck_assert_int_eq(gpu.launched, 0);
  ck_assert_int_eq(nvrtc_script.compiled, 0);
  dfgnn__programs_destroy(list);
}

/* ---- launching ----------------------------------------------------------- */

TEST(a_kernel_is_compiled_and_loaded_once) {
  dfgnn_kernel_info info;
  const dfgnn_program p = program_of(1);
  open_engine();
  ck_assert_int_eq(dfgnn__engine_kernel_info(&info, engine, &p), 0);
  for (int i = 0; i < 5; i++)
    ck_ok(launch(1, one));
  ck_ok(launch(2, one));
  ck_assert_int_eq(nvrtc_script.compiled, 2);
  ck_assert_int_eq(gpu.loaded, 2);
  ck_assert_int_eq(gpu.launched, 6);
  ck_assert_int_eq(gpu.pushed, 0);
  ck_assert_str_eq(nvrtc_script.target, "--gpu-architecture=sm_90");
  ck_assert_int_eq(dfgnn__engine_kernel_info(&info, engine, &p), 1);
  ck_assert_int_eq(info.registers, 40);
  ck_assert_int_eq(info.local_bytes, 16);
  ck_assert_int_eq(info.code_bytes, sizeof nvrtc_script.code);
  dfgnn__engine_close(engine);
  engine = NULL;
  ck_assert_int_eq(gpu.unloaded, 2);
}

TEST(the_context_of_the_caller_is_put_back) {
  const cu_context other = (cu_context)(uintptr_t)77;
  gpu_current_context = other;
  open_engine();
  int entered = dfgnn__engine_enter(engine);
  ck_assert_int_eq(entered, 1);
  ck_assert_int_eq(gpu.pushed, 1);
  dfgnn__engine_leave(entered);
  ck_assert_int_eq(gpu.pushed, 0);
  gpu_current_context = NULL; /* a thread without one keeps the device's */
  ck_assert_int_eq(dfgnn__engine_enter(engine), 0);
  ck_assert_ptr_eq(gpu_current_context, (cu_context)(uintptr_t)1);
  ck_assert_int_eq(dfgnn__engine_enter(engine), 0);
}

TEST(many_kernels_are_all_found_again) {
  open_engine();
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < 700; i++)
      ck_ok(launch(i, one));
  ck_assert_int_eq(nvrtc_script.compiled, 700);
}

TEST(large_shared_memory_is_asked_for_once) {
  const dfgnn_grid large = {.blocks = {1},
                            .threads = 32,
                            .shared = 100 << 10,
                            .carveout = DFGNN_CARVEOUT_SHARED};
  open_engine();
  ck_ok(launch(1, one));
  ck_assert_int_eq(gpu.max_shared, 0);
  ck_ok(launch(1, (dfgnn_grid){.threads = 32, .shared = (48 << 10) - 512}));
  ck_assert_int_eq(gpu.max_shared, (48 << 10) - 512); /* 1024 are static */
  ck_ok(launch(1, large));
  ck_ok(launch(1, large));
  ck_assert_int_eq(gpu.max_shared, 100 << 10);
  ck_assert_uint_eq(gpu.shared, 100 << 10);
  ck_assert_int_eq(gpu.carveouts, 1);
}

static void *launch_many(void *data) {
  for (int i = 0; i < 20; i++)
    if (launch(i, one))
      *(int *)data = 1;
  return NULL;
}

/* Runs a body in eight threads, each of which tells whether it failed. */
static void in_eight_threads(void *(*body)(void *failed)) {
  pthread_t thread[8];
  int failed[8] = {0};
  for (int i = 0; i < 8; i++)
    ck_assert(!pthread_create(&thread[i], NULL, body, &failed[i]));
  for (int i = 0; i < 8; i++) {
    pthread_join(thread[i], NULL);
    ck_assert_int_eq(failed[i], 0);
  }
}

TEST(threads_that_want_one_kernel_wait_for_one_compilation) {
  open_engine();
  in_eight_threads(launch_many);
  ck_assert_int_eq(nvrtc_script.compiled, 20);
}

/* Opens the engine, which all have alike, launches and closes it. */
static void *open_and_launch(void *data) {
  dfgnn_engine *mine = NULL;
  int argument = 42, failed = dfgnn__engine_open(&mine, 0) != DFGNN_OK;
  dfgnn_queue on_mine = {.engine = mine};
  for (int i = 0; i < 20 && !failed; i++) {
    const dfgnn_program p = program_of(i);
    failed = dfgnn__launch_struct(&on_mine, &p, one, &argument) != DFGNN_OK;
  }
  dfgnn__engine_close(mine);
  *(int *)data = failed;
  return NULL;
}

TEST(threads_open_and_close_engines_of_one_cache) {
  for (int round = 0; round < 3; round++)
    in_eight_threads(open_and_launch);
  ck_assert_int_ge(nvrtc_script.compiled, 20);
  IN_A_NEW_PROCESS({
    open_engine();
    EXPECT(!launch(19, one));
    EXPECT(nvrtc_script.compiled == 0);
  });
}

TEST(a_list_is_prepared_by_several_threads) {
  dfgnn_programs *list = NULL;
  ck_ok(dfgnn__programs_create(&list));
  open_engine();
  for (int i = 0; i < 30; i++) {
    const dfgnn_program p = program_of(i);
    ck_ok(dfgnn__programs_add(list, &p));
  }
  ck_ok(dfgnn__engine_prepare(engine, list, 4, NULL));
  ck_assert_int_eq(nvrtc_script.compiled, 30);
  ck_ok(launch(29, one));
  ck_assert_int_eq(nvrtc_script.compiled, 30);
  atomic_int stop = 1;
  const dfgnn_program another = program_of(31);
  ck_ok(dfgnn__programs_add(list, &another));
  ck_ok(dfgnn__engine_prepare(engine, list, 4, &stop));
  ck_assert_int_eq(nvrtc_script.compiled, 30);
  dfgnn__programs_destroy(list);
}

/* ---- failures ------------------------------------------------------------ */

TEST(what_does_not_compile_says_why) {
  open_engine();
  nvrtc_script.fails = 6;
  ck_fails(launch(1, one), DFGNN_ERROR_UNSUPPORTED,
           "dfgnn::something<dfgnn::bfloat_t, 1, int64_t> does not compile: "
           "x.cuh(8): error: no such thing");
  nvrtc_script.fails = 0;
  ck_ok(launch(1, one)); /* and is tried again */
}

TEST(without_a_compiler_the_message_says_what_to_install) {
  dfgnn__compiler_replace(NULL);
  open_engine();
  ck_fails(launch(1, one), DFGNN_ERROR_UNSUPPORTED,
           "pip install nvidia-cuda-nvrtc");
  ck_assert_int_eq(gpu.launched, 0);
}

TEST(without_a_driver_opening_fails) {
  dfgnn__driver_replace(NULL);
  ck_fails(dfgnn__engine_open(&engine, 0), DFGNN_ERROR_DEVICE,
           "there is no CUDA driver");
}

TEST(errors_of_the_driver_become_statuses) {
  open_engine();
  gpu.load_fails = CU_ERROR_MEMORY;
  ck_fails(launch(1, one), DFGNN_ERROR_MEMORY,
           "cuModuleLoadDataEx: out of memory");
  gpu.load_fails = 0;
  gpu.launch_fails = 700;
  ck_fails(launch(1, one), DFGNN_ERROR_DEVICE, "scripted error (error 700)");
}

TEST(a_newer_gpu_gets_ptx_of_the_newest_known) {
  gpu.major = 12;
  gpu.minor = 1;
  open_engine();
  ck_ok(launch(1, one));
  ck_assert_str_eq(nvrtc_script.target, "--gpu-architecture=compute_90");
}

TEST(an_architecture_that_is_none_or_too_old_is_refused) {
  ck_invalid(dfgnn__engine_offline(&engine, "sm_52"),
             "does not compile for sm_52");
  ck_invalid(dfgnn__engine_offline(&engine, "hopper"),
             "'hopper' is no architecture, expected one such as sm_90");
  ck_invalid(dfgnn__engine_offline(&engine, "sm_90x"),
             "'sm_90x' is no architecture");
}

TEST_MAIN("all", .setup = engine_setup, .teardown = engine_teardown,
          .timeout = 60)
