// Which instruction sets this processor can run. In the portable library only: the others must not
// be entered before their set is known to be there.
#include <cstdint>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

extern "C" __attribute__((visibility("default"))) int32_t veil_instruction_set();

// 0: portable, 1: avx2, 2: avx512, 3: avx512 with a quick vpmullq (AMD; Intel's takes three
// micro-operations), 4: avx512 and AMX; the lists are those of the flags in CMakeLists.txt.
namespace {

// Whether there are tiles of bytes, and Linux lets this process have them: their 8 KiB of state are
// asked for once, and refused where some thread's signal stack could not hold them.
bool has_tiles() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;       // leaf 7: bit_AMX_TILE, bit_AMX_INT8
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & kTile) || !(d & kInt8)) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

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
  if (!avx512) return 1;
  return __builtin_cpu_is("amd") ? 3 : has_tiles() ? 4 : 2;
#else
  return 0;
#endif
}
