/* plan_compile.c - the kernels of a plan, compiled before its first launch */
#include "kernels/engine/cache.h"
#include "lib/base/error.h"
#include "lib/collect.h"
#include "lib/context.h"
#include "lib/plan.h"

/* A kernel whose threads take more bytes of local memory is no candidate.  A
 * family may set another limit; no kernel worth its time comes near this one.
 */
enum { MOST_LOCAL_BYTES = 4096 };

static dfgnn_status check_spills(const dfgnn_programs *programs,
                                 const dfgnn_family *family,
                                 dfgnn_engine *engine) {
  const int most = family->local_bytes ? family->local_bytes : MOST_LOCAL_BYTES;
  for (size_t i = 0; i < dfgnn__programs_count(programs); i++) {
    const dfgnn_program *program = dfgnn__programs_get(programs, i);
    dfgnn_kernel_info info;
    char text[512];
    if (!dfgnn__engine_kernel_info(&info, engine, program) ||
        info.local_bytes <= most)
      continue;
    dfgnn__program_text(text, sizeof text, program);
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "%s spills: %d registers and %d bytes of local memory a "
                       "thread, expected at most %d bytes",
                       text, info.registers, info.local_bytes, most);
  }
  return DFGNN_OK;
}

dfgnn_status dfgnn__plan_compile(const dfgnn_plan *plan,
                                 const dfgnn_setting *setting,
                                 dfgnn_engine *engine) {
  char why[4096 + 512];
  dfgnn_programs *programs = NULL;
  dfgnn_status status = dfgnn__programs_create(&programs);
  if (!status)
    status = dfgnn__collect_programs(programs, plan->variant, setting,
                                     plan->views, 0);
  if (!status)
    status = dfgnn__engine_prepare(engine, programs, 0, NULL);
  if (!status)
    status = check_spills(programs, plan->variant->family, engine);
  if (dfgnn__cache_complaint(why, sizeof why))
    dfgnn__log(plan->ctx, DFGNN_LOG_WARN,
               "compiled kernels are not kept for other processes: %s", why);
  dfgnn__programs_destroy(programs);
  return status;
}
