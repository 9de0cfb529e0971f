// Which of the compiled variants this machine can run.
extern "C" const char* lowerbound_variant() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return "v4";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "v3";
#endif
    return "base";
}
