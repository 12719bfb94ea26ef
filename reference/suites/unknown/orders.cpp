// SPDX-License-Identifier: Apache-2.0
#include "reference/suites/unknown/orders.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "fixtures/call/plan.hpp"
#include "reference/delta/mistakes/variant.hpp"
#include "reference/delta/slice.hpp"
#include "reference/suites/unknown/draw.hpp"

namespace goldenrule::suites {
namespace {

template <class T>
using Numbers = std::vector<T>;

template <class T>
struct OrderedToken {
  Numbers<T> q, k, v;
  T alpha, beta;
};

template <class T>
Numbers<T> product(Numbers<T> state, T factor) {
  for (T& x : state) x *= factor;
  return state;
}

template <class T>
Numbers<T> times(const Numbers<T>& row, const Numbers<T>& state, std::size_t V) {
  Numbers<T> result(V, T(0));
  for (std::size_t i = 0; i < row.size(); ++i) {
    for (std::size_t x = 0; x < V; ++x) result[x] += row[i] * state[i * V + x];
  }
  return result;
}

template <class T>
Numbers<T> step(const StepOrder& order, const OrderedToken<T>& t, T scale, Numbers<T>& state) {
  const std::size_t V = t.v.size();
  const Numbers<T> decayed = product(state, t.alpha);
  Numbers<T> d = t.v;
  if (order.predicts >= 0) {
    const auto predicted = times(t.k, order.predicts == 0 ? state : decayed, V);
    for (std::size_t x = 0; x < V; ++x) d[x] -= predicted[x];
  }
  const auto written = [&](Numbers<T> s) {
    for (std::size_t i = 0; i < t.k.size(); ++i) {
      for (std::size_t x = 0; x < V; ++x) s[i * V + x] += t.k[i] * (t.beta * d[x]);
    }
    return s;
  };
  const std::array<Numbers<T>, 5> states{state, decayed, written(state), written(decayed),
                                         product(written(state), t.alpha)};
  auto o = product(times(t.q, states[static_cast<std::size_t>(order.reads)], V), scale);
  state = states[static_cast<std::size_t>(order.leaves)];
  return o;
}

template <class T>
Numbers<T> row_of(const call::Tensor& tensor, std::int64_t row, std::int64_t size) {
  Numbers<T> values;
  for (std::int64_t i = row * size; i < (row + 1) * size; ++i) {
    values.push_back(static_cast<T>(tensor[i]));
  }
  return values;
}

std::string order_words(const StepOrder& order) {
  const auto met = [](int state) {
    return state < 0 ? std::string("nothing")
                     : std::string(kStatesMet[static_cast<std::size_t>(state)]);
  };
  return fmt::format("predicts from {}, leaves {}, reads {}", met(order.predicts),
                     met(order.leaves), met(order.reads));
}

}  // namespace

template <class T>
call::TensorMap outputs_in_order(const call::Record& call, const StepOrder& order) {
  const call::Dims d = call::validate(call);
  const auto scale = static_cast<T>(call::resolved_scale(call.convention, d.K));
  std::vector<double> o(static_cast<std::size_t>(d.tokens * d.HV * d.V));
  std::vector<double> final_state;
  const auto sequences = call::make_plan(call, true).sequences;
  for (const call::Sequence& s : sequences) {
    for (std::int64_t h = 0; h < d.HV; ++h) {
      auto state = row_of<T>(call.inputs.at("initial_state"), std::ssize(final_state) / (d.K * d.V),
                             d.K * d.V);
      for (std::int64_t t = s.first_token; t < s.first_token + s.token_count; ++t) {
        const std::int64_t row = t * d.HV + h;
        const OrderedToken<T> token{.q = row_of<T>(call.inputs.at("q"), row, d.K),
                                    .k = row_of<T>(call.inputs.at("k"), row, d.K),
                                    .v = row_of<T>(call.inputs.at("v"), row, d.V),
                                    .alpha = row_of<T>(call.inputs.at("g"), row, 1).front(),
                                    .beta = row_of<T>(call.inputs.at("beta"), row, 1).front()};
        std::ranges::copy(step(order, token, scale, state), o.begin() + row * d.V);
      }
      final_state.insert(final_state.end(), state.begin(), state.end());
    }
  }
  call::TensorMap outputs;
  outputs["o"] = call::Tensor(call::DType::kF64, call.inputs.at("v").shape(), o);
  outputs["final_state"] =
      call::Tensor(call::DType::kF64, call.inputs.at("initial_state").shape(), final_state);
  return outputs;
}

template call::TensorMap outputs_in_order<float>(const call::Record&, const StepOrder&);
template call::TensorMap outputs_in_order<double>(const call::Record&, const StepOrder&);

Draw draw_order(Draws& draws) {
  StepOrder order;
  while (order == StepOrder{}) {
    order = {.predicts = static_cast<int>(draws.between(-1, 1)),
             .leaves = static_cast<int>(draws.between(2, 4)),
             .reads = static_cast<int>(draws.between(0, 4))};
  }
  const std::int64_t H = draws.between(1, 3);
  Draw draw = drawn_call(
      delta::slice(),
      fmt::format("op=gdn mode=prefill lens={},{} H={} HV={} K={} V={} gate=linear beta=direct "
                  "io={} h0=1 state_layout=kv qk_l2norm=none seed={}",
                  draws.between(2, 20), draws.between(2, 20), H, H, draws.of<int>({16, 24, 32}),
                  draws.of<int>({8, 16, 20}), draws.of<std::string>({"f32", "bf16"}),
                  draws.between(1, 100000)));
  draw.planted = order_words(order);
  draw.made = calls::stored(draw.call, *draw.contract, outputs_in_order<float>(draw.call, order));
  draw.exact = outputs_in_order<double>(draw.call, order);
  return draw;
}

namespace {

Draw drawn_in_chunks(Draws& draws, std::int64_t chunk, std::int64_t missing) {
  delta::ChunkVariant variant{.chunk = chunk};
  delta::ChunkOrder& order = variant.order;
  struct Decay {
    bool* kept;
    const char* where;
  };
  const std::vector<Decay> decays{{&order.pairs, "A"},
                                  {&order.predicted, "w"},
                                  {&order.read, "what q reads of the chunk start"},
                                  {&order.attention, "q k^T"},
                                  {&order.writes, "what is written"},
                                  {&order.carried, "the state carried over"}};
  std::string lacking;
  while (missing > 0) {
    const Decay decay = draws.of(decays);
    if (!*decay.kept) continue;
    lacking += (lacking.empty() ? "" : ", ") + std::string(decay.where);
    *decay.kept = false;
    --missing;
  }
  const bool per_channel = draws.between(0, 1) == 0;
  Draw draw = drawn_call(
      delta::slice(),
      fmt::format("op={} mode=prefill lens={},{} H=1 HV={} K={} V={} gate={} h0=1 io=f32 seed={}",
                  per_channel ? "kda" : "gdn", draws.between(60, 110), draws.between(30, 150),
                  draws.between(1, 3), draws.of<int>({24, 32}), draws.of<int>({16, 20}),
                  per_channel ? "bounded" : "log", draws.between(1, 100000)));
  draw.planted = fmt::format("chunks of {}: no decay in {}", variant.chunk, lacking);
  draw.exact = delta::run_lanes(draw.call, delta::chunk_variant(variant));
  draw.made = calls::stored(draw.call, *draw.contract, draw.exact);
  return draw;
}

}  // namespace

Draw draw_chunk_order(Draws& draws) {
  const std::int64_t chunk = draws.of<int>({16, 32, 64, 128});
  return drawn_in_chunks(draws, chunk, draws.between(1, 2));
}

Draw draw_other_chunk(Draws& draws) {
  const bool of_three = draws.between(0, 1) == 0;
  const std::int64_t chunk =
      of_three ? draws.of<int>({16, 32, 64}) : draws.of<int>({8, 20, 24, 40, 48, 56, 96});
  return drawn_in_chunks(draws, chunk, of_three ? 3 : draws.between(1, 2));
}

}  // namespace goldenrule::suites
