// The local step of latent Dirichlet allocation on sparse counts, and sweeps of CVB0.
//
// What is computed is stated in ../engine.py. Compiled once for each instruction set (VARIANT).
// Rows of topics are padded with zeros to whole vectors: B = 0 there, so phi = 0 there. Documents are
// worked through by threads; what the mean-field local step finds does not depend on how many.

#include <atomic>
#include <cmath>
#include <cstddef>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "lanes.hpp"

namespace {

struct Counts {  // documents in compressed sparse rows, see documents.py
    int64_t documents;
    const int64_t* starts;
    const int32_t* words;
    const float* counts;
};

struct ByWord {  // the same entries in the order of their words
    int64_t distinct;       // words that occur
    const int32_t* words;   // (distinct,)
    const int64_t* starts;  // (distinct + 1,)
    const int64_t* places;  // (entries,) place of the entry in Counts
    const int32_t* owners;  // (entries,) its document
};

// While it lives, numbers below the smallest normal one are zero: they cost a hundred cycles each.
struct WithoutDenormals {
#if defined(__x86_64__)
    unsigned before = _mm_getcsr();
    WithoutDenormals() { _mm_setcsr(before | 0x8040); }
    ~WithoutDenormals() { _mm_setcsr(before); }
#elif defined(__aarch64__)
    uint64_t before;
    WithoutDenormals() {
        asm volatile("mrs %0, fpcr" : "=r"(before));
        asm volatile("msr fpcr, %0" ::"r"(before | (1ull << 24)));
    }
    ~WithoutDenormals() { asm volatile("msr fpcr, %0" ::"r"(before)); }
#endif
};

template <typename Work> void in_threads(int threads, Work work) {
    auto run = [&](int thread) {
        WithoutDenormals guard;
        work(thread);
    };
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back(run, t);
    run(0);
    for (auto& one : others) one.join();
}

// Calls work(first, last, thread) for pieces of [0, total), each taken by the next free thread.
template <typename Work> void in_pieces(int threads, int64_t total, int64_t piece, Work work) {
    std::atomic<int64_t> next{0};
    in_threads(threads, [&](int thread) {
        for (int64_t at; (at = next.fetch_add(piece)) < total;)
            work(at, at + piece < total ? at + piece : total, thread);
    });
}

// Cuts rows into `parts` with about as many entries each.
std::vector<int64_t> cuts(const int64_t* starts, int64_t rows, int parts) {
    std::vector<int64_t> at(parts + 1, 0);
    for (int p = 1; p < parts; ++p) {
        int64_t row = at[p - 1];
        while (row < rows && starts[row] < starts[rows] / parts * p) ++row;
        at[p] = row;
    }
    at[parts] = rows;
    return at;
}

enum Rule { mean_field = 0, collapsed = 1, mean = 2 };

// --- one document ---------------------------------------------------------------------------------

template <typename T> struct Scratch {  // of one thread; grows with the longest document
    std::vector<T> tile, buffer;
    void reserve(size_t entries, size_t width) {
        if (tile.size() < entries * width) tile.resize(entries * width);
        if (buffer.size() < width) buffer.resize(width);
    }
};

template <typename T> inline T dot(const T* a, const T* b, int width) {
    Vector<T> s0{}, s1{};
    int k = 0;
    for (; k + 2 * Lanes<T>::count <= width; k += 2 * Lanes<T>::count) {
        s0 += load(a + k) * load(b + k);
        s1 += load(a + k + Lanes<T>::count) * load(b + k + Lanes<T>::count);
    }
    if (k < width) s0 += load(a + k) * load(b + k);
    return sum<T>(s0 + s1);
}

template <typename T> inline void transform(Rule rule, const T* gamma, T* proportions, int width) {
    for (int k = 0; k < width; k += Lanes<T>::count) {
        Vector<T> g = load(gamma + k);
        store(proportions + k, rule == mean_field ? exp_digamma(g) : g);
    }
}

// sums = sum_w n_w B_w / (t' B_w)
template <typename T>
inline void shares(const T* tile, const float* counts, int64_t entries, const T* t, T* sums,
                   int width) {
    constexpr int step = Lanes<T>::count;
    for (int k = 0; k < width; k += step) store(sums + k, Vector<T>{});
    for (int64_t e = 0; e < entries; ++e) {
        const T* row = tile + e * width;
        const T share = T(counts[e]) / dot(t, row, width);
        for (int k = 0; k < width; k += step) store(sums + k, load(sums + k) + load(row + k) * share);
    }
}

// The same with N vectors of topics, all of them in registers.
template <typename T, int N>
inline void shares(const T* tile, const float* counts, int64_t entries, const T* t, T* sums) {
    constexpr int step = Lanes<T>::count;
    Vector<T> proportions[N], totals[N];
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) proportions[v] = load(t + v * step), totals[v] = Vector<T>{};
    for (int64_t e = 0; e < entries; ++e) {
        Vector<T> row[N], product{};
#pragma GCC unroll 8
        for (int v = 0; v < N; ++v) {
            row[v] = load(tile + (e * N + v) * step);
            product += row[v] * proportions[v];
        }
        const T share = T(counts[e]) / sum<T>(product);
#pragma GCC unroll 8
        for (int v = 0; v < N; ++v) totals[v] += row[v] * share;
    }
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) store(sums + v * step, totals[v]);
}

