#include "tools/lock.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/output.h"
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1, DIGEST = 16 /* bytes */ };

/* The keys of explain beside those of the problem and the variant. */
static const char *const others[] = {"source",    "distance", "because",
                                     "portfolio", "stores",   "kernels",
                                     "candidates"};

static json_t *choices_of(const json_t *rows) {
  json_t *choices = json_array(), *row;
  size_t i;
  json_array_foreach(rows, i, row) {
    json_t *choice = json_copy(row);
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
      json_object_del(choice, others[k]);
    json_array_append_new(choices, choice);
  }
  return choices;
}

/* The problem of a choice on its graph, as a text; the caller frees it. */
static char *problem_of(const json_t *choice) {
  json_t *problem = json_copy((json_t *)choice);
  json_object_del(problem, "variant");
  json_object_del(problem, "revision");
  char *text = json_dumps(problem, JSON_SORT_KEYS | JSON_COMPACT);
  json_decref(problem);
  return text;
}

static void digest_of(char digest[2 * DIGEST + 1], const json_t *choices) {
  unsigned char hash[DIGEST];
  char *text = json_dumps(choices, JSON_SORT_KEYS | JSON_COMPACT);
  crypto_generichash(hash, sizeof hash, (const unsigned char *)text,
                     text ? strlen(text) : 0, NULL, 0);
  sodium_bin2hex(digest, 2 * DIGEST + 1, hash, sizeof hash);
  free(text);
}

int tool_lock_write(const char *path, const json_t *rows) {
  char digest[2 * DIGEST + 1];
  json_t *choices = choices_of(rows);
  digest_of(digest, choices);
  json_t *file =
      json_pack("{s:i, s:s, s:s, s:o}", "dfgnn_lock", FORMAT, "version",
                dfgnn_version(), "digest", digest, "choices", choices);
  static const dfgnn_output_kind kind = {.name = "a lock of choices",
                                         .mark = {{0, "{\n \"dfgnn_lock\""}}};
  const size_t count = json_array_size(choices);
  char *text = json_dumps(file, JSON_INDENT(1));
  const dfgnn_status status =
      text ? dfgnn__write_bytes(path, &kind, text, strlen(text))
           : dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: out of memory", path);
  free(text);
  json_decref(file);
  if (status)
    return tool_error("%s", dfgnn_last_error());
  printf("%s  %zu choices\n", digest, count);
  return TOOL_DONE;
}

/* The choice for a problem among others; NULL: there is none. */
static const json_t *find(const json_t *choices, const char *problem) {
  const json_t *choice;
  size_t i;
  json_array_foreach(choices, i, choice) {
    char *own = problem_of(choice);
    const int same = own && !strcmp(own, problem);
    free(own);
    if (same)
      return choice;
  }
  return NULL;
}

static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "";
}

/* Says which choices differ from those of another list; returns how many. */
static int compare(const json_t *choices, const json_t *locked) {
  const json_t *choice;
  int different = 0;
  size_t i;
  json_array_foreach(choices, i, choice) {
    char *problem = problem_of(choice);
    const json_t *other = problem ? find(locked, problem) : NULL;
    free(problem);
    if (other && json_equal((json_t *)choice, (json_t *)other))
      continue;
    different++;
    if (!other)
      tool_error("%s, %s %s: it is not locked", text_of(choice, "graph"),
                 text_of(choice, "op"), text_of(choice, "pass"));
    else
      tool_error("%s, %s %s: found %s of revision %lld, expected %s of %lld",
                 text_of(choice, "graph"), text_of(choice, "op"),
                 text_of(choice, "pass"), text_of(choice, "variant"),
                 json_integer_value(json_object_get(choice, "revision")),
                 text_of(other, "variant"),
                 json_integer_value(json_object_get(other, "revision")));
  }
  return different;
}

int tool_lock_check(const char *path, const json_t *rows) {
  json_error_t error;
  char digest[2 * DIGEST + 1];
  FILE *in;
  if (dfgnn__file_or_pipe_stream(&in, path, "a lock of choices"))
    return tool_error("%s", dfgnn_last_error());
  json_t *file = json_loadf(in, JSON_REJECT_DUPLICATES, &error);
  fclose(in);
  if (!file)
    return tool_error("%s: line %d: %s", path, error.line, error.text);
  const json_t *locked = json_object_get(file, "choices");
  if (json_integer_value(json_object_get(file, "dfgnn_lock")) != FORMAT ||
      !json_is_array(locked)) {
    json_decref(file);
    return tool_error("%s: found no lock of format %d, which 'dfgnn-tune "
                      "explain --lock' writes",
                      path, FORMAT);
  }
  json_t *choices = choices_of(rows);
  int different = compare(choices, locked);
  if (json_array_size(locked) > json_array_size(choices))
    different += tool_error("%zu of %zu locked choices were not asked for",
                            json_array_size(locked) - json_array_size(choices),
                            json_array_size(locked)) != 0;
  digest_of(digest, choices);
  if (!different)
    printf("%s  %zu choices, as they were locked\n", digest,
           json_array_size(choices));
  json_decref(choices);
  json_decref(file);
  return different ? TOOL_FAILED : TOOL_DONE;
}
