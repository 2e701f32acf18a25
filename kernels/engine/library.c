/* library.c - looks for libraries in toolkits and in Python's packages, and for
 * their functions */
#include "kernels/engine/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Offers files that match, except NVRTC's second build, *.alt.so.*. */
static int take_matching(const char *pattern, dfgnn_take_library *take,
                         void *context) {
  glob_t found;
  int taken = 0;
  if (glob(pattern, 0, NULL, &found) == 0) {
    for (size_t i = found.gl_pathc; !taken && i > 0; i--)
      if (!strstr(found.gl_pathv[i - 1], ".alt."))
        taken = take(found.gl_pathv[i - 1], context);
    globfree(&found);
  }
  return taken;
}

static int take_from_toolkits(const char *file, dfgnn_take_library *take,
                              void *context) {
  static const char *const places[] = {"cuda/lib64", "cuda*/lib64",
                                       "cuda*/targets/*/lib"};
  char pattern[256];
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    snprintf(pattern, sizeof pattern, "/usr/local/%s/%s", places[i], file);
    if (take_matching(pattern, take, context))
      return 1;
  }
  return 0;
}

static int take_from_packages(const char *file, const char *const *folders,
                              dfgnn_take_library *take, void *context) {
  const char *path = getenv("PATH");
  char pattern[1024];
  while (path && *path) {
    int length = (int)strcspn(path, ":");
    for (const char *const *folder = folders; *folder; folder++) {
      snprintf(pattern, sizeof pattern, "%.*s/../lib/python3*/*-packages/%s/%s",
               length, path, *folder, file);
      if (take_matching(pattern, take, context))
        return 1;
    }
    path += length + (path[length] == ':');
  }
  return 0;
}

int dfgnn__library_find(const char *file, const char *const *folders,
                        dfgnn_take_library *take, void *context) {
  return take_from_toolkits(file, take, context) ||
         take_from_packages(file, folders, take, context);
}

/* ---- functions ----------------------------------------------------------- */

const char *dfgnn__library_functions(void *table, void *library,
                                     const dfgnn_library_function *functions,
                                     size_t count) {
  for (size_t i = 0; i < count; i++) {
    void *symbol = dlsym(library, functions[i].name);
    if (!symbol)
      return functions[i].name;
    memcpy((char *)table + functions[i].offset, &symbol, sizeof symbol);
  }
  return NULL;
}
