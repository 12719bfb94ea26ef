// SPDX-License-Identifier: Apache-2.0
//
// A file says some keys, its base says others, and the order of keys has no meaning: the two are
// laid over each other as JSON, and then the model that "kind" names takes the keys that it has.
// What nobody takes is refused.
#include "reference/contract/contract_json.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fixtures/call/error.hpp"
#include "reference/contract/contract.hpp"
#include "reference/contract/contract_keys.hpp"
#include "reference/contract/json_words.hpp"

namespace goldenrule::contract {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLongestName = 64;
constexpr std::int64_t kMostTokens = 4096;
constexpr std::int64_t kMostSegmentTokens = 1 << 20;

// Of every contract, before the keys of its model.
constexpr std::array<std::string_view, 5> kOwnKeys{"name", "base", "inherits", "meaning", "kind"};

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  }
  return text;
}

std::string shown(const Json& value) { return value.dump(-1, ' ', true); }

class ContractReader {
 public:
  ContractReader(const Json& root, std::string file) : root_(root), file_(std::move(file)) {}

  Contract read() {
    refuse_unknown_keys();
    Json given = inherited();
    lay_over(given);
    Contract c{.name = name(), .meaning = "", .model = {}};
    if (const Json* value = find("meaning")) c.meaning = text("meaning", *value);
    if (!given.contains("kind")) {
      fail(ErrorKind::kSchema, "kind",
           listed({kModelNames.begin(), kModelNames.end()}) + " (or a base)", "none");
    }
    const std::size_t kind = choice("kind", given["kind"], kModelNames);
    c.model = model_at(kind);
    given.erase("kind");
    for_each_key(c, [&](std::string_view path, auto& field) { take(given, path, field); });
    refuse_rest(given, kind);
    refuse_misfit(c);
    return c;
  }

 private:
  [[noreturn]] void fail(ErrorKind kind, const std::string& where, const std::string& expected,
                         const std::string& actual) const {
    throw Error(kind, file_, where, expected, actual);
  }

  [[nodiscard]] const Json* find(const char* key) const {
    const auto it = root_.find(key);
    return it == root_.end() ? nullptr : &*it;
  }

  void refuse_unknown_keys() const {
    std::vector<std::string> known(kOwnKeys.begin(), kOwnKeys.end());
    for (const ModelKey& key : model_keys()) known.push_back(key.name);
    for (const auto& [key, value] : root_.items()) {
      if (std::ranges::find(known, key) == known.end()) {
        fail(ErrorKind::kSchema, key, listed(known), "this key");
      }
    }
  }

  [[nodiscard]] std::string name() const {
    const Json* value = find("name");
    if (value == nullptr) fail(ErrorKind::kSchema, "name", "a name", "none");
    std::string given = text("name", *value);
    const auto legal = [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '+' || c == '-';
    };
    if (given.empty() || given.size() > kLongestName || !std::ranges::all_of(given, legal)) {
      fail(ErrorKind::kValue, "name", "1 to 64 letters, digits or _ . + -", shown(*value));
    }
    if (std::ranges::find(contracts(), given, &Contract::name) != contracts().end()) {
      fail(ErrorKind::kValue, "name", "a name that no built-in contract has", "'" + given + "'");
    }
    return given;
  }

  // What the base says, or as much of it as "inherits" names.
  [[nodiscard]] Json inherited() const {
    const Json* base = find("base");
    const Json* parts = find("inherits");
    if (base == nullptr) {
      if (parts != nullptr) fail(ErrorKind::kSchema, "inherits", "a base beside it", "none");
      return Json::object();
    }
    Json from;
    try {
      from = Json::parse(to_json(find_contract(text("base", *base))));
    } catch (const Error& e) {
      fail(ErrorKind::kValue, "base", e.expected(), e.actual());
    }
    from.erase("name");
    from.erase("meaning");
    if (parts == nullptr) return from;
    if (!parts->is_array()) fail(ErrorKind::kType, "inherits", "an array", parts->type_name());
    std::vector<std::string> legal{"kind"};
    for (const ModelKey& key : model_keys()) legal.push_back(key.name);
    Json kept = Json::object();
    for (const Json& part : *parts) {
      const std::string key = text("inherits", part);
      if (std::ranges::find(legal, key) == legal.end()) {
        fail(ErrorKind::kValue, "inherits", listed(legal), shown(part));
      }
      if (from.contains(key)) kept[key] = from[key];
    }
    return kept;
  }

  // The file over its base: values replace values, names replace names.
  void lay_over(Json& given) const {
    if (const Json* kind = find("kind")) given["kind"] = *kind;
    for (const auto& [key, holds_names] : model_keys()) {
      const Json* value = find(key.c_str());
      if (value == nullptr) continue;
      if (!holds_names) {
        given[key] = *value;
        continue;
      }
      if (!value->is_object()) fail(ErrorKind::kType, key, "an object", value->type_name());
      for (const auto& [name, entry] : value->items()) given[key][name] = entry;
    }
  }