inline void shares_of(const float* tile, const float* counts, int64_t entries, const float* t,
                      float* sums, int width) {
    switch (width / Lanes<float>::count) {
        case 1: return shares<float, 1>(tile, counts, entries, t, sums);
        case 2: return shares<float, 2>(tile, counts, entries, t, sums);
        case 3: return shares<float, 3>(tile, counts, entries, t, sums);
        case 4: return shares<float, 4>(tile, counts, entries, t, sums);
        case 5: return shares<float, 5>(tile, counts, entries, t, sums);
        case 6: return shares<float, 6>(tile, counts, entries, t, sums);
        case 7: return shares<float, 7>(tile, counts, entries, t, sums);
        case 8: return shares<float, 8>(tile, counts, entries, t, sums);
        default: return shares<float>(tile, counts, entries, t, sums, width);
    }
}
inline void shares_of(const double* tile, const float* counts, int64_t entries, const double* t,
                      double* sums, int width) {
    shares<double>(tile, counts, entries, t, sums, width);
}

// gamma <- alpha + t(gamma) sum_w n_w B_w / (t(gamma)' B_w) until it rests; returns the iterations.
template <typename T>
int ascend(Rule rule, const T* tile, const float* counts, int64_t entries, const T* alpha, T* gamma,
           T* t, T* sums, int topics, int width, int iterations, double tolerance) {
    constexpr int step = Lanes<T>::count;
    transform(rule, gamma, t, width);
    for (int i = 1; i <= iterations; ++i) {
        shares_of(tile, counts, entries, t, sums, width);
        Vector<T> moved{};
        for (int k = 0; k < width; k += step) {
            Vector<T> next = load(alpha + k) + load(t + k) * load(sums + k);
            moved += magnitude<T>(next - load(gamma + k));
            store(gamma + k, next);
        }
        transform(rule, gamma, t, width);
        if (sum<T>(moved) < tolerance * topics) return i;
    }
    return iterations;
}

// CVB0 within a document, its words in turn: phi_w ∝ (gamma - phi_w) B_w; returns the iterations.
// N vectors of topics in registers; any number if N is 0.
template <typename T, int N>
int ascend_collapsed(const T* tile, T* phi, const float* counts, int64_t entries, const T* alpha,
                     T* gamma, T* buffer, int topics, int width, int iterations, double tolerance) {
    constexpr int step = Lanes<T>::count;
    const int vectors = N ? N : width / step;
    for (int64_t e = 0; e < entries; ++e) {
        const T share = T(1) / dot(gamma, tile + e * width, width);
        for (int k = 0; k < width; k += step)
            store(phi + e * width + k, load(gamma + k) * load(tile + e * width + k) * share);
    }
    if (!iterations) return 0;
    for (int k = 0; k < width; k += step) {
        Vector<T> total = load(alpha + k);
        for (int64_t e = 0; e < entries; ++e) total += load(phi + e * width + k) * T(counts[e]);
        store(gamma + k, total);
    }
    for (int i = 1; i <= iterations; ++i) {
        Vector<T> moved{};
        for (int64_t e = 0; e < entries; ++e) {
            const T* row = tile + e * width;
            T* own = phi + e * width;
            Vector<T> held[N ? N : 1], total{}, change{};
#pragma GCC unroll 8
            for (int v = 0; v < vectors; ++v) {
                const int k = v * step;
                const Vector<T> left = larger<T>(load(gamma + k) - load(own + k), Vector<T>{});
                const Vector<T> value = left * load(row + k);
                if (N) held[v] = value;
                else store(buffer + k, value);
                total += value;
            }
            const T share = T(1) / sum<T>(total), n = T(counts[e]);
#pragma GCC unroll 8
            for (int v = 0; v < vectors; ++v) {
                const int k = v * step;
                const Vector<T> next = (N ? held[v] : load(buffer + k)) * share;
                const Vector<T> difference = (next - load(own + k)) * n;
                store(own + k, next);
                store(gamma + k, load(gamma + k) + difference);
                change += magnitude<T>(difference);
            }
            moved += change;
        }
        if (sum<T>(moved) < tolerance * topics) return i;
    }
    return iterations;
}

