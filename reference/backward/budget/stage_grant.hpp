// SPDX-License-Identifier: Apache-2.0
//
// What a contract grants the stages of a backward pass: what the runs that grant the gradients
// (grant.hpp) leave in them, each before its own rounding. sigma of an element is half its own mean
// square and half what its neighbours say, the rows of its chunk (of a state its key channels) by
// their channels. u, v_new, o and du have the sizes that sums of their terms have with random signs
// (verdict::Exact::reach): their elements, and the tokens of raw with one gate per head, have one
// another for neighbours in units of these. The first h and the last dh are what the call gives.
//
// A stage that is rounded as an operand may be stored before or after that:
// delta/budget/stage_grant.hpp.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "reference/contract/contract.hpp"
#include "reference/verdict/stages.hpp"

namespace goldenrule::backward {

/// `contract` must be of the backward pass, with chunks of the size in which `stages` were
/// evaluated.
void grant_stages(const call::Record& record, const contract::Contract& contract,
                  const std::map<std::string, call::DType>& stored,
                  verdict::ExpectedStages& stages);

/// StageSlice::by_heads: those of a query/key head at a time, as many at once as there are threads.
void grant_by_heads(const call::Record& record, const contract::Contract& contract,
                    const std::map<std::string, call::DType>& stored, scalar::Precision precision,
                    verdict::Expectations* outputs,
                    const std::function<void(verdict::StageHeads&& heads)>& take);

}  // namespace goldenrule::backward
