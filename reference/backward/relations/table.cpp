// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/relations/relation.hpp"

#include <utility>

#include "fixtures/call/operation.hpp"
#include "reference/backward/slice.hpp"
#include "reference/delta/relations/trial.hpp"

namespace goldenrule::backward {
namespace {

using relations::Relation;

relations::Trial trial_of(const call::Record& record, const calls::Kernel& kernel,
                          const contract::Contract& contract, relations::Options options) {
  return {{.slice = &slice(), .outputs = {}}, record, kernel, contract, std::move(options)};
}

}  // namespace

bool has_relations(call::Op op) { return call::family_of(op) == call::Family::kBackward; }

std::span<const Relation> relation_table() {
  static const std::vector<Relation> all = [] {
    std::vector<Relation> joined;
    for (const auto part : {linear_relations(), symmetry_relations(), parameter_relations(),
                            piece_relations(), split_relations()}) {
      joined.insert(joined.end(), part.begin(), part.end());
    }
    return joined;
  }();
  return all;
}

relations::Outcome check_relation(const Relation& relation, const call::Record& record,
                                  const calls::Kernel& kernel, const contract::Contract& contract,
                                  relations::Options options) {
  relations::Trial trial = trial_of(record, kernel, contract, std::move(options));
  return relations::tried(relation, trial);
}

std::vector<relations::Outcome> check_relations(const call::Record& record,
                                                const calls::Kernel& kernel,
                                                const contract::Contract& contract,
                                                relations::Options options) {
  relations::Trial trial = trial_of(record, kernel, contract, std::move(options));
  std::vector<relations::Outcome> outcomes;
  for (const Relation& relation : relation_table()) {
    if (relation.applies(record, contract)) outcomes.push_back(relations::tried(relation, trial));
  }
  return outcomes;
}

}  // namespace goldenrule::backward
