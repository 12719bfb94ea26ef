// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in tiles, tails and the distribution of work. A kernel's tile of channels is 128; where
// there are fewer the tail begins at the largest power of two below, as with smaller tiles.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/calls/outputs.hpp"
#include "reference/delta/mistakes/tables.hpp"
#include "reference/delta/mistakes/tail.hpp"

namespace goldenrule::delta {
namespace {

using call::Record;
using call::TensorMap;

bool has_value_tail(const Record& r) { return has_tail(r, TailAxis::kValues, kLargestTile); }

// The last vector of a head is stored in full: what lies behind its V channels are the first ones
// of the next head, or of the next token, and hold whatever the vector held there.
TensorMap v_tail_overrun(const Record& r, const calls::Kernel& kernel) {
  const call::Dims d = call::validate(r);
  const std::int64_t width = tail_begin(d.V, kLargestTile);
  const std::int64_t overrun = (width - d.V % width) % width;
  TensorMap outputs = kernel(r);
  TensorMap o{{"o", std::move(outputs.at("o"))}};
  calls::drop_outputs(r, o, [&](const calls::OutputPlace& p) {
    return p.value < overrun && p.block * d.HV + p.head > 0;
  });
  outputs["o"] = std::move(o.at("o"));
  return outputs;
}

// The gates of a head are loaded as a power of two of channels. What lies behind them are those of
// the next head, which meet rows of zeros in the state; behind the last ones lies anything. If the
// exponential of that is no number, or infinite, it is 0 * inf in every sum over the channels.
bool reads_past_gates(const Record& r) {
  const call::Dims d = call::validate(r);
  return r.op == call::Op::kKda && r.convention.gate != call::Gate::kNone &&
         r.convention.gate_head == call::GateHead::kV && !call::has_tree(r) && !call::has_ring(r) &&
         d.tokens > 0 && !std::has_single_bit(static_cast<std::uint64_t>(d.K));
}
TensorMap gate_tail_read(const Record& r, const calls::Kernel& kernel) {
  const call::Plan plan = call::make_plan(r, false);
  const std::int64_t last = plan.dims.tokens - 1;
  TensorMap outputs = kernel(r);
  calls::change_outputs(
      r, outputs, [&](const call::Tensor&, const calls::OutputPlace& p, double x) {
        const call::Sequence& s = plan.sequences[static_cast<std::size_t>(p.sequence)];
        const std::int64_t token = p.is_state ? s.first_token + p.after - 1 : p.block;
        const bool reached =
            token == last && p.head == plan.dims.HV - 1 && (!p.is_state || p.after > 0);
        return reached ? std::numeric_limits<double>::quiet_NaN() : x;
      });
  return outputs;
}

// (row, head) tiles that a grid of equal shares leaves over: 132 blocks (the multiprocessors of an
// H200), or with fewer tiles the largest power of two of them.
std::int64_t shared_tiles(const call::Dims& d) {
  constexpr std::int64_t kBlocks = 132;
  const std::int64_t tiles = d.rows * d.HV;
  if (tiles == 0) return 0;
  const std::int64_t blocks =
      tiles > kBlocks
          ? kBlocks
          : static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(tiles)));
  return tiles / blocks * blocks;
}
bool has_remainder(const Record& r) {
  const call::Dims d = call::validate(r);
  return shared_tiles(d) < d.rows * d.HV;
}
TensorMap remainder_tiles_dropped(const Record& r, const calls::Kernel& kernel) {
  const call::Dims d = call::validate(r);
  const std::int64_t end = shared_tiles(d);
  TensorMap outputs = kernel(r);
  calls::drop_outputs(
      r, outputs, [&](const calls::OutputPlace& p) { return p.sequence * d.HV + p.head >= end; });
  return outputs;
}

// The offset of a row, or of a packed sequence, is forgotten: all read the tokens of the first.
TensorMap batch_first_only(const Record& r, const calls::Kernel& kernel) {
  const call::Plan plan = call::make_plan(r, false);
  std::vector<std::int64_t> source(static_cast<std::size_t>(plan.dims.tokens));
  for (const call::Sequence& s : plan.sequences) {
    for (std::int64_t t = 0; t < s.token_count; ++t) {
      source[static_cast<std::size_t>(s.first_token + t)] = t;
    }
  }
  return kernel(calls::with_tokens(r, source));
}

