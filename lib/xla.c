/* xla.c - dfgnn as a custom call of XLA: the handlers that dfgnn.jax registers
 *
 * A call names its buffers: the attribute `arguments` is "offsets,indices" and
 * then fields of dfgnn_args, `results` fields of dfgnn_args.  The table of
 * operators says how many elements each has, and of which type. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dfgnn_xla.h"
#include "lib/context.h"
#include "lib/operator.h"
#include "lib/xla_ffi.h"

enum { MOST_GPUS = 64, MOST_TEXT = 256 };

typedef struct call {
  const xla_frame *frame;
  int on_gpu;
  dfgnn_context *ctx;
  void *stream; /* NULL on the CPU */
  dfgnn_problem problem;
  const dfgnn_operator *op;
  dfgnn_csr csr;
  dfgnn_args args;
} call;

/* ---- attributes --------------------------------------------------------- */

static const void *attribute(const call *c, const char *name, int kind) {
  const xla_attributes *all = &c->frame->attributes;
  for (int64_t i = 0; i < all->count; i++)
    if (all->kinds[i] == kind && all->names[i]->length == strlen(name) &&
        !memcmp(all->names[i]->start, name, strlen(name)))
      return all->values[i];
  return NULL;
}

static dfgnn_status text_attribute(char *text, const call *c,
                                   const char *name) {
  const xla_text *found = attribute(c, name, XLA_ATTRIBUTE_STRING);
  if (!found || found->length >= MOST_TEXT)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: the attribute %s must be a text of less than "
                       "%d characters",
                       name, MOST_TEXT);
  memcpy(text, found->start, found->length);
  text[found->length] = 0;
  return DFGNN_OK;
}

static dfgnn_status integer_attribute(int64_t *value, const call *c,
                                      const char *name) {
  const xla_scalar *found = attribute(c, name, XLA_ATTRIBUTE_SCALAR);
  if (!found || found->type != XLA_S64)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: the attribute %s must be an int64", name);
  memcpy(value, found->value, sizeof *value);
  return DFGNN_OK;
}

static dfgnn_status real_attribute(double *value, const call *c,
                                   const char *name) {
  const xla_scalar *found = attribute(c, name, XLA_ATTRIBUTE_SCALAR);
  if (!found || found->type != XLA_F64)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: the attribute %s must be a float64", name);
  memcpy(value, found->value, sizeof *value);
  return DFGNN_OK;
}

static dfgnn_status read_problem(call *c) {
  char op[MOST_TEXT], pass[MOST_TEXT], dtype[MOST_TEXT];
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  int64_t deterministic = 1, tf32 = 0;
  dfgnn_status status = text_attribute(op, c, "op");
  if (!status)
    status = dfgnn_parse((int *)&problem.op, DFGNN_NAMES_OP, op);
  if (!status)
    status = text_attribute(pass, c, "pass");
  if (!status)
    status = dfgnn_parse((int *)&problem.pass, DFGNN_NAMES_PASS, pass);
  if (!status)
    status = text_attribute(dtype, c, "dtype");
  if (!status)
    status = dfgnn_parse((int *)&problem.dtype, DFGNN_NAMES_DTYPE, dtype);
  if (!status)
    status = integer_attribute(&problem.heads, c, "heads");
  if (!status)
    status = integer_attribute(&problem.dim, c, "dim");
  if (!status)
    status = integer_attribute(&deterministic, c, "deterministic");
  if (!status)
    status = integer_attribute(&tf32, c, "tf32");
  problem.deterministic = deterministic != 0;
  problem.math = tf32 ? DFGNN_MATH_TF32 : DFGNN_MATH_F32;
  if (!status)
    status = dfgnn__problem_complete(&c->problem, &problem);
  if (!status && !(c->op = dfgnn__operator(problem.op, problem.pass)))
    status = dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                         "XLA call: there is no %s of %s", pass, op);
  if (!status)
    status = real_attribute(&c->args.scale, c, "scale");
  if (!status)
    status = real_attribute(&c->args.slope, c, "slope");
  return status;
}

/* ---- devices ---------------------------------------------------------------
 */

static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static dfgnn_context *contexts[1 + MOST_GPUS]; /* the CPU's, then GPUs' */

