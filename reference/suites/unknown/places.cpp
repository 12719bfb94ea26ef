// SPDX-License-Identifier: Apache-2.0
#include "reference/suites/unknown/places.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "reference/delta/slice.hpp"
#include "reference/suites/unknown/draw.hpp"

namespace goldenrule::suites {

void place_lines(call::Tensor& tensor, std::int64_t length, const call::Tensor& from,
                 const LineMap& map) {
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    const std::int64_t line = map(i / length);
    tensor.set(i, line < 0 ? 0.0 : from[line * length + i % length]);
  }
}

void exchange_axes(call::Tensor& tensor, std::int64_t rows, std::int64_t columns,
                   const std::function<bool(std::int64_t)>& chosen) {
  const std::int64_t size = rows * columns;
  const call::Tensor before = tensor;
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    const std::int64_t m = i % size;
    if (chosen(i / size)) tensor.set(i, before[i - m + m % rows * columns + m / rows]);
  }
}

std::int64_t DrawnMap::moved() const {
  std::int64_t n = 0;
  for (std::int64_t i = 0; i < extent; ++i) n += (*this)(i) >= 0 && (*this)(i) != i ? 1 : 0;
  return n;
}

std::string DrawnMap::words(const char* letter) const {
  if (step == 0) return std::to_string(offset);
  if (step == -1) return fmt::format("{} - {}", offset, letter);
  std::string text = step == 1 ? letter : fmt::format("{} {}", step, letter);
  if (offset != 0) text += fmt::format(" {} {}", offset < 0 ? '-' : '+', std::abs(offset));
  return text;
}

DrawnMap drawn_map(Draws& draws, std::int64_t extent) {
  while (true) {
    const DrawnMap map{draws.between(-3, 3), draws.between(-extent, 2 * extent - 1), extent};
    if (map.moved() >= 3 && !(map.step == 1 && map.offset == 0)) return map;
  }
}

Draw draw_places(Draws& draws) {
  const std::int64_t K = draws.of<int>({16, 24}), V = draws.of<int>({16, 24});
  const std::int64_t HV = draws.between(1, 4);
  const bool of_tokens = draws.between(0, 2) == 0;
  const std::int64_t extent = of_tokens ? draws.between(20, 50) : draws.between(6, 9);
  Draw draw =
      drawn_call(delta::slice(),
                 fmt::format("op={} mode=prefill lens={} H=1 HV={} K={} V={} gate=log h0=1 seed={}",
                             draws.of<std::string>({"gdn", "kda"}),
                             of_tokens ? std::to_string(extent) : fmt::format("{}x9", extent), HV,
                             K, V, draws.between(1, 100000)));
  const DrawnMap map = drawn_map(draws, extent);
  const bool of_input = !of_tokens && draws.between(0, 2) == 0;
  const bool exchanged = !of_tokens && !of_input && K == V && draws.between(0, 1) == 0;
  const std::string output = of_tokens ? "o" : "final_state";
  const std::string moved = of_tokens ? "token " + map.words("t") : "sequence " + map.words("n");
  const std::string held =
      of_input ? "holds initial_state"
               : fmt::format("holds what is right{}",
                             exchanged ? ", with the two axes of a state exchanged," : "");
  draw.planted = fmt::format("{} {} of {}", output, held, moved);
  draw.words = {output, fmt::format("{} of {};", held, moved)};  // the whole map, to its end
  plant(draw, [&](const calls::Kernel& right) {
    call::TensorMap outputs = right(draw.call);
    const call::Tensor from = of_input ? draw.call.inputs.at("initial_state") : outputs.at(output);
    place_lines(outputs.at(output), of_tokens ? HV * V : HV * K * V, from, map);
    if (exchanged) exchange_axes(outputs.at(output), K, V, [](std::int64_t) { return true; });
    return outputs;
  });
  return draw;
}

}  // namespace goldenrule::suites