constexpr std::int64_t kFragmentRows = 16;
TensorMap row_modulo(const Record& r, const calls::Kernel& kernel) {
  constexpr double kOff = 1.03;
  TensorMap outputs = kernel(r);
  calls::change_outputs(r, outputs,
                        [&](const call::Tensor&, const calls::OutputPlace& p, double x) {
                          return p.value % kFragmentRows == kFragmentRows - 1 ? kOff * x : x;
                        });
  return outputs;
}

// o as rows of V: element 0 of every 32 is the one of the row before.
TensorMap lane_zero_stale(const Record& r, const calls::Kernel& kernel) {
  constexpr std::int64_t kLanes = 32;
  const std::int64_t V = call::validate(r).V;
  TensorMap outputs = kernel(r);
  calls::change_outputs(r, outputs,
                        [&](const call::Tensor& before, const calls::OutputPlace& p, double x) {
                          const bool stale = !p.is_state && p.value % kLanes == 0 && p.index >= V;
                          return stale ? before[p.index - V] : x;
                        });
  return outputs;
}

constexpr std::string_view kTileGroup = "Tiles and tails";
constexpr std::array kTileMistakes{
    calls::Mistake{
        "v_tail_unwritten", kTileGroup,
        "value channels beyond the last full tile (128, or the power of two below V) are not "
        "written",
        has_value_tail, commit_tail<kVTailUnwritten>},
    calls::Mistake{
        "v_tail_garbage", kTileGroup,
        "value channels beyond the last full tile hold the results of the first channels",
        has_value_tail, commit_tail<kVTailGarbage>},
    calls::Mistake{"v_tail_overrun", kTileGroup,
                   "the last tile of a head (128 wide, or the power of two below V) is stored in "
                   "full, over the "
                   "first channels of the next head of o",
                   [](const Record& r) {
                     const call::Dims d = call::validate(r);
                     return has_value_tail(r) && d.tokens * d.HV > 1;
                   },
                   v_tail_overrun},
    calls::Mistake{
        "k_tail_ignored", kTileGroup,
        "key channels beyond the last full tile (128, or the power of two below K) are not "
        "summed",
        tail_applies<kKTailIgnored>, commit_tail<kKTailIgnored>},
    calls::Mistake{"gate_tail_read", kTileGroup,
                   "the gates of a head are read up to a power of two of channels: behind the last "
                   "ones lies what is no number",
                   reads_past_gates, gate_tail_read},
    calls::Mistake{
        "remainder_tiles_dropped", kTileGroup,
        "blocks take equal shares of the (row, head) tiles and nobody takes the remainder",
        has_remainder, remainder_tiles_dropped},
    calls::Mistake{
        "head_tail_unwritten", kTileGroup,
        "value heads beyond the last full group (the power of two below HV) are not written",
        tail_applies<kHeadTailUnwritten>, commit_tail<kHeadTailUnwritten>},
    calls::Mistake{"batch_first_only", kTileGroup,
                   "every row or sequence reads the tokens of the first one",
                   [](const Record& r) {
                     const call::Dims d = call::validate(r);
                     return d.rows > 1 && d.tokens > 1;
                   },
                   batch_first_only},
    calls::Mistake{"row_modulo", kTileGroup, "every 16th value channel is off by 3 %",
                   [](const Record& r) { return call::validate(r).V >= kFragmentRows; },
                   row_modulo},
    calls::Mistake{"lane_zero_stale", kTileGroup,
                   "the first of every 32 value channels of o is the one of the row before",
                   [](const Record& r) {
                     const call::Dims d = call::validate(r);
                     return d.tokens * d.HV > 1;
                   },
                   lane_zero_stale},
};

}  // namespace

std::span<const calls::Mistake> tile_mistakes() { return kTileMistakes; }

}  // namespace goldenrule::delta
