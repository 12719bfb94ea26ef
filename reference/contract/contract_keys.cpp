// SPDX-License-Identifier: Apache-2.0
#include "reference/contract/contract_keys.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

namespace goldenrule::contract {
namespace {

std::vector<KeyPath> walked(std::size_t kind) {
  std::vector<KeyPath> paths;
  Contract contract{.name = "", .meaning = "", .model = model_at(kind)};
  for_each_key(contract, [&](std::string_view path, const auto&) { paths.push_back(split(path)); });
  return paths;
}

}  // namespace

KeyPath split(std::string_view path) {
  const std::size_t dot = path.find('.');
  if (dot == std::string_view::npos) return {std::string(path), ""};
  return {std::string(path.substr(0, dot)), std::string(path.substr(dot + 1))};
}

Model model_at(std::size_t kind) {
  Model model;
  const auto choose = [&]<std::size_t... I>(std::index_sequence<I...>) {
    ((I == kind ? static_cast<void>(model.emplace<I>()) : void()), ...);
  };
  choose(std::make_index_sequence<std::variant_size_v<Model>>{});
  return model;
}

const std::vector<KeyPath>& paths_of(std::size_t kind) {
  static const auto kPaths = [] {
    std::array<std::vector<KeyPath>, kModelNames.size()> paths;
    for (std::size_t i = 0; i < paths.size(); ++i) paths[i] = walked(i);
    return paths;
  }();
  return kPaths.at(kind);
}

bool is_known(const KeyPath& path) {
  for (std::size_t kind = 0; kind < kModelNames.size(); ++kind) {
    if (std::ranges::find(paths_of(kind), path) != paths_of(kind).end()) return true;
  }
  return false;
}

const std::vector<ModelKey>& model_keys() {
  static const auto kKeys = [] {
    std::vector<ModelKey> keys;
    for (std::size_t kind = 0; kind < kModelNames.size(); ++kind) {
      for (const auto& [key, name] : paths_of(kind)) {
        const ModelKey row{key, !name.empty()};
        if (std::ranges::find(keys, row) == keys.end()) keys.push_back(row);
      }
    }
    return keys;
  }();
  return kKeys;
}

std::optional<Misfit> misfit_of_unit(double unit_roundoff, std::string_view family) {
  if (unit_roundoff == kFp32) return std::nullopt;
  const auto number = [](double x) { return nlohmann::json(x).dump(); };
  return Misfit{"unit_roundoff",
                number(kFp32) + ": kernels of " + std::string(family) + " add in fp32",
                number(unit_roundoff)};
}

}  // namespace goldenrule::contract