static dfgnn_status find_context(call *c, int ordinal) {
  char device[32] = "cpu";
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  dfgnn_status status = DFGNN_OK;
  const int place = c->on_gpu ? 1 + ordinal : 0;
  if (ordinal < 0 || ordinal >= MOST_GPUS)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "XLA call: device %d, expected 0 .. %d", ordinal,
                       MOST_GPUS - 1);
  if (c->on_gpu)
    snprintf(device, sizeof device, "cuda:%d", ordinal);
  options.device = device;
  pthread_mutex_lock(&contexts_lock);
  if (!contexts[place])
    status = dfgnn_context_create(&contexts[place], &options);
  c->ctx = contexts[place];
  pthread_mutex_unlock(&contexts_lock);
  return status;
}

static dfgnn_status refused(const call *c, xla_error *error,
                            const char *attempt) {
  xla_error_message_arguments words = {.struct_size = sizeof words,
                                       .error = error};
  xla_error_destroy_arguments arguments = {.struct_size = sizeof arguments,
                                           .error = error};
  c->frame->api->error_message(&words);
  dfgnn_status status =
      dfgnn__fail(DFGNN_ERROR_DEVICE, "XLA call: XLA refused to %s: %s",
                  attempt, words.message ? words.message : "no reason given");
  c->frame->api->error_destroy(&arguments);
  return status;
}

static dfgnn_status find_device(call *c) {
  const xla_frame *frame = c->frame;
  xla_stream_arguments stream = {.struct_size = sizeof stream,
                                 .execution = frame->execution};
  xla_ordinal_arguments device = {.struct_size = sizeof device,
                                  .execution = frame->execution};
  xla_error *error;
  if (!c->on_gpu)
    return find_context(c, 0);
  if (frame->api->struct_size <
      offsetof(xla_api, ordinal_get) + sizeof frame->api->ordinal_get)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "XLA call: this XLA does not tell on which GPU a call "
                       "runs; a newer jax does");
  if ((error = frame->api->stream_get(&stream)))
    return refused(c, error, "tell the stream");
  if ((error = frame->api->ordinal_get(&device)))
    return refused(c, error, "tell the number of the device");
  c->stream = stream.stream;
  return find_context(c, device.ordinal);
}

/* ---- buffers ---------------------------------------------------------------
 */

static int64_t elements_of(const xla_buffer *buffer) {
  int64_t count = 1;
  for (int64_t i = 0; i < buffer->rank; i++)
    count *= buffer->dims[i];
  return count;
}

static int type_of(const dfgnn_tensor *tensor, dfgnn_dtype dtype) {
  static const int storage[] = {[DFGNN_F32] = XLA_F32,
                                [DFGNN_F16] = XLA_F16,
                                [DFGNN_BF16] = XLA_BF16,
                                [DFGNN_F64] = XLA_F64};
  switch (tensor->element) {
  case DFGNN_ELEMENT_STORAGE:
    return storage[dtype];
  case DFGNN_ELEMENT_SCALAR:
    return dtype == DFGNN_F64 ? XLA_F64 : XLA_F32;
  default:
    return XLA_S32;
  }
}

/* Edges beyond the last row are padding, so that tensors of edges may be longer
 * than the graph has edges; other tensors have one size. */
static dfgnn_status take_tensor(call *c, const char *name, int is_result,
                                const xla_buffer *buffer) {
  const int place = dfgnn__tensor_find_used(c->op, name, &c->problem);
  if (place < 0)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "XLA call: %s of %s has no %s",
                       c->op->kind, c->op->name, name);
  const dfgnn_tensor *tensor = &c->op->tensors[place];
  const int64_t found = elements_of(buffer);
  const int64_t expected = dfgnn__tensor_elements(
      tensor, &c->problem, c->csr.destinations, c->csr.sources, c->csr.edges);
  if (buffer->type != type_of(tensor, c->problem.dtype))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: %s is of type %d of XLA, expected %d", name,
                       buffer->type, type_of(tensor, c->problem.dtype));
  if (tensor->shape & DFGNN_DIM_E ? found < expected : found != expected)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: %s has %lld elements, expected %lld", name,
                       (long long)found, (long long)expected);
  if (dfgnn__role_reads(tensor->role) == is_result)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: %s is %s the call, not %s it", name,
                       is_result ? "read by" : "written by",
                       is_result ? "written by" : "read by");
  *dfgnn__tensor_slot(tensor, &c->args) = buffer->data;
  return DFGNN_OK;
}

