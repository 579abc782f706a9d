// Which instruction sets this processor can run. In the portable library only: the others must not
// be entered before their set is known to be there.
#include <cstdint>

extern "C" __attribute__((visibility("default"))) int32_t veil_instruction_set();

// 0: portable, 1: avx2, 2: avx512, 3: avx512 with a quick vpmullq (AMD; Intel's takes three
// micro-operations); the lists are those of the flags in CMakeLists.txt.
int32_t veil_instruction_set() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                    __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("movbe") &&
                    __builtin_cpu_supports("f16c") && __builtin_cpu_supports("aes") &&
                    __builtin_cpu_supports("pclmul");
  if (!avx2) return 0;
  const bool avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("gfni") &&
      __builtin_cpu_supports("vaes") && __builtin_cpu_supports("vpclmulqdq") &&
      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
      __builtin_cpu_supports("avx512ifma") && __builtin_cpu_supports("avx512vnni") &&
      __builtin_cpu_supports("avx512bitalg") && __builtin_cpu_supports("avx512vpopcntdq");
  return !avx512 ? 1 : __builtin_cpu_is("amd") ? 3 : 2;
#else
  return 0;
#endif
}
