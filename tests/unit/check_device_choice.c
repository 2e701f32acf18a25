/* check_device_choice.c - which device a context takes where there is a driver
 * and a compiler, one of them, or neither; both are scripted */

#include "tests/unit/fixture.h"

#include "kernels/engine/compiler.h"
#include "kernels/engine/driver.h"
#include "lib/collect.h"
#include "lib/context.h"

static cu_result one_device(int *count) {
  *count = 1;
  return 0;
}

static const dfgnn_driver driver = {.DeviceGetCount = one_device};

static int warnings;
static char warning[1024];

static void count_warnings(void *data, dfgnn_log_level level,
                           const char *message) {
  (void)data;
  if (level != DFGNN_LOG_WARN)
    return;
  warnings++;
  snprintf(warning, sizeof warning, "%s", message);
}

static dfgnn_options options_of(const char *device) {
  return INIT(dfgnn_options, .device = device, .store = "",
              .log = count_warnings, .log_level = DFGNN_LOG_WARN);
}

TEST(without_a_driver_there_is_the_cpu) {
  dfgnn_options options = options_of("auto");
  dfgnn_context *ctx = NULL;
  dfgnn__driver_replace(NULL);
  ck_ok(dfgnn_context_create(&ctx, &options));
  own_context(ctx);
  ck_assert_str_eq(ctx->backend->name, "cpu");
  ck_assert_int_eq(warnings, 0);
  ctx = NULL;
  options.device = "cuda";
  ck_fails(dfgnn_context_create(&ctx, &options), DFGNN_ERROR_DEVICE,
           "0 cuda devices found");
  ck_assert_ptr_null(ctx);
}

TEST(a_gpu_without_kernels_is_passed_over_with_one_warning) {
  dfgnn_options options = options_of("auto");
  dfgnn_context *ctx = NULL;
  unsetenv("DFGNN_KERNEL_PACK");
  dfgnn__driver_replace(&driver);
  dfgnn__compiler_replace(NULL);
  ck_ok(dfgnn_context_create(&ctx, &options));
  own_context(ctx);
  ck_assert_str_eq(ctx->backend->name, "cpu");
  ck_assert_int_eq(warnings, 1);
  ck_assert_msg(strstr(warning, "a test took the compiler away") != NULL, "%s",
                warning);
}

TEST(asking_for_a_gpu_without_kernels_says_what_to_install) {
  dfgnn_options options = options_of("cuda");
  dfgnn_context *ctx = NULL;
  unsetenv("DFGNN_KERNEL_PACK");
  dfgnn__driver_replace(&driver);
  dfgnn__compiler_replace(NULL);
  ck_fails(dfgnn_context_create(&ctx, &options), DFGNN_ERROR_UNSUPPORTED,
           "install NVRTC");
  ck_assert_ptr_null(ctx);
}

TEST(graphs_list_their_programs) {
  dfgnn_programs *list = NULL;
  int passes = 0;
  ck_ok(dfgnn__programs_create(&list));
  ck_ok(dfgnn__collect_graph_programs(list));
  for (size_t i = 0; i < dfgnn__programs_count(list); i++)
    passes += !strcmp(dfgnn__programs_get(list, i)->name, "dfgnn::sort_pass");
  ck_assert_int_ge(passes, 6); /* 8 and 9 bits, numbers and counts of 32, 64 */
  dfgnn__programs_destroy(list);
}

TEST_MAIN("choice")