template <typename... Rest> int ascend_collapsed_of(int width, const float* tile, Rest... rest) {
    switch (width / Lanes<float>::count) {
        case 1: return ascend_collapsed<float, 1>(tile, rest...);
        case 2: return ascend_collapsed<float, 2>(tile, rest...);
        case 3: return ascend_collapsed<float, 3>(tile, rest...);
        case 4: return ascend_collapsed<float, 4>(tile, rest...);
        case 5: return ascend_collapsed<float, 5>(tile, rest...);
        case 6: return ascend_collapsed<float, 6>(tile, rest...);
        case 7: return ascend_collapsed<float, 7>(tile, rest...);
        case 8: return ascend_collapsed<float, 8>(tile, rest...);
        default: return ascend_collapsed<float, 0>(tile, rest...);
    }
}
template <typename... Rest> int ascend_collapsed_of(int, const double* tile, Rest... rest) {
    return ascend_collapsed<double, 0>(tile, rest...);
}

// E_q log p(theta) - E_q log q(theta) of one document, and psi(sum gamma), in double.
struct Divergence {
    std::vector<double> alpha;
    double log_beta_prior = 0, alpha_total = 0;
    int topics, width;

    template <typename T> Divergence(const T* prior, int topics) : topics(topics) {
        width = (topics + 7) / 8 * 8;
        alpha.assign(width, 1.0);  // alpha = gamma = 1 in the padding adds nothing
        for (int k = 0; k < topics; ++k) alpha[k] = prior[k], alpha_total += prior[k];
        Vector<double> terms{};
        for (int k = 0; k < width; k += 8) terms += log_gamma(load(alpha.data() + k));
        log_beta_prior = sum<double>(terms) - log_gamma(Vector<double>{} + alpha_total)[0];
    }

    template <typename T> double of(const T* gamma, double* digamma_total) const {
        Vector<double> terms{};
        double total = 0;
        for (int k = 0; k < topics; ++k) total += gamma[k];
        const Vector<double> whole = Vector<double>{} + total;
        const double psi = digamma(whole)[0];
        for (int k = 0; k < width; k += 8) {
            Vector<double> g = Vector<double>{} + 1.0;
            for (int j = 0; j < 8 && k + j < topics; ++j) g[j] = gamma[k + j];
            Vector<double> a = load(alpha.data() + k);
            terms += (g - a) * (digamma(g) - psi) - log_gamma(g);
        }
        // Padding has g = a = 1: (g - a) is zero and log Gamma(1) is zero up to rounding.
        *digamma_total = psi;
        return sum<double>(terms) + log_gamma(whole)[0] + log_beta_prior;
    }
};

// --- the local step of a batch --------------------------------------------------------------------

template <typename T> struct Batch {
    Counts docs;
    ByWord by_word;
    const T* weights;       // (vocabulary, width)
    const double* offsets;  // (vocabulary,)
    const T* alpha;         // (width,)
    int topics, width, threads;
};

template <typename T> void gather(const Batch<T>& batch, int64_t d, T* tile) {
    for (int64_t e = batch.docs.starts[d]; e < batch.docs.starts[d + 1]; ++e, tile += batch.width)
        std::memcpy(tile, batch.weights + size_t(batch.docs.words[e]) * batch.width,
                    sizeof(T) * batch.width);
}

