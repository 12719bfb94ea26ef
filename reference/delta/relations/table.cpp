// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "reference/delta/relations/tables.hpp"
#include "reference/delta/relations/trial.hpp"

namespace goldenrule::relations {

Outcome tried(const Relation& relation, Trial& trial) {
  trial.begin(relation);
  relation.state(trial);
  return trial.judge();
}

std::span<const Relation> table() {
  static const std::vector<Relation> relations = [] {
    std::vector<Relation> all;
    for (const auto group : {piece_relations(), placement_relations(), count_relations(),
                             repeat_relations(), poison_relations(), linear_relations()}) {
      all.insert(all.end(), group.begin(), group.end());
    }
    return all;
  }();
  return relations;
}

Outcome check(const Relation& relation, const call::Record& record, const Kernel& kernel,
              const contract::Contract& contract, Options options) {
  Trial trial(record, kernel, contract, options);
  return tried(relation, trial);
}

std::vector<Outcome> check_all(const call::Record& record, const Kernel& kernel,
                               const contract::Contract& contract, Options options) {
  Trial trial(record, kernel, contract, options);
  std::vector<Outcome> outcomes;
  for (const Relation& relation : table()) {
    const call::Mode mode = relation.mode.value_or(record.mode);
    if (std::ranges::find(options.modes, mode) == options.modes.end()) continue;
    if (relation.applies(record, contract)) outcomes.push_back(tried(relation, trial));
  }
  return outcomes;
}

}  // namespace goldenrule::relations
