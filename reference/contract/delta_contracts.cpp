// SPDX-License-Identifier: Apache-2.0
//
// The contracts of the delta rule with the rounding points of each.
#include <array>
#include <string>

#include "reference/contract/contract.hpp"

namespace goldenrule::contract {
namespace {

using ChunkRoundings = std::array<Rounding, kPoints>;

struct Rounded {
  constexpr Rounded(Activation activation, Format to)
      : point(static_cast<std::size_t>(activation)), format(to) {}
  constexpr Rounded(Point of_chunks, Format to)
      : point(static_cast<std::size_t>(of_chunks)), format(to) {}

  std::size_t point;
  Format format;
};

template <std::size_t N>
constexpr ChunkRoundings table(const Rounded (&points)[N], const ChunkRoundings& beside = {}) {
  ChunkRoundings rounding = beside;
  for (const Rounded& r : points) rounding[r.point] = r.format;
  return rounding;
}

// Everything that enters a matrix product in format `f`; gates are cumulated and states carried in
// fp32. flash-linear-attention's chunk_gated_delta_rule and chunk_kda with f = bf16.
constexpr ChunkRoundings operands(Format f) {
  return table({{Activation::kQuery, f},
                {Activation::kKey, f},
                {Point::kBetaV, f},
                {Point::kBetaK, f},
                {Point::kInverse, f},
                {Point::kU, f},
                {Point::kW, f},
                {Point::kStateOperand, f},
                {Point::kQueryIn, f},
                {Point::kAttention, f},
                {Point::kVNew, f},
                {Point::kUpdate, f},
                {Point::kGateSum, Format::kF32}});
}

// FlashKDA: the same with chunks of 16, decays folded into bf16 operands of the intra-chunk
// products and a state that is rounded to bf16 after every chunk.
constexpr ChunkRoundings kChunk16 =
    table({{Point::kIntra, Format::kBF16}, {Point::kCarriedState, Format::kBF16}},
          operands(Format::kBF16));

// FlashInfer's and FlashQLA's form for one gate per head: the raw bf16 q and k are multiplied and
// scaled by their norms in fp32, so that q^ and k^ are never rounded.
constexpr ChunkRoundings kDirect = table({{Point::kStateOperand, Format::kBF16},
                                          {Point::kResidual, Format::kBF16},
                                          {Point::kInverse, Format::kBF16},
                                          {Point::kAttention, Format::kBF16},
                                          {Point::kVNew, Format::kBF16},
                                          {Point::kUpdate, Format::kBF16},
                                          {Point::kGateSum, Format::kF32}});

// The same for one gate per key channel, whose decays are folded into the operands.
constexpr ChunkRoundings kDirectPerChannel = table({{Point::kIntra, Format::kBF16},
                                                    {Point::kKeyIn, Format::kBF16},
                                                    {Point::kQueryIn, Format::kBF16}},
                                                   kDirect);

// Kernels that replay pending tokens from a ring, on tensor cores: the pending tokens and those of
// the call are one chunk whose operands are bf16, among them the pending corrections with their
// decays and the products of keys; the state enters as two bf16 terms, or in the 16 bits that it
// has. SGLang's and vLLM's ReplaySSM, FlashInfer's gated_delta_rule_mtp_ucache_flush.
constexpr ChunkRoundings kReplay = table({{Activation::kQuery, Format::kBF16},
                                          {Activation::kKey, Format::kBF16},
                                          {Point::kStateOperand, Format::kTwoBF16}},
                                         kDirectPerChannel);

constexpr std::array<Rounding, kActivations> kBF16Activations{Format::kBF16, Format::kBF16,
                                                              Format::kBF16, Format::kBF16};

constexpr ChunkRoundings kFp32Chunk = table({{Point::kGateSum, Format::kF32}});

Contract recurrent(const char* name, const char* meaning, call::DType state,
                   const std::array<Rounding, kActivations>& rounding) {
  return {.name = name,
          .meaning = meaning,
          .state_dtype = state,
          .functions = kFastFp32,
          .model = Recurrent{.unit_roundoff = kFp32, .rounding = rounding}};
}

Contract chunked(const char* name, const char* meaning, std::int64_t chunk, Form form,
                 call::DType state, const ChunkRoundings& rounding) {
  return {
      .name = name,
      .meaning = meaning,
      .state_dtype = state,
      .functions = kFastFp32,
      .model = Chunked{.unit_roundoff = kFp32, .chunk = chunk, .form = form, .rounding = rounding}};
}

// A kernel of that contract which walks long sequences in segments, whose maps and states it
// multiplies as two bf16 terms each.
Contract in_segments(Contract c) {
  auto& chunked = std::get<Chunked>(c.model);
  chunked.segment = 512;
  chunked.at(Point::kSegmentMap) = Format::kTwoBF16;
  c.meaning = "as " + c.name + "; long sequences in segments of 512 tokens or more";
  c.name += "_segments";
  return c;
}

}  // namespace

std::vector<Contract> delta_contracts() {
  using call::DType;
  const Contract direct64 =
      chunked("chunk64_bf16_direct",
              "chunks of 64 tokens, one gate per head, raw bf16 q and k, bf16 operands formed from "
              "the residual v - E k S, fp32 state between chunks",
              64, Form::kDirect, DType::kF32, kDirect);
  const Contract direct32 =
      chunked("chunk32_bf16_direct",
              "the same with chunks of 32 tokens and decays folded into bf16 operands", 32,
              Form::kDirect, DType::kF32, kDirectPerChannel);
  const Contract direct64_bf16 =
      chunked("chunk64_bf16_direct_bf16_state",
              "as chunk64_bf16_direct; states are rounded to bf16 once where they are stored", 64,
              Form::kDirect, DType::kBF16, kDirect);
  const Contract direct32_bf16 =
      chunked("chunk32_bf16_direct_bf16_state",
              "as chunk32_bf16_direct; states are rounded to bf16 once where they are stored", 32,
              Form::kDirect, DType::kBF16, kDirectPerChannel);
  return {
      recurrent("recurrent_f32", "token by token in fp32 with approximate functions, fp32 state",
                DType::kF32, {}),
      chunked("chunk64_f32", "chunks of 64 tokens, everything in fp32, gates cumulated in fp32", 64,
              Form::kWY, DType::kF32, kFp32Chunk),
      recurrent("recurrent_f32_bf16_activations",
                "as recurrent_f32; beta, log alpha and the normalised q and k are rounded to bf16",
                DType::kF32, kBF16Activations),
      chunked("chunk64_tf32", "chunks of 64 tokens with tf32 operands, fp32 state between chunks",
              64, Form::kWY, DType::kF32, operands(Format::kTF32)),
      recurrent("recurrent_bf16_state",
                "as recurrent_f32; states are rounded to bf16 once where they are stored",
                DType::kBF16, {}),
      direct64,
      direct32,
      direct64_bf16,
      direct32_bf16,
      in_segments(direct64),
      in_segments(direct32),
      in_segments(direct64_bf16),
      in_segments(direct32_bf16),
      {.name = "replay_bf16",
       .meaning =
           "pending tokens of a ring and those of the call as one chunk of up to 32 with bf16 "
           "operands, the state as two bf16 terms; states keep the type of the pool",
       .functions = kFastFp32,
       .model =
           Chunked{
               .unit_roundoff = kFp32, .chunk = 32, .form = Form::kDirect, .rounding = kReplay}},
      chunked("chunk64_bf16", "chunks of 64 tokens with bf16 operands, fp32 state between chunks",
              64, Form::kWY, DType::kF32, operands(Format::kBF16)),
      chunked("chunk64_16bit",
              "chunks of 64 tokens with fp16 or bf16 operands, fp32 state between chunks", 64,
              Form::kWY, DType::kF32, operands(Format::kAny16)),
      chunked("chunk16_bf16_state",
              "chunks of 16 tokens with bf16 operands, bf16 state between chunks", 16, Form::kWY,
              DType::kBF16, kChunk16),
  };
}

bool Chunked::has_coarse_operands() const {
  for (std::size_t i = 0; i < kPoints; ++i) {
    if (i == static_cast<std::size_t>(Activation::kBeta) ||
        i == static_cast<std::size_t>(Activation::kGate) ||
        i == static_cast<std::size_t>(Point::kCarriedState) ||
        i == static_cast<std::size_t>(Point::kGateSum) ||
        i == static_cast<std::size_t>(Point::kSegmentMap)) {
      continue;
    }
    if (unit_of(rounding[i]) > kFp32) return true;
  }
  return false;
}

bool is_no_wider(const Chunked& a, const Chunked& b) {
  return a.chunk == b.chunk && a.form == b.form && (a.segment == 0 || a.segment == b.segment);
}

std::string_view point_name(std::size_t point) {
  constexpr std::array<std::string_view, kPoints> kNames{
      "query",     "key",   "beta",   "gate",          "beta_v",   "beta_k",     "intra",
      "inverse",   "u",     "w",      "state_operand", "key_in",   "residual",   "query_in",
      "attention", "v_new", "update", "carried_state", "gate_sum", "segment_map"};
  return kNames.at(point);
}

std::optional<Misfit> misfit(const Chunked& c) {
  if (c.segment % c.chunk == 0) return std::nullopt;
  return Misfit{"segment", "a multiple of the chunk, " + std::to_string(c.chunk),
                std::to_string(c.segment)};
}

}  // namespace goldenrule::contract