// gamma, the part of the bound and the iterations of each document; statistics where wanted.
template <typename T>
void local(const Batch<T>& batch, T* gamma, double* statistics, double* bounds, int32_t* used,
           Rule rule, int iterations, double tolerance) {
    const Counts& docs = batch.docs;
    const int width = batch.width;
    const Divergence divergence(batch.alpha, batch.topics);
    std::vector<Scratch<T>> scratch(batch.threads);
    std::vector<T> t_all(size_t(docs.documents) * width), shares(docs.starts[docs.documents]);
    in_pieces(batch.threads, docs.documents, 64, [&](int64_t first, int64_t last, int thread) {
        Scratch<T>& mine = scratch[thread];
        for (int64_t d = first; d < last; ++d) {
            const int64_t begin = docs.starts[d], entries = docs.starts[d + 1] - begin;
            const float* counts = docs.counts + begin;
            T *own = gamma + size_t(d) * width, *t = t_all.data() + size_t(d) * width;
            mine.reserve(entries, width);
            gather(batch, d, mine.tile.data());
            used[d] = ascend(rule, mine.tile.data(), counts, entries, batch.alpha, own, t,
                             mine.buffer.data(), batch.topics, width, iterations, tolerance);
            double value = 0, tokens = 0, psi;
            for (int64_t e = 0; e < entries; ++e) {
                const double total = dot(t, mine.tile.data() + e * width, width);
                shares[begin + e] = T(counts[e] / total);
                value += counts[e] * (std::log(total) + batch.offsets[docs.words[begin + e]]);
                tokens += counts[e];
            }
            bounds[d] = 0;
            if (rule == mean_field) {
                const double gap = divergence.of(own, &psi);
                bounds[d] = value - tokens * psi - gap;
            }
        }
    });
    if (!statistics) return;
    // sum_d n phi, word by word: B_wk sum_d t_dk n_dw / total_dw.
    const ByWord& by = batch.by_word;
    in_pieces(batch.threads, by.distinct, 16, [&](int64_t first, int64_t last, int) {
        std::vector<double> sums(width);
        for (int64_t w = first; w < last; ++w) {
            for (double& s : sums) s = 0;
            for (int64_t i = by.starts[w]; i < by.starts[w + 1]; ++i) {
                const T share = shares[by.places[i]];
                const T* t = t_all.data() + size_t(by.owners[i]) * width;
                for (int k = 0; k < width; k += Lanes<T>::count)
                    add(sums.data() + k, load(t + k) * share);
            }
            const size_t row = size_t(by.words[w]) * width;
            for (int k = 0; k < width; ++k) statistics[row + k] = sums[k] * batch.weights[row + k];
        }
    });
}

// CVB0 within each document: gamma, and statistics where wanted. A document's phi are added to its
// thread's own table while they are in the cache, so which thread takes it must not be left to chance.
// The tables are zero before and after.
template <typename T>
void local_collapsed(const Batch<T>& batch, T* gamma, double* statistics, double* tables,
                     int32_t* used, int64_t vocabulary, int iterations, double tolerance) {
    const Counts& docs = batch.docs;
    const int width = batch.width;
    const size_t size = size_t(vocabulary) * width;
    const auto at = cuts(docs.starts, docs.documents, batch.threads);
    in_threads(batch.threads, [&](int thread) {
        Scratch<T> tile, phi;
        for (int64_t d = at[thread]; d < at[thread + 1]; ++d) {
            const int64_t begin = docs.starts[d], entries = docs.starts[d + 1] - begin;
            tile.reserve(entries, width);
            phi.reserve(entries, width);
            gather(batch, d, tile.tile.data());
            used[d] = ascend_collapsed_of(width, tile.tile.data(), phi.tile.data(),
                                          docs.counts + begin, entries, batch.alpha,
                                          gamma + size_t(d) * width, tile.buffer.data(),
                                          batch.topics, width, iterations, tolerance);
            if (!statistics) continue;
            for (int64_t e = 0; e < entries; ++e) {
                double* sums = tables + thread * size + size_t(docs.words[begin + e]) * width;
                const T n = T(docs.counts[begin + e]);
                for (int k = 0; k < width; k += Lanes<T>::count)
                    add(sums + k, load(phi.tile.data() + e * width + k) * n);
            }
        }
    });
    if (!statistics) return;
    const ByWord& by = batch.by_word;
    in_pieces(batch.threads, by.distinct, 64, [&](int64_t first, int64_t last, int) {
        for (int64_t w = first; w < last; ++w) {
            const size_t row = size_t(by.words[w]) * width;
            for (int k = 0; k < width; k += 8) {
                Vector<double> total{};
                for (int t = 0; t < batch.threads; ++t) {
                    total += load(tables + t * size + row + k);
                    store(tables + t * size + row + k, Vector<double>{});
                }
                store(statistics + row + k, total);
            }
        }
    });
}

// --- topics ---------------------------------------------------------------------------------------

constexpr int64_t block = 256;  // words whose sums are taken together, for any number of threads

