// Vectors of 64 bytes, and the functions of them that the kernels need.
//
// GCC's vector extensions are lowered to whatever the machine has; nothing here names an instruction.
#pragma once

#include <cstdint>
#include <cstring>

namespace {

template <typename T> struct Lanes;

template <> struct Lanes<float> {
    static constexpr int count = 16;
    typedef float Vector __attribute__((vector_size(64)));
    typedef int32_t Whole __attribute__((vector_size(64)));
};

template <> struct Lanes<double> {
    static constexpr int count = 8;
    typedef double Vector __attribute__((vector_size(64)));
    typedef int64_t Whole __attribute__((vector_size(64)));
};

template <typename T> using Vector = typename Lanes<T>::Vector;
template <typename T> using Whole = typename Lanes<T>::Whole;

template <typename T> inline Vector<T> load(const T* at) {
    Vector<T> v;
    std::memcpy(&v, at, sizeof v);
    return v;
}

template <typename T> inline void store(T* at, Vector<T> v) { std::memcpy(at, &v, sizeof v); }

// sums += value, in double.
inline void add(double* sums, Vector<float> value) {
    typedef float Half __attribute__((vector_size(32)));
    Half halves[2];
    std::memcpy(halves, &value, sizeof value);
    store(sums, load(sums) + __builtin_convertvector(halves[0], Vector<double>));
    store(sums + 8, load(sums + 8) + __builtin_convertvector(halves[1], Vector<double>));
}
inline void add(double* sums, Vector<double> value) { store(sums, load(sums) + value); }

// The sum of the lanes, by halves: the order is the same on every machine.
template <typename T> inline T sum(Vector<T> v) {
    typedef T Half __attribute__((vector_size(32)));
    typedef T Quarter __attribute__((vector_size(16)));
    Half halves[2];
    std::memcpy(halves, &v, sizeof v);
    const Half half = halves[0] + halves[1];
    Quarter quarters[2];
    std::memcpy(quarters, &half, sizeof half);
    const Quarter quarter = quarters[0] + quarters[1];
    T total = 0;
    for (unsigned i = 0; i < 16 / sizeof(T); ++i) total += quarter[i];
    return total;
}

template <typename T> inline Vector<T> larger(Vector<T> a, Vector<T> b) { return a > b ? a : b; }

template <typename T> inline Vector<T> magnitude(Vector<T> a) { return a < 0 ? -a : a; }

// exp(x) for x <= 0; below the smallest normal number it is that number, about.
inline Vector<float> exponential(Vector<float> x) {
    x = larger<float>(x, Vector<float>{} - 87.0f);
    Whole<float> n = __builtin_convertvector(x * 1.44269504f - 0.5f, Whole<float>);
    Vector<float> whole = __builtin_convertvector(n, Vector<float>);
    Vector<float> r = x - whole * 0.693145752f - whole * 1.42860677e-6f;
    Vector<float> p = r * (1.0f / 5040) + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    Whole<float> power = (n + 127) << 23;
    Vector<float> scale;
    std::memcpy(&scale, &power, sizeof scale);
    return p * scale;
}

inline Vector<double> exponential(Vector<double> x) {
    x = larger<double>(x, Vector<double>{} - 708.0);
    Whole<double> n = __builtin_convertvector(x * 1.4426950408889634 - 0.5, Whole<double>);
    Vector<double> whole = __builtin_convertvector(n, Vector<double>);
    Vector<double> r = x - whole * 0.69314718036912382 - whole * 1.9082149292705877e-10;
    Vector<double> p = r * (1.0 / 6227020800.0) + 1.0 / 479001600;
    constexpr double inverse[] = {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                                  1.0 / 5040,     1.0 / 720,     1.0 / 120,    1.0 / 24,
                                  1.0 / 6,        0.5,           1.0,          1.0};
    for (double c : inverse) p = p * r + c;
    Whole<double> power = (n + 1023) << 52;
    Vector<double> scale;
    std::memcpy(&scale, &power, sizeof scale);
    return p * scale;
}

// log(x) for normal x > 0: x = 2^n m with m in [sqrt(1/2), sqrt(2)), log m = 2 artanh((m-1)/(m+1)).
inline Vector<double> logarithm(Vector<double> x) {
    Whole<double> bits;
    std::memcpy(&bits, &x, sizeof bits);
    constexpr int64_t root_half = 0x3fe6a09e667f3bcdLL;
    Whole<double> n = (bits - root_half) >> 52;
    bits -= n << 52;
    Vector<double> m;
    std::memcpy(&m, &bits, sizeof m);
    Vector<double> s = (m - 1.0) / (m + 1.0), q = s * s;
    Vector<double> p = q * (1.0 / 23) + 1.0 / 21;
    for (int odd = 19; odd > 1; odd -= 2) p = p * q + 1.0 / odd;
    Vector<double> whole = __builtin_convertvector(n, Vector<double>);
    return whole * 0.69314718036912382 + (2.0 * s + 2.0 * s * q * p + whole * 1.9082149292705877e-10);
}

// exp(psi(x)) for x >= 0, and in float at least 1e-26 or so, with one exponential and no logarithm: with y = x + n,
// psi(x) = log y - 1/(2y) - 1/(12 y^2) + 1/(120 y^4) - ... - sum_{i<n} 1/(x + i),
// and the reciprocals pair up: 1/(x + i) + 1/(x + n-1-i) = (2x + n-1) / (x^2 + (n-1) x + i (n-1-i)).
inline Vector<float> exp_digamma(Vector<float> x) {
    Vector<float> u = x * (x + 3.0f), y = x + 4.0f, h = 1.0f / y, q = h * h;
    Vector<float> series = h * 0.5f + q * (1.0f / 12 - q * (1.0f / 120 - q * (1.0f / 252)));
    Vector<float> passed = (2.0f * x + 3.0f) * (2.0f * u + 2.0f) / (u * (u + 2.0f) + 1e-30f);
    return y * exponential(larger<float>(-series - passed, Vector<float>{} - 60.0f));
}

struct Shifted {  // y = x + 10, and what is to be taken from log y: psi(x) = log y - tail
    Vector<double> y, tail;
    explicit Shifted(Vector<double> x) {
        // The five pairs of reciprocals over one denominator: p'(u) / p(u), p(u) = prod (u + c).
        Vector<double> u = x * (x + 9.0), p = u, slope = Vector<double>{} + 1.0;
        for (double c : {8.0, 14.0, 18.0, 20.0}) slope = slope * (u + c) + p, p *= u + c;
        y = x + 10.0;
        Vector<double> h = 1.0 / y, q = h * h;
        Vector<double> series = 1.0 / 240 - q * (1.0 / 132 - q * (691.0 / 32760));
        series = q * (1.0 / 12 - q * (1.0 / 120 - q * (1.0 / 252 - q * series)));
        tail = 0.5 * h + series + (2.0 * x + 9.0) * slope / (p + 1e-290);
    }
};

inline Vector<double> exp_digamma(Vector<double> x) {
    Shifted s(x);
    return s.y * exponential(-s.tail);
}

inline Vector<double> digamma(Vector<double> x) {
    Shifted s(x);
    return logarithm(s.y) - s.tail;
}

inline Vector<double> log_gamma(Vector<double> x) {
    Vector<double> u = x * (x + 9.0), y = x + 10.0, h = 1.0 / y, q = h * h;
    Vector<double> product = u * (u + 8.0) * (u + 14.0) * (u + 18.0) * (u + 20.0);
    Vector<double> series = 1.0 / 1680 - q * (1.0 / 1188 - q * (691.0 / 360360));
    series = h * (1.0 / 12 - q * (1.0 / 360 - q * (1.0 / 1260 - q * series)));
    return (y - 0.5) * logarithm(y) - y + 0.91893853320467274 + series - logarithm(product);
}

}  // namespace
