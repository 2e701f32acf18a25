/* A job file: read, or refused with an exit status. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static int file = -1;
  static char path[64];
  if (file < 0) {
    file = memfd_create("job", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    /* the messages would fill the disk */
    if (file < 0 || !freopen("/dev/null", "w", stdout))
      abort();
  }
  if (ftruncate(file, 0) || pwrite(file, data, size, 0) != (ssize_t)size)
    abort();
  tool_settings settings = {.op_count = 1, .dim = {64}, .device = "auto"};
  tool_graphs graphs = {0};
  char hash[33] = "";
  /* a given graph keeps the job from reading folders of the file system */
  graphs.count = 1;
  graphs.name = malloc(sizeof *graphs.name);
  graphs.name[0] = strdup("given");
  int status = tool_job_read(&settings, &graphs, hash, path);
  if (!status && strlen(hash) != 32)
    abort();
  tool_graphs_free(&graphs);
  for (char **owned = settings.owned; *owned; owned++)
    free(*owned);
  return 0;
}