void column_sums(const double* topics, int64_t vocabulary, int width, int threads, double* totals) {
    const int64_t blocks = (vocabulary + block - 1) / block;
    std::vector<double> parts(size_t(blocks) * width, 0.0);
    in_pieces(threads, blocks, 1, [&](int64_t b, int64_t, int) {
        const int64_t last = (b + 1) * block < vocabulary ? (b + 1) * block : vocabulary;
        for (int64_t w = b * block; w < last; ++w)
            for (int k = 0; k < width; ++k) parts[b * width + k] += topics[size_t(w) * width + k];
    });
    for (int k = 0; k < width; ++k) totals[k] = 0;
    for (int64_t b = 0; b < blocks; ++b)
        for (int k = 0; k < width; ++k) totals[k] += parts[b * width + k];
}

// Mean-field rows are divided by their largest element, whose logarithm is kept: exp psi(0.01) is
// e^-100, which float does not hold, and phi does not see a factor common to its row.
template <typename T>
void weigh(const double* topics, T* weights, double* offsets, int64_t vocabulary, int count, int width,
           Rule rule, int threads) {
    std::vector<double> totals(width), minus(width, 0.0);
    column_sums(topics, vocabulary, width, threads, totals.data());
    for (int k = 0; k < count; ++k)
        minus[k] = rule == mean_field ? digamma(Vector<double>{} + totals[k])[0] : 1 / totals[k];
    in_pieces(threads, vocabulary, block, [&](int64_t first, int64_t last, int) {
        std::vector<double> row(width);
        for (int64_t w = first; w < last; ++w) {
            const double* own = topics + size_t(w) * width;
            T* out = weights + size_t(w) * width;
            offsets[w] = 0;
            if (rule != mean_field) {
                for (int k = 0; k < count; ++k) out[k] = T(own[k] * minus[k]);
                continue;
            }
            double top = -INFINITY;
            for (int k = 0; k < width; k += 8)
                store(row.data() + k, digamma(load(own + k)) - load(minus.data() + k));
            for (int k = 0; k < count; ++k) top = row[k] > top ? row[k] : top;
            offsets[w] = top;
            for (int k = 0; k < width; k += 8)
                store(row.data() + k, exponential(load(row.data() + k) - top));
            for (int k = 0; k < count; ++k) out[k] = T(row[k]);
        }
    });
}

// statistics <- (1 - step) lambda + step (eta + scale statistics)
void blend(const double* topics, double* statistics, const double* eta, double step, double scale,
           int64_t vocabulary, int count, int width, int threads) {
    in_pieces(threads, vocabulary, block, [&](int64_t first, int64_t last, int) {
        for (int64_t w = first; w < last; ++w) {
            const double* own = topics + size_t(w) * width;
            double* found = statistics + size_t(w) * width;
            for (int k = 0; k < count; ++k)
                found[k] = (1 - step) * own[k] + step * (eta[w] + scale * found[k]);
        }
    });
}

// The entries of some documents in the order of their words, by counting; returns the words that occur.
int64_t transpose(const Counts& docs, int64_t vocabulary, int32_t* words, int64_t* starts,
                  int64_t* places, int32_t* owners) {
    const int64_t entries = docs.starts[docs.documents];
    std::vector<int64_t> next(vocabulary, 0);
    for (int64_t e = 0; e < entries; ++e) ++next[docs.words[e]];
    int64_t distinct = 0, at = 0;
    for (int64_t w = 0; w < vocabulary; ++w) {
        if (next[w]) words[distinct] = int32_t(w), starts[distinct++] = at;
        const int64_t found = next[w];
        next[w] = at;
        at += found;
    }
    starts[distinct] = entries;
    for (int64_t d = 0; d < docs.documents; ++d)
        for (int64_t e = docs.starts[d]; e < docs.starts[d + 1]; ++e) {
            const int64_t place = next[docs.words[e]]++;
            places[place] = e;
            owners[place] = int32_t(d);
        }
    return distinct;
}

// --- CVB0 with stored phi -------------------------------------------------------------------------