static dfgnn_status take_buffers(call *c, const char *attribute_name,
                                 const xla_buffers *buffers, int64_t first,
                                 int are_results) {
  char names[MOST_TEXT], *rest = names, *name;
  int64_t i = -first;
  dfgnn_status status = text_attribute(names, c, attribute_name);
  while (!status && (name = strsep(&rest, ",")) && *name) {
    if (i >= 0 && i + first < buffers->count)
      status = take_tensor(c, name, are_results, buffers->buffers[i + first]);
    i++;
  }
  if (!status && i + first != buffers->count)
    status = dfgnn__fail(
        DFGNN_ERROR_INVALID, "XLA call: %s names %lld buffers of %lld",
        attribute_name, (long long)(i + first), (long long)buffers->count);
  return status;
}

/* The number of edges is the last offset, which the host has to know. */
static dfgnn_status count_edges(call *c, const xla_buffer *offsets) {
  const int wide = offsets->type == XLA_S64;
  const void *last = (const char *)offsets->data +
                     (size_t)c->csr.destinations * (wide ? 8 : 4);
  union {
    int32_t narrow;
    int64_t wide;
  } value = {0};
  dfgnn_status status = DFGNN_OK;
  if (c->on_gpu) {
    status = c->ctx->backend->synchronize(c->ctx->device, c->stream);
    if (!status)
      status =
          c->ctx->backend->copy(c->ctx->device, &value, last,
                                wide ? sizeof value.wide : sizeof value.narrow);
  } else {
    memcpy(&value, last, wide ? sizeof value.wide : sizeof value.narrow);
  }
  c->csr.edges = wide ? value.wide : value.narrow;
  return status;
}

static dfgnn_status take_matrix(call *c) {
  const xla_buffers *arguments = &c->frame->arguments;
  int64_t trusted = 0;
  if (arguments->count < 2)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: %lld arguments, expected offsets and indices "
                       "first",
                       (long long)arguments->count);
  const xla_buffer *offsets = arguments->buffers[0],
                   *indices = arguments->buffers[1];
  for (int i = 0; i < 2; i++)
    if (arguments->buffers[i]->rank != 1 ||
        (arguments->buffers[i]->type != XLA_S32 &&
         arguments->buffers[i]->type != XLA_S64))
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "XLA call: %s must be a vector of int32 or int64",
                         i ? "indices" : "offsets");
  if (offsets->dims[0] < 1)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: offsets must have one element more than "
                       "there are destinations");
  c->csr.destinations = offsets->dims[0] - 1;
  c->csr.offsets = offsets->data;
  c->csr.indices = indices->data;
  c->csr.offset_type =
      offsets->type == XLA_S64 ? DFGNN_INDEX_I64 : DFGNN_INDEX_I32;
  c->csr.index_type =
      indices->type == XLA_S64 ? DFGNN_INDEX_I64 : DFGNN_INDEX_I32;
  c->csr.on_device = 1;
  dfgnn_status status = integer_attribute(&c->csr.sources, c, "sources");
  if (!status)
    status = integer_attribute(&trusted, c, "trusted");
  c->csr.trusted = trusted != 0;
  if (!status)
    status = count_edges(c, offsets);
  if (!status && (c->csr.edges < 0 || c->csr.edges > indices->dims[0]))
    status = dfgnn__fail(DFGNN_ERROR_INVALID,
                         "XLA call: offsets end at %lld, expected 0 .. %lld, "
                         "the number of indices",
                         (long long)c->csr.edges, (long long)indices->dims[0]);
  return status;
}

/* ---- the call --------------------------------------------------------------
 */

/* XLA's allocator takes no request of a larger alignment; a workspace wants
 * more (dfgnn_plan_workspace). */
enum { XLA_ALIGNMENT = 16, GPU_ALIGNMENT = 256, CPU_ALIGNMENT = 64 };

static void *aligned_up(void *data) {
  const uintptr_t mask = GPU_ALIGNMENT - 1;
  return (void *)(((uintptr_t)data + mask) & ~mask);
}

