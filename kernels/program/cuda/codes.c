#include "kernels/program/cuda/codes.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/engine/sources.h"
#include "kernels/program/cpu/bodies.h"
#include "lib/base/error.h"

/* The source depends on the program and on this. */
typedef struct dfgnn_code_key {
  int64_t names[DFGNN_SIZE_NAMES];
  dfgnn_program_tuning tuning;
  uint8_t types[DFGNN_DAG_INPUTS + DFGNN_DAG_OUTPUTS];
} code_key;

static void free_code(dfgnn_program_code *code) {
  dfgnn__generated_free(code->generated);
  free(code->key);
  free(code);
}

void dfgnn__program_codes_begin(dfgnn_program_codes *codes) {
  pthread_mutex_init(&codes->lock, NULL);
  codes->first = NULL;
  codes->bodies = NULL;
}

void dfgnn__program_codes_end(dfgnn_program_codes *codes) {
  for (dfgnn_program_code *code = codes->first, *next; code; code = next) {
    next = code->next;
    free_code(code);
  }
  dfgnn__bodies_free(codes->bodies);
  pthread_mutex_destroy(&codes->lock);
}

/* The most features that a lane may load at once: tensors lie at multiples of
 * that many. */
static int vector_of(const dfgnn_program_job *job, int vector) {
  const dfgnn_dag *dag = job->lowered->dag;
  for (int i = 0; i < dag->input_count + dag->output_count; i++) {
    const dfgnn_program_array *array =
        i < dag->input_count ? &job->inputs[i]
                             : &job->outputs[i - dag->input_count];
    while ((uintptr_t)array->data %
           ((uintptr_t)vector * dfgnn_dtype_size(array->dtype)))
      vector /= 2;
  }
  return vector;
}

static code_key key_of(const dfgnn_program_job *job,
                       const dfgnn_program_tuning *tuning) {
  const dfgnn_dag *dag = job->lowered->dag;
  code_key key;
  memset(&key, 0, sizeof key);
  memcpy(key.names, job->binding->names, sizeof key.names);
  key.tuning = *tuning;
  key.tuning.vector = vector_of(job, tuning->vector);
  for (int i = 0; i < dag->input_count; i++)
    key.types[i] = (uint8_t)job->inputs[i].dtype;
  for (int i = 0; i < dag->output_count; i++)
    key.types[dag->input_count + i] = (uint8_t)job->outputs[i].dtype;
  return key;
}

static dfgnn_status make_code(dfgnn_program_code **made, const code_key *key,
                              const dfgnn_program_job *job) {
  dfgnn_program_code *code = calloc(1, sizeof *code);
  if (!code || !(code->key = malloc(sizeof *key))) {
    free(code);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  *code->key = *key;
  dfgnn_status status =
      dfgnn__program_generate(&code->generated, job, &key->tuning);
  if (!status &&
      !(code->source = dfgnn__source_generated(code->generated->text)))
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (status)
    free_code(code);
  else
    *made = code;
  return status;
}

dfgnn_status dfgnn__program_code(const dfgnn_program_code **found,
                                 const dfgnn_program_job *job,
                                 const dfgnn_program_tuning *tuning) {
  const code_key key = key_of(job, tuning);
  dfgnn_program_codes *codes = job->codes;
  dfgnn_status status = DFGNN_OK;
  dfgnn_program_code *code;
  pthread_mutex_lock(&codes->lock);
  for (code = codes->first; code; code = code->next)
    if (!memcmp(code->key, &key, sizeof key))
      break;
  if (!code && !(status = make_code(&code, &key, job))) {
    code->next = codes->first;
    codes->first = code;
  }
  pthread_mutex_unlock(&codes->lock);
  *found = code;
  return status;
}
