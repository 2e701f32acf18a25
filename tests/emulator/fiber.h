/* fiber.h - threads that give way to each other by hand */
#ifndef DFGNN_EMULATOR_FIBER_H
#define DFGNN_EMULATOR_FIBER_H

#include <stddef.h>

#ifdef __x86_64__

typedef void *fiber; /* its stack pointer, at its saved registers */

/* Saves the fiber that runs and goes on with another. */
void emulated_switch(fiber *from, const fiber *to);
__asm__(".text\n"
        ".globl emulated_switch\n"
        ".hidden emulated_switch\n"
        ".type emulated_switch, @function\n"
        "emulated_switch:\n"
        "  push %rbp\n  push %rbx\n  push %r12\n"
        "  push %r13\n  push %r14\n  push %r15\n"
        "  mov %rsp, (%rdi)\n"
        "  mov (%rsi), %rsp\n"
        "  pop %r15\n  pop %r14\n  pop %r13\n"
        "  pop %r12\n  pop %rbx\n  pop %rbp\n"
        "  ret\n"
        ".size emulated_switch, . - emulated_switch\n");

/* A fiber that will call `begin`, which never returns. */
static inline fiber fiber_make(char *stack, size_t bytes, void (*begin)(void)) {
  void **top = (void **)((size_t)(stack + bytes) & ~(size_t)63) - 1;
  *--top = (void *)begin;
  for (int i = 0; i < 6; i++)
    *--top = NULL;
  return top;
}

#else

#include <ucontext.h>

typedef ucontext_t fiber;

static inline void emulated_switch(fiber *from, const fiber *to) {
  (void)swapcontext(from, to);
}

static inline fiber fiber_make(char *stack, size_t bytes, void (*begin)(void)) {
  fiber made;
  (void)getcontext(&made);
  made.uc_stack.ss_sp = stack;
  made.uc_stack.ss_size = bytes;
  made.uc_link = NULL;
  makecontext(&made, begin, 0);
  return made;
}

#endif

#endif