// phi is stored in 16 bits (the upper half of a float) or, for exactness, as double. `put` returns
// what will be read again, so that the counts are those of the stored phi.
inline Vector<float> get(const uint16_t* at) {
    typedef uint16_t Halves __attribute__((vector_size(32)));
    typedef uint32_t Bits __attribute__((vector_size(64)));
    Halves halves;
    std::memcpy(&halves, at, sizeof halves);
    const Bits bits = __builtin_convertvector(halves, Bits) << 16;
    Vector<float> value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline Vector<float> put(uint16_t* at, Vector<float> value) {
    typedef uint16_t Halves __attribute__((vector_size(32)));
    typedef uint32_t Bits __attribute__((vector_size(64)));
    Bits bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x8000u) & 0xffff0000u;
    const Halves halves = __builtin_convertvector(bits >> 16, Halves);
    std::memcpy(at, &halves, sizeof halves);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline Vector<double> get(const double* at) { return load(at); }
inline Vector<double> put(double* at, Vector<double> value) { return store(at, value), value; }

template <typename T, typename S> struct Assigned {
    Counts docs;
    S* phi;            // (entries, width)
    T* by_document;    // (documents, width)
    T* by_word;        // (vocabulary, width)
    double* by_topic;  // (width,)
    T* tables;         // (threads, vocabulary, width)
    int64_t vocabulary;
    int width, threads;
};

// One entry: phi ∝ (N_wk - phi + eta) (N_dk - phi + alpha) / (N_k - phi + sum eta), and the counts
// that change with it. `gamma` is N_dk + alpha. N vectors of topics in registers; any number if 0.
template <typename T, typename S, int N>
inline void visit(S* stored, T* row, T* gamma, const T* inverse, T eta, T n, T* buffer, int width) {
    constexpr int step = Lanes<T>::count;
    const int vectors = N ? N : width / step;
    Vector<T> held[N ? N : 1], total{};
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
        const int k = v * step;
        // 1 / (N - phi) = (1 / N) (1 + phi / N) up to (phi / N)^2
        const Vector<T> old = get(stored + k), i = load(inverse + k);
        const Vector<T> in_word = larger<T>(load(row + k) - old, Vector<T>{}) + eta;
        const Vector<T> in_document = larger<T>(load(gamma + k) - old, Vector<T>{});
        const Vector<T> value = in_word * in_document * i * (i * old + T(1));
        if (N) held[v] = value;
        else store(buffer + k, value);
        total += value;
    }
    const T share = T(1) / sum<T>(total);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
        const int k = v * step;
        const Vector<T> old = get(stored + k), value = N ? held[v] : load(buffer + k);
        const Vector<T> change = (put(stored + k, value * share) - old) * n;
        store(gamma + k, load(gamma + k) + change);
        store(row + k, load(row + k) + change);
    }
}

// Some documents, in place: their words see every earlier change of this thread.
template <typename T, typename S, int N>
void pass(const Assigned<T, S>& a, T* table, std::vector<double>& topic_counts, const T* alpha,
          const T* eta, double eta_total, int64_t first, int64_t last) {
    const int width = a.width;
    std::vector<T> space(3 * size_t(width));
    T *gamma = space.data(), *inverse = gamma + width, *buffer = inverse + width;
    for (int64_t d = first; d < last; ++d) {
        T* own = a.by_document + size_t(d) * width;
        for (int k = 0; k < width; ++k) {
            gamma[k] = own[k] + alpha[k];
            inverse[k] = T(1 / (topic_counts[k] + eta_total));
        }
        for (int64_t e = a.docs.starts[d]; e < a.docs.starts[d + 1]; ++e) {
            const int32_t w = a.docs.words[e];
            visit<T, S, N>(a.phi + size_t(e) * width, table + size_t(w) * width, gamma, inverse,
                           eta[w], T(a.docs.counts[e]), buffer, width);
        }
        for (int k = 0; k < width; ++k) {
            const T now = gamma[k] - alpha[k];
            topic_counts[k] += double(now) - double(own[k]);
            own[k] = now > 0 ? now : 0;
        }
    }
}

template <typename S, typename... Rest>
void pass_of(const Assigned<float, S>& a, Rest&&... rest) {
    switch (a.width / Lanes<float>::count) {
        case 1: return pass<float, S, 1>(a, rest...);
        case 2: return pass<float, S, 2>(a, rest...);
        case 3: return pass<float, S, 3>(a, rest...);
        case 4: return pass<float, S, 4>(a, rest...);
        case 5: return pass<float, S, 5>(a, rest...);
        case 6: return pass<float, S, 6>(a, rest...);
        case 7: return pass<float, S, 7>(a, rest...);
        case 8: return pass<float, S, 8>(a, rest...);
        default: return pass<float, S, 0>(a, rest...);
    }
}
template <typename S, typename... Rest>
void pass_of(const Assigned<double, S>& a, Rest&&... rest) {
    pass<double, S, 0>(a, rest...);
}

