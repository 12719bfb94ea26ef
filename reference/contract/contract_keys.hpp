// SPDX-License-Identifier: Apache-2.0
//
// The keys of contracts in JSON: each model lists its own (for_each_key of delta_models.hpp and its
// like), and reading, printing and refusing walk these lists. Internal to contract_json.cpp and
// contract_print.cpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "reference/contract/contract.hpp"
#include "reference/contract/json_words.hpp"

namespace goldenrule::contract {

/// Written as one of JsonWords.
template <class T>
concept Word = requires {
  JsonWords<T>::kNames;
};

/// A key, and the name below it where it holds names: {"round", "query"}, {"chunk", ""}.
using KeyPath = std::pair<std::string, std::string>;
/// "round.query" and "chunk" in two parts.
[[nodiscard]] KeyPath split(std::string_view path);

/// A model of the kind at that place of kModelNames.
[[nodiscard]] Model model_at(std::size_t kind);
/// The paths of such a model, in the order of the walk.
[[nodiscard]] const std::vector<KeyPath>& paths_of(std::size_t kind);

/// Whether a contract of any kind has it.
[[nodiscard]] bool is_known(const KeyPath& path);

struct ModelKey {
  std::string name;
  bool holds_names = false;  ///< an object, as "round" is

  bool operator==(const ModelKey&) const = default;
};
/// The keys of all models, each once.
[[nodiscard]] const std::vector<ModelKey>& model_keys();

/// Visits the keys of the model of `contract` as f(path, field). `C` may be const.
template <class C, class F>
void for_each_key(C& contract, F&& f) {
  std::visit([&](auto& model) { for_each_key(contract, model, f); }, contract.model);
}

}  // namespace goldenrule::contract