  // Moves the value of one path, if there is one, from `given` to the field; the field is the
  // zero of its type otherwise.
  template <class T>
  void take(Json& given, std::string_view path, T& field) const {
    const auto [key, name] = split(path);
    const Json value = given.contains(key) && !name.empty() ? given[key].value(name, Json())
                       : given.contains(key)                ? given[key]
                                                            : Json();
    if (name.empty()) {
      given.erase(key);
    } else if (given.contains(key)) {
      given[key].erase(name);
    }
    field = value.is_null() ? T{} : parsed<T>(std::string(path), value);
  }

  template <class T>
  [[nodiscard]] T parsed(const std::string& where, const Json& value) const {
    if constexpr (Word<T>) {
      return JsonWords<T>::at(choice(where, value, JsonWords<T>::kNames));
    } else if constexpr (std::same_as<T, double>) {
      return error(where, value);
    } else {
      return tokens(where, value);
    }
  }

  // Silence and zero say the same: a key that another kind has is refused where it says more.
  void refuse_rest(const Json& given, std::size_t kind) const {
    const std::string of_kind = " in a contract of kind " + std::string(kModelNames[kind]);
    for (const auto& [key, value] : given.items()) {
      if (!value.is_object()) {
        if (!says_nothing(value)) fail(ErrorKind::kValue, key, "none" + of_kind, shown(value));
        continue;
      }
      std::vector<std::string> own;
      for (const auto& [section, name] : paths_of(kind)) {
        if (section == key) own.push_back(name);
      }
      for (const auto& [name, entry] : value.items()) {
        const bool known = is_known({key, name});
        if (known && says_nothing(entry)) continue;
        fail(known ? ErrorKind::kValue : ErrorKind::kSchema, key + "." + name,
             (own.empty() ? "none" : listed(own)) + of_kind, "this key");
      }
    }
  }

  [[nodiscard]] static bool says_nothing(const Json& value) {
    return value.is_null() || (value.is_number() && value.get<double>() == 0.0);
  }

  void refuse_misfit(const Contract& c) const {
    const auto found = std::visit(
        [](const auto& model) -> std::optional<Misfit> {
          if constexpr (requires { model.unit_roundoff; }) {
            if (model.unit_roundoff == 0.0) {
              return Misfit{"unit_roundoff",
                            "the unit roundoff of the kernel's arithmetic, above 0", "none"};
            }
          }
          if constexpr (requires { model.chunk; }) {
            if (model.chunk == 0) return Misfit{"chunk", "a chunk size", "none"};
          }
          if constexpr (requires { misfit(model); }) return misfit(model);
          return std::nullopt;
        },
        c.model);
    if (found) fail(ErrorKind::kValue, found->where, found->expected, found->actual);
  }

  [[nodiscard]] std::string text(const std::string& where, const Json& value) const {
    if (!value.is_string()) fail(ErrorKind::kType, where, "a string", value.type_name());
    return value.get<std::string>();
  }

  // The place of a word among `names`.
  [[nodiscard]] std::size_t choice(const std::string& where, const Json& value,
                                   std::span<const std::string_view> names) const {
    const std::string given = text(where, value);
    const auto found = std::ranges::find(names, given);
    if (found == names.end()) {
      fail(ErrorKind::kValue, where, listed({names.begin(), names.end()}), "'" + given + "'");
    }
    return static_cast<std::size_t>(found - names.begin());
  }

  [[nodiscard]] std::int64_t tokens(const std::string& where, const Json& value) const {
    if (!value.is_number_integer()) fail(ErrorKind::kType, where, "an integer", value.type_name());
    const auto count = value.get<std::int64_t>();
    const std::int64_t most = where == "segment" ? kMostSegmentTokens : kMostTokens;
    if (count < 0 || count > most) {
      fail(ErrorKind::kValue, where, "0 to " + std::to_string(most) + " tokens", value.dump());
    }
    return count;
  }

  [[nodiscard]] double error(const std::string& where, const Json& value) const {
    if (!value.is_number()) fail(ErrorKind::kType, where, "a number", value.type_name());
    const auto x = value.get<double>();
    if (!(x >= 0.0 && x < 0.5)) fail(ErrorKind::kValue, where, "0 <= x < 0.5", value.dump());
    return x;
  }

  const Json& root_;
  std::string file_;
};

// Of two values for one key the parser keeps the last, and a reader of the file sees the first.
Json parse_without_repetition(std::string_view text, const std::string& file) {
  std::vector<std::set<std::string>> open;
  std::string repeated;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end && !open.empty()) open.pop_back();
    if (event == Json::parse_event_t::key && !open.empty() &&
        !open.back().insert(parsed.get<std::string>()).second) {
      repeated = shown(parsed);
    }
    return true;
  };
  Json root = Json::parse(text, watch, false);
  if (!repeated.empty()) {
    throw Error(ErrorKind::kSchema, file, "contract", "each key once", repeated + " twice");
  }
  return root;
}

}  // namespace

Contract parse_contract(std::string_view text, const std::string& file) {
  const Json root = parse_without_repetition(text, file);
  if (!root.is_object()) {
    throw Error(ErrorKind::kFile, file, "contract", "a JSON object",
                root.is_discarded() ? "no JSON" : root.type_name());
  }
  return ContractReader(root, file).read();
}

}  // namespace goldenrule::contract