// A sweep: each thread works on a part of the documents with a table of counts of its own; the
// changes are added up at the end.
template <typename T, typename S>
void sweep(const Assigned<T, S>& a, const T* alpha, const T* eta, double eta_total) {
    const size_t size = size_t(a.vocabulary) * a.width;
    const auto at = cuts(a.docs.starts, a.docs.documents, a.threads);
    std::vector<std::vector<double>> totals(
        a.threads, std::vector<double>(a.by_topic, a.by_topic + a.width));
    in_threads(a.threads, [&](int t) {
        T* table = a.threads == 1 ? a.by_word : a.tables + t * size;
        if (a.threads > 1) std::memcpy(table, a.by_word, sizeof(T) * size);
        pass_of(a, table, totals[t], alpha, eta, eta_total, at[t], at[t + 1]);
    });
    for (int k = 0; k < a.width; ++k) {
        double change = 0;
        for (int t = 0; t < a.threads; ++t) change += totals[t][k] - a.by_topic[k];
        a.by_topic[k] += change;
    }
    if (a.threads == 1) return;
    in_pieces(a.threads, a.vocabulary, 64, [&](int64_t first, int64_t last, int) {
        for (size_t i = size_t(first) * a.width; i < size_t(last) * a.width; ++i) {
            T value = a.by_word[i];
            const T before = value;
            for (int t = 0; t < a.threads; ++t) value += a.tables[t * size + i] - before;
            a.by_word[i] = value > 0 ? value : 0;
        }
    });
}

template <typename T, typename S>
inline void add_entry(double* sums, const S* phi, T n, int width) {
    for (int k = 0; k < width; k += Lanes<T>::count) add(sums + k, get(phi + k) * n);
}

// Counts of all kinds, anew from phi.
template <typename T, typename S> void recount(const Assigned<T, S>& a, const ByWord& by_word) {
    const int width = a.width;
    in_pieces(a.threads, a.docs.documents, 256, [&](int64_t first, int64_t last, int) {
        std::vector<double> sums(width);
        for (int64_t d = first; d < last; ++d) {
            for (double& s : sums) s = 0;
            for (int64_t e = a.docs.starts[d]; e < a.docs.starts[d + 1]; ++e)
                add_entry<T>(sums.data(), a.phi + size_t(e) * width, a.docs.counts[e], width);
            for (int k = 0; k < width; ++k) a.by_document[size_t(d) * width + k] = T(sums[k]);
        }
    });
    std::memset(a.by_word, 0, sizeof(T) * size_t(a.vocabulary) * width);
    in_pieces(a.threads, by_word.distinct, 16, [&](int64_t first, int64_t last, int) {
        std::vector<double> sums(width);
        for (int64_t w = first; w < last; ++w) {
            for (double& s : sums) s = 0;
            for (int64_t i = by_word.starts[w]; i < by_word.starts[w + 1]; ++i) {
                const int64_t e = by_word.places[i];
                add_entry<T>(sums.data(), a.phi + size_t(e) * width, a.docs.counts[e], width);
            }
            for (int k = 0; k < width; ++k)
                a.by_word[size_t(by_word.words[w]) * width + k] = T(sums[k]);
        }
    });
    for (int k = 0; k < width; ++k) a.by_topic[k] = 0;
    for (int64_t w = 0; w < a.vocabulary; ++w)
        for (int k = 0; k < width; ++k) a.by_topic[k] += a.by_word[size_t(w) * width + k];
}

// phi of every entry, given topics: CVB0 within each document.
template <typename T, typename S>
void settle(const Assigned<T, S>& a, const Batch<T>& batch, int iterations, double tolerance) {
    const int width = a.width;
    std::vector<Scratch<T>> scratch(batch.threads), held(batch.threads);
    in_pieces(batch.threads, a.docs.documents, 64, [&](int64_t first, int64_t last, int thread) {
        Scratch<T>& mine = scratch[thread];
        std::vector<T> gamma(width);
        for (int64_t d = first; d < last; ++d) {
            const int64_t begin = a.docs.starts[d], entries = a.docs.starts[d + 1] - begin;
            const float* counts = a.docs.counts + begin;
            mine.reserve(entries, width);
            held[thread].reserve(entries, width);
            T* phi = held[thread].tile.data();
            gather(batch, d, mine.tile.data());
            double tokens = 0;
            for (int64_t e = 0; e < entries; ++e) tokens += counts[e];
            for (int k = 0; k < batch.topics; ++k)
                gamma[k] = batch.alpha[k] + T(tokens / batch.topics);
            ascend_collapsed_of(width, mine.tile.data(), phi, counts, entries, batch.alpha,
                                gamma.data(), mine.buffer.data(), batch.topics, width, iterations,
                                tolerance);
            for (int64_t k = 0; k < entries * width; k += Lanes<T>::count)
                put(a.phi + size_t(begin) * width + k, load(phi + k));
        }
    });
}

}  // namespace