static dfgnn_status execute_on_gpu(const call *c, const dfgnn_plan *plan,
                                   size_t bytes) {
  const xla_api *api = c->frame->api;
  xla_allocate_arguments take = {.struct_size = sizeof take,
                                 .execution = c->frame->execution,
                                 .size = bytes + GPU_ALIGNMENT - XLA_ALIGNMENT,
                                 .alignment = XLA_ALIGNMENT};
  xla_error *error = api->memory_allocate(&take);
  if (error)
    return refused(c, error, "allocate memory");
  dfgnn_status status =
      dfgnn_execute(plan, &c->args, aligned_up(take.data), c->stream);
  /* The memory is freed in the order of the stream. */
  xla_free_arguments give = {.struct_size = sizeof give,
                             .execution = c->frame->execution,
                             .size = take.size,
                             .data = take.data};
  error = api->memory_free(&give);
  if (!error)
    return status;
  dfgnn_status kept = refused(c, error, "free memory");
  return status ? status : kept;
}

static dfgnn_status execute(const call *c, const dfgnn_plan *plan) {
  const size_t bytes = dfgnn_plan_workspace(plan);
  void *workspace = NULL;
  if (bytes && c->on_gpu)
    return execute_on_gpu(c, plan, bytes);
  if (bytes && !(workspace = aligned_alloc(CPU_ALIGNMENT,
                                           (bytes + CPU_ALIGNMENT - 1) /
                                               CPU_ALIGNMENT * CPU_ALIGNMENT)))
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  dfgnn_status status = dfgnn_execute(plan, &c->args, workspace, c->stream);
  free(workspace);
  return status;
}

static dfgnn_status run(call *c) {
  char family[MOST_TEXT];
  dfgnn_graph *graph = NULL;
  dfgnn_plan *plan = NULL;
  dfgnn_status status = read_problem(c);
  if (!status)
    status = find_device(c);
  if (!status)
    status = take_matrix(c);
  if (!status)
    status = text_attribute(family, c, "family");
  if (!status)
    status = take_buffers(c, "arguments", &c->frame->arguments, 2, 0);
  if (!status)
    status = take_buffers(c, "results", &c->frame->results, 0, 1);
  if (status)
    return status;
  c->csr.family = *family ? family : NULL;
  status = dfgnn_graph_create_csr(&graph, c->ctx, &c->csr, c->stream);
  if (!status)
    status = dfgnn_plan_create(&plan, c->ctx, graph, &c->problem);
  if (!status)
    status = execute(c, plan);
  dfgnn_plan_destroy(plan);
  dfgnn_graph_destroy_on(graph, c->stream);
  return status;
}

static xla_error *describe(const xla_frame *frame, dfgnn_status status) {
  xla_error_arguments arguments = {
      .struct_size = sizeof arguments,
      .message = dfgnn_last_error(),
      .code = status == DFGNN_ERROR_INVALID       ? XLA_INVALID_ARGUMENT
              : status == DFGNN_ERROR_MEMORY      ? XLA_RESOURCE_EXHAUSTED
              : status == DFGNN_ERROR_UNSUPPORTED ? XLA_UNIMPLEMENTED
                                                  : XLA_INTERNAL};
  return frame->api->error_create(&arguments);
}

/* XLA asks which version the handler was made for.  The functions that are used
 * here are in all minor versions, so the answer is the caller's version. */
static int answered(const xla_frame *frame) {
  const xla_extension *extension = frame->extensions;
  if (!extension || extension->type != XLA_EXTENSION_METADATA)
    return 0;
  xla_metadata *metadata =
      ((const xla_metadata_extension *)extension)->metadata;
  metadata->version =
      (xla_version){.struct_size = sizeof metadata->version,
                    .major = XLA_MAJOR_VERSION,
                    .minor = frame->api ? frame->api->version.minor : 0};
  metadata->traits = 0;
  return 1;
}

static void *handle(const xla_frame *frame, int on_gpu) {
  call c = {.frame = frame,
            .on_gpu = on_gpu,
            .csr = DFGNN_CSR_INIT,
            .args = DFGNN_ARGS_INIT};
  if (answered(frame) || frame->stage != XLA_STAGE_EXECUTE)
    return NULL;
  dfgnn_status status =
      frame->api->version.major == XLA_MAJOR_VERSION
          ? run(&c)
          : dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                        "XLA call: XLA's C API is of version %d, this libdfgnn "
                        "knows version %d",
                        frame->api->version.major, XLA_MAJOR_VERSION);
  return status ? describe(frame, status) : NULL;
}

void *dfgnn_xla_cpu(void *frame) { return handle(frame, 0); }
void *dfgnn_xla_cuda(void *frame) { return handle(frame, 1); }
