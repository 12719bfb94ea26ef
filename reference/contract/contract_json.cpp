// SPDX-License-Identifier: Apache-2.0
//
// Length: one reader, a function for each key.
#include "reference/contract/contract_json.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "fixtures/call/error.hpp"
#include "reference/contract/contract_draft.hpp"

namespace goldenrule::contract {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 13> kKeys{
    "name",    "base", "inherits",      "meaning", "kind",      "state",  "chunk",
    "segment", "form", "unit_roundoff", "round",   "functions", "adjoint"};
constexpr std::size_t kLongestName = 64;

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  }
  return text;
}

class ContractReader {
 public:
  ContractReader(const json& root, std::string file) : root_(root), file_(std::move(file)) {}

  Contract read() {
    refuse_unknown_keys();
    Draft c = inherited();
    c.name = name();
    if (const json* value = find("meaning")) c.meaning = text("meaning", *value);
    if (const json* value = find("kind")) c.kind = choice("kind", *value, kModelNames);
    if (const json* value = find("state")) c.state = state(*value);
    if (const json* value = find("chunk")) c.chunk = tokens("chunk", *value, 4096);
    if (const json* value = find("segment")) c.segment = tokens("segment", *value, 1 << 20);
    if (const json* value = find("form")) c.form = form(*value);
    if (const json* value = find("unit_roundoff")) c.unit_roundoff = error("unit_roundoff", *value);
    if (const json* value = find("round")) read_rounding(*value, c);
    if (const json* value = find("functions")) read_functions(*value, c);
    if (const json* value = find("adjoint")) read_adjoint(*value, c);
    check(c);
    return contract_of(c);
  }

 private:
  [[noreturn]] void fail(ErrorKind kind, const std::string& where, const std::string& expected,
                         const std::string& actual) const {
    throw Error(kind, file_, where, expected, actual);
  }

  [[nodiscard]] const json* find(const char* key) const {
    const auto it = root_.find(key);
    return it == root_.end() ? nullptr : &*it;
  }

  void refuse_unknown_keys() const {
    for (const auto& [key, value] : root_.items()) {
      if (std::ranges::find(kKeys, key) != kKeys.end()) continue;
      fail(ErrorKind::kSchema, key, listed({kKeys.begin(), kKeys.end()}), "this key");
    }
  }

  [[nodiscard]] std::string name() const {
    const json* value = find("name");
    if (value == nullptr) fail(ErrorKind::kSchema, "name", "a name", "none");
    std::string given = text("name", *value);
    const auto legal = [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '+' || c == '-';
    };
    if (given.empty() || given.size() > kLongestName || !std::ranges::all_of(given, legal)) {
      fail(ErrorKind::kValue, "name", "1 to 64 letters, digits or _ . + -",
           value->dump(-1, ' ', true));
    }
    if (std::ranges::find(contracts(), given, &Contract::name) != contracts().end()) {
      fail(ErrorKind::kValue, "name", "a name that no built-in contract has", "'" + given + "'");
    }
    return given;
  }

  // The base, or as much of it as "inherits" says.
  [[nodiscard]] Draft inherited() const {
    const json* base = find("base");
    const json* parts = find("inherits");
    if (base == nullptr) {
      if (parts != nullptr) fail(ErrorKind::kSchema, "inherits", "a base beside it", "none");
      return {};
    }
    Draft from;
    try {
      from = draft_of(find_contract(text("base", *base)));
    } catch (const Error& e) {
      fail(ErrorKind::kValue, "base", e.expected(), e.actual());
    }
    from.meaning.clear();
    if (parts == nullptr) return from;
    if (!parts->is_array()) fail(ErrorKind::kType, "inherits", "an array", parts->type_name());
    Draft c;
    for (const json& part : *parts) {
      const std::string what = text("inherits", part);
      if (what == "kind") {
        c.kind = from.kind;
      } else if (what == "state") {
        c.state = from.state;
      } else if (what == "chunk") {
        c.chunk = from.chunk;
        c.segment = from.segment;
      } else if (what == "form") {
        c.form = from.form;
      } else if (what == "unit_roundoff") {
        c.unit_roundoff = from.unit_roundoff;
      } else if (what == "round") {
        c.rounding = from.rounding;
        c.softmax_rounds = from.softmax_rounds;
      } else if (what == "functions") {
        c.functions = from.functions;
        c.exp2 = from.exp2;
        c.tanh = from.tanh;
      } else if (what == "adjoint") {
        c.adjoint = from.adjoint;
      } else {
        fail(ErrorKind::kValue, "inherits",
             listed({"kind", "state", "chunk", "form", "unit_roundoff", "round", "functions",
                     "adjoint"}),
             part.dump(-1, ' ', true));
      }
    }
    return c;
  }

