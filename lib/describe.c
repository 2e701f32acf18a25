#include "lib/describe.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "lib/key.h"

void dfgnn__describe(dfgnn_measurement *m, const dfgnn_context *ctx,
                     const dfgnn_graph *graph, const dfgnn_problem *problem) {
  memset(m, 0, sizeof *m);
  (void)dfgnn__graph_know((dfgnn_graph *)graph);
  m->backend = ctx->info.backend;
  m->arch = ctx->info.arch;
  m->model = ctx->info.model;
  m->units = ctx->info.units;
  m->cache_bytes = ctx->info.cache_bytes;
  m->memory_bytes = ctx->info.memory_bytes;
  m->shared_bytes = ctx->info.shared_bytes;
  m->driver = ctx->info.driver;
  m->runtime = ctx->info.runtime;
  m->library = dfgnn_version();
  dfgnn__key_fill(m, problem, graph->matrix.offsets64);
  m->graph = graph->name;
  m->family = graph->family;
  m->signature = graph->signature;
  m->variant = m->tool = m->host = m->job = m->run = "";
  m->status = m->reason = m->anchor = "";
}

#define LAST_SECOND 253402300799 /* the end of the year 9999 */

int64_t dfgnn__time_stamp(void) {
  int64_t now = (int64_t)time(NULL);
  return now < 0 ? 0 : now > LAST_SECOND ? LAST_SECOND : now;
}

void dfgnn__context_write(dfgnn_context *ctx, const dfgnn_measurement *row) {
  const char *path = dfgnn__context_store(ctx);
  dfgnn_store *store = NULL;
  dfgnn_status status =
      path ? dfgnn__store_open(&store, path, DFGNN_STORE_WRITE) : DFGNN_OK;
  if (!status && path)
    status = dfgnn__store_record(store, NULL, row);
  if (store)
    dfgnn__store_close(store);
  if (status)
    dfgnn__log(ctx, DFGNN_LOG_INFO,
               "a measurement is kept by this context "
               "alone: %s",
               dfgnn_last_error());
  if ((status || !path) && dfgnn__context_keep(ctx, row))
    dfgnn__log(ctx, DFGNN_LOG_WARN, "a measurement is lost: %s",
               dfgnn_last_error());
}

void dfgnn__record_refusal(const dfgnn_plan *plan) {
  dfgnn_measurement m;
  dfgnn_store *store = NULL;
  const char *path = dfgnn__context_store(plan->ctx);
  if (!path)
    return;
  dfgnn__describe(&m, plan->ctx, plan->graph, &plan->problem);
  m.variant = plan->variant->name;
  m.revision = plan->variant->family->revision;
  m.tool = "execute";
  m.run = "00000000000000000000000000000000";
  m.time = dfgnn__time_stamp();
  m.status = "refused";
  m.reason = "the device refused a launch";
  dfgnn_status status = dfgnn__store_open(&store, path, DFGNN_STORE_WRITE);
  if (!status)
    status = dfgnn__store_record(store, NULL, &m);
  if (status)
    dfgnn__log(plan->ctx, DFGNN_LOG_WARN, "refusal not kept: %s",
               dfgnn_last_error());
  if (store)
    dfgnn__store_close(store);
}

void dfgnn__name_run(char run[33]) {
  unsigned char bytes[16] = {0};
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) {
    struct timespec t; /* it only has to differ from other runs' */
    clock_gettime(CLOCK_REALTIME, &t);
    memcpy(bytes, &t, sizeof t < sizeof bytes ? sizeof t : sizeof bytes);
  }
  for (int i = 0; i < 16; i++)
    snprintf(run + 2 * i, 3, "%02x", bytes[i]);
}
