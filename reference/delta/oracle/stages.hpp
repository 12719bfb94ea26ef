// SPDX-License-Identifier: Apache-2.0
//
// The stages of the chunk form for a whole call, so that the author of a chunked kernel can find
// the first one that differs. The table says what each is, in the letters of rule/forms.hpp; a row
// t of a token belongs to its position in its chunk.
//
// Chunks begin with each sequence, and count up through the sequences, ceil(T / C) each. `tokens`
// is the flattened token axis. Stages are computed by chunk_form in one tier, with the radius that
// chunk_certificate.hpp proves and half an ulp of double, to which they are rounded.
//
// What is not defined, and so not judged: rows and chunks of padded requests; of A what is not
// below the diagonal, of T what is above it, since kernels mask these where they read them; columns
// behind the last token of a chunk; G from a linear gate below 2^-126 to the end of its chunk,
// which has no logarithm (oracle/ring.hpp). Where an input is not finite, the stages that it
// reaches from the chunk of its token on (judged_tokens.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fixtures/call/plan.hpp"
#include "reference/verdict/stages.hpp"

namespace goldenrule::delta {

/// In the order of the computation.
[[nodiscard]] std::span<const verdict::StageRow> stage_table();

/// Throws Error as call::make_plan does, Error(kArgument) for C < 1 and for calls with trees or
/// rings, whose tokens have no chunks.
[[nodiscard]] verdict::ExpectedStages evaluate_stages(const call::Record& record, std::int64_t C,
                                                      const std::vector<std::string>& names,
                                                      scalar::Precision precision);

/// The stage in another form of its row.
[[nodiscard]] verdict::ExpectedStage stage_in_form(const call::Record& record,
                                                   const std::string& name, std::string_view form,
                                                   const verdict::ExpectedStage& stage);

/// verdict::exact_stages of these stages.
[[nodiscard]] call::TensorMap chunk_stages(const call::Record& record, std::int64_t C);

/// A stage by another factor; with the two axes of its states exchanged.
[[nodiscard]] verdict::ExpectedStage scaled_stage(verdict::ExpectedStage stage, double factor);
[[nodiscard]] verdict::ExpectedStage transposed_stage(verdict::ExpectedStage stage);

/// Whether `form` is the first of `row`. Throws Error(kValue) for one that the row does not have.
[[nodiscard]] bool is_first_form(const verdict::StageRow& row, std::string_view form);

/// ceil(tokens / C).
[[nodiscard]] std::int64_t chunks_of(const call::Sequence& sequence, std::int64_t C);

}  // namespace goldenrule::delta
