// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/emulation/honest_chunks.hpp"

#include <variant>

#include "reference/delta/emulation/chunk_f32_emulator.hpp"
#include "reference/delta/emulation/kernel_lane.hpp"
#include "reference/delta/emulation/segments.hpp"

namespace goldenrule::delta {
namespace {

// The chunk emulator rounds q^ and k^ itself, with the other operands of its products.
contract::Contract with_unrounded_rows(contract::Contract contract) {
  if (auto* chunked = std::get_if<contract::Chunked>(&contract.model)) {
    chunked->at(contract::Activation::kQuery).reset();
    chunked->at(contract::Activation::kKey).reset();
  }
  return contract;
}

Matrix<double> in_double(const Matrix<float>& x) { return x.cast<double>(); }

KeptForm<double> in_double(const KeptForm<float>& form) {
  KeptForm<double> result{.o = in_double(form.o), .states = {}, .d = in_double(form.d)};
  for (const Matrix<float>& state : form.states) result.states.push_back(in_double(state));
  const ChunkStages<float>& s = form.stages;
  result.stages = {.G = in_double(s.G),
                   .A = in_double(s.A),
                   .T = in_double(s.T),
                   .w = in_double(s.w),
                   .u = in_double(s.u),
                   .v_new = in_double(s.v_new),
                   .h = {}};
  for (const Matrix<float>& h : s.h) result.stages.h.push_back(in_double(h));
  return result;
}

}  // namespace

KeptForm<double> honest_chunks(const Lane<double>& lane, const Matrix<double>& v,
                               const Matrix<double>& start, std::span<const std::int64_t> positions,
                               const contract::Contract& contract, std::uint64_t seed,
                               std::uint64_t stream, Keep keep) {
  const contract::Chunked& chunked = *contract.chunked();
  const KernelChoices choices(seed);
  const std::int64_t segment = choices.cuts && chunked.segment > 0 ? chunked.segment : lane.tokens;
  Rounder rounder(chunked, RoundingMode::kNearest, seed, stream);
  const auto round = [&](Matrix<double>& x) { rounder.apply(contract::Point::kSegmentMap, x); };
  const auto run = [&]<class S>(const Lane<double>& of, auto&& walk) {
    return run_in_pieces<S>(
        of, v, start, positions, chunked.chunk, choices.ends,
        [&](const auto&... piece) { return run_in_segments<S>(piece..., segment, walk, round); });
  };
  if (!chunked.has_coarse_operands()) {
    return in_double(run.template operator()<float>(lane, [&](const auto&... piece) {
      return emulate_chunks_f32(piece..., contract, chunked.chunk, seed, stream, keep);
    }));
  }
  const KernelLane numbers = kernel_lane(lane, with_unrounded_rows(contract), choices);
  return run.template operator()<double>(with_numbers_of(lane, numbers), [&](const auto&... piece) {
    return emulate_chunks(piece..., chunked, rounder, keep);
  });
}

}  // namespace goldenrule::delta