  // Without a kind silence would mean an ideal kernel.
  [[nodiscard]] bool inherits_kind() const {
    const json* parts = find("inherits");
    return find("base") != nullptr &&
           (parts == nullptr || std::ranges::find(*parts, json("kind")) != parts->end());
  }

  void check(const Draft& c) const {
    if (find("kind") == nullptr && !inherits_kind()) {
      fail(ErrorKind::kSchema, "kind",
           listed({kModelNames.begin(), kModelNames.end()}) + " (or a base)", "none");
    }
    if (!c.is("chunked") && find("form") != nullptr) {
      fail(ErrorKind::kValue, "form", "none in a contract that is not chunked",
           std::string(name_of(c.form)));
    }
    if (const auto found = misfit(c)) {
      fail(ErrorKind::kValue, found->where, found->expected, found->actual);
    }
  }

  [[nodiscard]] std::string text(const std::string& where, const json& value) const {
    if (!value.is_string()) fail(ErrorKind::kType, where, "a string", value.type_name());
    return value.get<std::string>();
  }

  // The place of a word among `names`.
  [[nodiscard]] std::size_t choice(const std::string& where, const json& value,
                                   std::span<const std::string_view> names) const {
    const std::string given = text(where, value);
    const auto found = std::ranges::find(names, given);
    if (found == names.end()) {
      fail(ErrorKind::kValue, where, listed({names.begin(), names.end()}), "'" + given + "'");
    }
    return static_cast<std::size_t>(found - names.begin());
  }

  [[nodiscard]] Form form(const json& value) const {
    const std::array names{name_of(Form::kWY), name_of(Form::kDirect)};
    return static_cast<Form>(choice("form", value, names));
  }

  [[nodiscard]] std::optional<call::DType> state(const json& value) const {
    if (value.is_null()) return std::nullopt;
    const std::string given = text("state", value);
    for (const call::DType dtype : {call::DType::kF32, call::DType::kF16, call::DType::kBF16}) {
      if (call::info(dtype).name == given) return dtype;
    }
    fail(ErrorKind::kValue, "state", "f32, f16 or bf16", "'" + given + "'");
  }

  [[nodiscard]] std::int64_t tokens(const char* where, const json& value, std::int64_t most) const {
    if (!value.is_number_integer()) fail(ErrorKind::kType, where, "an integer", value.type_name());
    const auto count = value.get<std::int64_t>();
    if (count < 0 || count > most) {
      fail(ErrorKind::kValue, where, "0 to " + std::to_string(most) + " tokens", value.dump());
    }
    return count;
  }

  [[nodiscard]] double error(const std::string& where, const json& value) const {
    if (!value.is_number()) fail(ErrorKind::kType, where, "a number", value.type_name());
    const auto x = value.get<double>();
    if (!(x >= 0.0 && x < 0.5)) fail(ErrorKind::kValue, where, "0 <= x < 0.5", value.dump());
    return x;
  }

  void read_rounding(const json& value, Draft& c) const {
    if (!value.is_object()) fail(ErrorKind::kType, "round", "an object", value.type_name());
    for (const auto& [key, entry] : value.items()) {
      std::vector<std::string> known;
      bool found = false;
      for (std::size_t i = 0; i < kPoints && !found; ++i) {
        known.emplace_back(point_name(i));
        if (known.back() != key) continue;
        c.rounding[i] = format("round." + key, entry);
        found = true;
      }
      for (std::size_t i = 0; i < kSoftmaxPoints && !found; ++i) {
        known.emplace_back(name_of(static_cast<SoftmaxPoint>(i)));
        if (known.back() != key) continue;
        c.softmax_rounds[i] = rounds_to_q("round." + key, entry);
        found = true;
      }
      if (!found) fail(ErrorKind::kSchema, "round." + key, "one of " + listed(known), "this key");
    }
  }

