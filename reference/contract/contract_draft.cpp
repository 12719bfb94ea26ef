// SPDX-License-Identifier: Apache-2.0
#include "reference/contract/contract_draft.hpp"

#include <algorithm>

#include "fixtures/call/error.hpp"

namespace goldenrule::contract {
namespace {

Model model_of(const Draft& draft) {
  if (draft.is("ideal")) return Ideal{};
  if (draft.is("recurrent")) {
    Recurrent recurrent{.unit_roundoff = draft.unit_roundoff};
    std::copy_n(draft.rounding.begin(), kActivations, recurrent.rounding.begin());
    return recurrent;
  }
  return Chunked{.unit_roundoff = draft.unit_roundoff,
                 .chunk = draft.chunk,
                 .segment = draft.segment,
                 .form = draft.form,
                 .rounding = draft.rounding};
}

}  // namespace

Draft draft_of(const Contract& c) {
  Draft draft{.name = c.name,
              .meaning = c.meaning,
              .kind = c.model.index(),
              .state = c.state_dtype,
              .unit_roundoff = c.unit_roundoff(),
              .functions = c.functions};
  std::ranges::copy(c.roundings(), draft.rounding.begin());
  if (const Chunked* chunked = c.chunked()) {
    draft.chunk = chunked->chunk;
    draft.segment = chunked->segment;
    draft.form = chunked->form;
  }
  return draft;
}

Draft draft_of_built_in(std::string_view name) {
  const Contract& contract = find_contract(name);
  if (contract.softmax() == nullptr) return draft_of(contract);
  throw Error(ErrorKind::kValue, "base",
              "a contract of the delta rule: those of attention are built in",
              "'" + contract.name + "'");
}

Contract contract_of(const Draft& draft) {
  return {.name = draft.name,
          .meaning = draft.meaning,
          .state_dtype = draft.state,
          .functions = draft.functions,
          .model = model_of(draft)};
}

}  // namespace goldenrule::contract