// --- what Python calls: NAME_KIND_VARIANT -----------------------------------------------------------

#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define EXPORT(kind, T, S)                                                                          \
    extern "C" void JOIN(local, kind, VARIANT)(                                                     \
        int64_t documents, const int64_t* starts, const int32_t* words, const float* counts,        \
        int64_t distinct, const int32_t* by_words, const int64_t* by_starts, const int64_t* places, \
        const int32_t* owners, const T* weights, const double* offsets, const T* alpha, T* gamma,   \
        double* statistics, double* tables, double* bounds, int32_t* used, int64_t vocabulary,      \
        int topics, int width, int rule, int iterations, double tolerance, int threads) {           \
        const Batch<T> batch{{documents, starts, words, counts},                                    \
                             {distinct, by_words, by_starts, places, owners},                       \
                             weights, offsets, alpha, topics, width, threads};                      \
        if (rule == collapsed)                                                                      \
            local_collapsed<T>(batch, gamma, statistics, tables, used, vocabulary, iterations,      \
                               tolerance);                                                          \
        else                                                                                        \
            local<T>(batch, gamma, statistics, bounds, used, Rule(rule), iterations, tolerance);    \
    }                                                                                               \
    extern "C" void JOIN(weigh, kind, VARIANT)(const double* topics, T* weights, double* offsets,   \
                                               int64_t vocabulary, int count, int width, int rule,  \
                                               int threads) {                                       \
        weigh<T>(topics, weights, offsets, vocabulary, count, width, Rule(rule), threads);          \
    }                                                                                               \
    extern "C" void JOIN(settle, kind, VARIANT)(                                                    \
        int64_t documents, const int64_t* starts, const int32_t* words, const float* counts,        \
        void* phi, const T* weights, const T* alpha, int topics, int width, int iterations,         \
        double tolerance, int threads) {                                                            \
        const Counts docs{documents, starts, words, counts};                                        \
        const Batch<T> batch{docs, {}, weights, nullptr, alpha, topics, width, threads};            \
        settle<T, S>({docs, (S*)phi, nullptr, nullptr, nullptr, nullptr, 0, width, threads}, batch, \
                     iterations, tolerance);                                                        \
    }                                                                                               \
    extern "C" void JOIN(recount, kind, VARIANT)(                                                   \
        int64_t documents, const int64_t* starts, const int32_t* words, const float* counts,        \
        int64_t distinct, const int32_t* by_words, const int64_t* by_starts, const int64_t* places, \
        const int32_t* owners, void* phi, T* by_document, T* by_word, double* by_topic,             \
        int64_t vocabulary, int width, int threads) {                                               \
        recount<T, S>({{documents, starts, words, counts}, (S*)phi, by_document, by_word, by_topic, \
                       nullptr, vocabulary, width, threads},                                        \
                      {distinct, by_words, by_starts, places, owners});                             \
    }                                                                                               \
    extern "C" void JOIN(sweep, kind, VARIANT)(                                                     \
        int64_t documents, const int64_t* starts, const int32_t* words, const float* counts,        \
        void* phi, T* by_document, T* by_word, double* by_topic, T* tables, const T* alpha,         \
        const T* eta, double eta_total, int64_t vocabulary, int width, int threads) {               \
        sweep<T, S>({{documents, starts, words, counts}, (S*)phi, by_document, by_word, by_topic,   \
                     tables, vocabulary, width, threads},                                           \
                    alpha, eta, eta_total);                                                         \
    }

EXPORT(f32, float, uint16_t)
EXPORT(f64, double, double)

extern "C" void JOIN(blend, any, VARIANT)(const double* topics, double* statistics, const double* eta,
                                          double step, double scale, int64_t vocabulary, int count,
                                          int width, int threads) {
    blend(topics, statistics, eta, step, scale, vocabulary, count, width, threads);
}

extern "C" int64_t JOIN(transpose, any, VARIANT)(int64_t documents, const int64_t* starts,
                                                 const int32_t* words, const float* counts,
                                                 int64_t vocabulary, int32_t* by_words,
                                                 int64_t* by_starts, int64_t* places,
                                                 int32_t* owners) {
    return transpose({documents, starts, words, counts}, vocabulary, by_words, by_starts, places,
                     owners);
}
