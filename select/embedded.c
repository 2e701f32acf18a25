/* embedded.c - the models that travel in the library */
#include "select/forest.h"

#define EMBED(symbol, file)                                                    \
  __asm__(".section .rodata\n"                                                 \
          ".balign 16\n"                                                       \
          ".local dfgnn__model_" #symbol "\n"                                  \
          "dfgnn__model_" #symbol ": .incbin \"select/" file "\"\n"            \
          ".local dfgnn__model_" #symbol "_end\n"                              \
          "dfgnn__model_" #symbol "_end: .byte 0\n"                            \
          ".previous\n");                                                      \
  extern const unsigned char dfgnn__model_##symbol[],                          \
      dfgnn__model_##symbol##_end[]

EMBED(h200, "h200.model");
EMBED(cpu, "cpu.model");
EMBED(cpu_avx512, "cpu_avx512.model");

static const struct {
  const char *name;
  const unsigned char *begin, *end;
} embedded[] = {
    {"the package's model h200", dfgnn__model_h200, dfgnn__model_h200_end},
    {"the package's model cpu", dfgnn__model_cpu, dfgnn__model_cpu_end},
    {"the package's model cpu_avx512", dfgnn__model_cpu_avx512,
     dfgnn__model_cpu_avx512_end},
};

const void *dfgnn__forests_embedded(size_t i, const char **name, size_t *size) {
  if (i >= sizeof embedded / sizeof *embedded)
    return NULL;
  *name = embedded[i].name;
  *size = (size_t)(embedded[i].end - embedded[i].begin);
  return embedded[i].begin;
}