  void read_adjoint(const json& value, Draft& c) const {
    if (!value.is_object()) fail(ErrorKind::kType, "adjoint", "an object", value.type_name());
    std::vector<std::string> known;
    for (std::size_t i = 0; i < kAdjointPoints; ++i) {
      known.emplace_back(name_of(static_cast<AdjointPoint>(i)));
    }
    for (const auto& [key, entry] : value.items()) {
      const auto at = std::ranges::find(known, key);
      const std::string where = "adjoint." + key;
      if (at == known.end()) fail(ErrorKind::kSchema, where, "one of " + listed(known), "this key");
      c.adjoint[static_cast<std::size_t>(at - known.begin())] = adjoint_rounding(where, entry);
    }
  }

  [[nodiscard]] AdjointRounding adjoint_rounding(const std::string& where,
                                                 const json& value) const {
    if (value.is_null()) return AdjointRounding::kNone;
    const std::string given = text(where, value);
    if (given == kTypeOfQ) return AdjointRounding::kTypeOfQ;
    if (given == "tf32") return AdjointRounding::kTF32;
    if (given == "bf16x2") return AdjointRounding::kTwoBF16;
    fail(ErrorKind::kValue, where, "the words type of q, tf32, bf16x2, or null", "'" + given + "'");
  }

  [[nodiscard]] bool rounds_to_q(const std::string& where, const json& value) const {
    if (value.is_null()) return false;
    const std::string given = text(where, value);
    if (given == kTypeOfQ) return true;
    fail(ErrorKind::kValue, where, "the words type of q, or null", "'" + given + "'");
  }

  [[nodiscard]] std::optional<Format> format(const std::string& where, const json& value) const {
    if (value.is_null()) return std::nullopt;
    const std::string given = text(where, value);
    const auto parsed = parse_format(given);
    if (!parsed)
      fail(ErrorKind::kValue, where, "f32, tf32, f16, bf16, any16 or bf16x2", "'" + given + "'");
    return parsed;
  }

  void read_functions(const json& value, Draft& c) const {
    if (!value.is_object()) fail(ErrorKind::kType, "functions", "an object", value.type_name());
    for (const auto& item : value.items()) {
      const std::string& key = item.key();
      std::vector<std::string> known;
      bool found = false;
      const auto take = [&](std::string_view name, double& field) {
        known.emplace_back(name);
        if (name != key) return;
        field = error("functions." + key, item.value());
        found = true;
      };
      for_each_function(c.functions, take);
      take("exp2", c.exp2);
      take("tanh", c.tanh);
      if (!found) fail(ErrorKind::kSchema, "functions." + key, listed(known), "this key");
    }
  }

  const json& root_;
  std::string file_;
};

// Of two values for one key the parser keeps the last, and a reader of the file sees the first.
json parse_without_repetition(std::string_view text, const std::string& file) {
  std::vector<std::set<std::string>> open;
  std::string repeated;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end && !open.empty()) open.pop_back();
    if (event == json::parse_event_t::key && !open.empty() &&
        !open.back().insert(parsed.get<std::string>()).second) {
      repeated = parsed.dump(-1, ' ', true);
    }
    return true;
  };
  json root = json::parse(text, watch, false);
  if (!repeated.empty()) {
    throw Error(ErrorKind::kSchema, file, "contract", "each key once", repeated + " twice");
  }
  return root;
}

}  // namespace

Contract parse_contract(std::string_view text, const std::string& file) {
  const json root = parse_without_repetition(text, file);
  if (!root.is_object()) {
    throw Error(ErrorKind::kFile, file, "contract", "a JSON object",
                root.is_discarded() ? "no JSON" : root.type_name());
  }
  return ContractReader(root, file).read();
}

}  // namespace goldenrule::contract
