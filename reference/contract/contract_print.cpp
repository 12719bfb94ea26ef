// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "reference/contract/contract_json.hpp"
#include "reference/contract/contract_keys.hpp"
#include "reference/contract/json_words.hpp"

namespace goldenrule::contract {

std::string to_json(const Contract& c) {
  using Json = nlohmann::ordered_json;
  Json root{{"name", c.name}, {"meaning", c.meaning}, {"kind", c.model_name()}, {"state", nullptr}};
  for_each_key(c, [&]<class T>(std::string_view path, const T& field) {
    Json value = nullptr;
    if constexpr (Word<T>) {
      const std::size_t place = JsonWords<T>::place(field);
      if (place < JsonWords<T>::kNames.size()) value = JsonWords<T>::kNames[place];
    } else {
      value = field;
    }
    const auto [key, name] = split(path);
    if (!name.empty()) {
      Json& names = root[key];
      if (names.is_null()) names = Json::object();
      if (!value.is_null()) names[name] = value;
    } else if (value != 0) {
      root[key] = value;
    }
  });
  return root.dump(1) + "\n";
}

}  // namespace goldenrule::contract
