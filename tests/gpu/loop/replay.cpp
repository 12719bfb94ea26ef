// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/loop/replay.hpp"

#include "fixtures/call/integer_inputs.hpp"
#include "tests/gpu/loop/calls.hpp"
#include "tests/gpu/loop/engine.hpp"

namespace goldenrule::test::loop {
namespace {

/// A token and its request.
struct Place {
  std::int64_t request;
  Hidden hidden;
};

std::vector<Hidden> hidden_of(const std::vector<Place>& places) {
  std::vector<Hidden> hidden;
  hidden.reserve(places.size());
  for (const Place& place : places) hidden.push_back(place.hidden);
  return hidden;
}

Numbers of_token(const Output& output, std::size_t token, std::size_t tokens) {
  const std::size_t count = output.values.size() / tokens;
  return {.values = std::span(output.values).subspan(token * count, count), .bounds = {}};
}

}  // namespace

std::string wrong_token(const std::map<std::int64_t, std::vector<std::int64_t>>& requests,
                        const Draws& draws) {
  std::vector<Place> places;
  call::Integers bounds{0};
  for (const auto& [request, tokens] : requests) {
    std::int64_t position = 0;
    for (const std::int64_t token : tokens) {
      places.push_back({request, {.token = token, .position = position++, .has_signs = false}});
    }
    bounds.push_back(std::ssize(places));
  }
  call::Record delta = delta_record(call::Mode::kPrefill, hidden_of(places), 0);
  delta.inputs["cu_seqlens"] = call::integer_tensor(bounds);
  const Output u = compute_exactly(delta, "o");
  for (std::size_t i = 0; i < places.size(); ++i) {
    auto& [request, hidden] = places[i];
    const Question question{Kind::kSigns, request, hidden.position};
    hidden.signs =
        static_cast<std::uint32_t>(draws.follow(question, of_token(u, i, places.size())));
    hidden.has_signs = true;
  }
  const std::vector<Hidden> all = hidden_of(places);
  call::Record attention = attention_record(call::Mode::kPrefill, "target", all, bounds);
  attention.convention.mask = call::Mask::kCausal;
  attention.inputs["cu_seqlens_k"] = attention.inputs.at("cu_seqlens_q");
  for (const char* name : {"k", "v"}) {
    attention.inputs[name] = projected(std::string("target ") + name, call::DType::kBF16,
                                       {std::ssize(all), kHeads, kDim}, all);
  }
  const Output o = compute_exactly(attention, "o");
  for (std::size_t i = 0; i + 1 < places.size(); ++i) {
    const auto& [request, next] = places[i + 1];
    if (places[i].request != request) continue;
    const std::int64_t chosen =
        draws.follow({Kind::kTarget, request, next.position}, of_token(o, i, places.size()));
    if (chosen != next.token) {
      return "request " + std::to_string(request) + ", position " + std::to_string(next.position) +
             ": the target chooses " + std::to_string(chosen) + ", the loop emitted " +
             std::to_string(next.token);
    }
  }
  return "";
}

}  // namespace goldenrule::test::loop
