// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/token_words.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <optional>

#include "reference/explain/index_set.hpp"
#include "reference/explain/period.hpp"

namespace goldenrule::explain {
namespace {

constexpr std::array<std::int64_t, 4> kChunks{128, 64, 32, 16};

// The failing tokens of one sequence that has any.
struct Tokens {
  std::int64_t length = 0, first = 0, last = 0, count = 0;
  const TokenMask* mask = nullptr;
};

std::vector<Tokens> active_sequences(const std::vector<TokenMask>& sequences) {
  std::vector<Tokens> active;
  for (const TokenMask& mask : sequences) {
    Tokens t{.length = std::ssize(mask), .mask = &mask};
    for (std::int64_t i = 0; i < t.length; ++i) {
      if (mask[static_cast<std::size_t>(i)] == 0) continue;
      if (t.count++ == 0) t.first = i;
      t.last = i;
    }
    if (t.count > 0) active.push_back(t);
  }
  return active;
}

// The value of f that all sequences share.
template <class F>
std::optional<std::int64_t> shared(const std::vector<Tokens>& active, F&& f) {
  const std::int64_t value = f(active.front());
  for (const Tokens& t : active) {
    if (f(t) != value) return std::nullopt;
  }
  return value;
}

template <class F>
bool all_of(const std::vector<Tokens>& active, F&& f) {
  return std::ranges::all_of(active, f);
}

std::string multiple_note(std::int64_t token) {
  for (const std::int64_t c : kChunks) {
    if (token % c == 0) return " (a multiple of " + std::to_string(c) + ")";
  }
  return "";
}

// The chunk size whose incomplete last chunk is what fails, in every sequence that has one.
std::optional<std::int64_t> tail_chunk(const std::vector<TokenMask>& sequences,
                                       const std::vector<Tokens>& active) {
  for (const std::int64_t c : kChunks) {
    const auto fails_in_tail = [&](const Tokens& t) {
      return t.length > c && t.length % c != 0 && t.first >= t.length - t.length % c;
    };
    const auto has_tail = [&](const TokenMask& mask) {
      return std::ssize(mask) > c && std::ssize(mask) % c != 0;
    };
    // One sequence that fails from a chunk on says as much as "from token t on".
    if (all_of(active, fails_in_tail) && active.size() > 1 &&
        std::ranges::count_if(sequences, has_tail) == std::ssize(active)) {
      return c;
    }
  }
  return std::nullopt;
}

// Failing tokens that are one residue class modulo some number, complete from the first on.
std::optional<std::string> residue(const std::vector<Tokens>& active) {
  std::int64_t step = 0;
  const std::int64_t origin = active.front().first;
  std::int64_t most = 0;
  for (const Tokens& t : active) {
    most = std::max(most, t.count);
    for (std::int64_t i = t.first; i <= t.last; ++i) {
      if ((*t.mask)[static_cast<std::size_t>(i)] != 0) step = std::gcd(step, i - origin);
    }
  }
  if (step < 2 || most < kPeriodic) return std::nullopt;
  const std::int64_t r = origin % step;
  const bool complete = all_of(active, [&](const Tokens& t) {
    return t.count == (t.last - t.first) / step + 1 && t.last + step >= t.length;
  });
  if (!complete) return std::nullopt;
  const std::string every = std::to_string(step);
  if (r == 0) return "only tokens at multiples of " + every;
  if (r == step - 1) return "only the last token of each " + every;
  return "every " + ordinal(step) + " token (t % " + every + " = " + std::to_string(r) + ")";
}

// Failing tokens that are one periodic set in every sequence that has any, told by the longest.
std::optional<std::string> period(const std::vector<Tokens>& active) {
  const Tokens& longest = *std::ranges::max_element(active, {}, &Tokens::length);
  const std::optional<Period> found = period_of(*longest.mask);
  if (!found || found->width == 1) return std::nullopt;
  const bool exact = all_of(active, [&](const Tokens& t) {
    for (std::int64_t i = 0; i < t.length; ++i) {
      if (found->contains(i) != ((*t.mask)[static_cast<std::size_t>(i)] != 0)) return false;
    }
    return true;
  });
  if (!exact) return std::nullopt;
  const std::string of_each = std::to_string(found->width) + " tokens of each " +
                              std::to_string(found->modulus) + " of a sequence";
  if (found->first == 0) return "the first " + of_each;
  if (found->first + found->width == found->modulus) return "the last " + of_each;
  return "tokens " + condition(*found, "t") + " of a sequence";
}

std::optional<std::string> from_token(const std::vector<Tokens>& active) {
  const bool to_the_end = all_of(active, [](const Tokens& t) {
    return t.last == t.length - 1 && 2 * t.count >= t.length - t.first;
  });
  if (!to_the_end) return std::nullopt;
  if (const auto first = shared(active, [](const Tokens& t) { return t.first; })) {
    if (*first == 0) return "";
    return "from token " + std::to_string(*first) + " on" + multiple_note(*first);
  }
  for (const std::int64_t c : kChunks) {
    if (all_of(active, [&](const Tokens& t) { return t.first > 0 && t.first % c == 0; })) {
      return "from a multiple of " + std::to_string(c) + " on (not the same in each sequence)";
    }
  }
  return std::nullopt;
}

std::optional<std::string> up_to_token(const std::vector<Tokens>& active) {
  const auto last = shared(active, [](const Tokens& t) { return t.last; });
  const bool ends_early = all_of(active, [](const Tokens& t) { return t.last < t.length - 1; });
  const bool dense =
      all_of(active, [](const Tokens& t) { return 2 * t.count >= t.last - t.first + 1; });
  const auto first = shared(active, [](const Tokens& t) { return t.first; });
  if (!last || !first || !dense || !ends_early) return std::nullopt;
  if (*first == 0) return "up to token " + std::to_string(*last);
  return "tokens " + std::to_string(*first) + " to " + std::to_string(*last);
}

}  // namespace

std::string token_words(const std::vector<TokenMask>& sequences) {
  const std::vector<Tokens> active = active_sequences(sequences);
  if (active.empty()) return "";
  if (all_of(active, [](const Tokens& t) { return t.count == t.length; }) &&
      active.size() == sequences.size()) {
    return "";
  }
  const bool one_each = all_of(active, [](const Tokens& t) { return t.count == 1; });
  const bool long_enough =
      std::ranges::any_of(active, [](const Tokens& t) { return t.length > 1; });
  if (one_each && long_enough) {
    const auto token = shared(active, [](const Tokens& t) { return t.first; });
    const bool last = all_of(active, [](const Tokens& t) { return t.last == t.length - 1; });
    if (last && (active.size() > 1 || !token)) return "only the last token";
    if (token) {
      return "only token " + std::to_string(*token) + (last ? ", the last" : "");
    }
  }
  if (const auto chunk = tail_chunk(sequences, active)) {
    return "only the tail chunk (the last T % " + std::to_string(*chunk) + " tokens)";
  }
  if (const auto words = residue(active)) return *words;
  if (const auto words = period(active)) return *words;
  if (const auto words = from_token(active)) return *words;
  if (const auto words = up_to_token(active)) return *words;
  return "";
}

}  // namespace goldenrule::explain
