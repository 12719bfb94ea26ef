// SPDX-License-Identifier: Apache-2.0
#include "reference/bounds/contract_json.hpp"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "fixtures/call/error.hpp"

namespace goldenrule::bounds {
namespace {

using nlohmann::json;

class ContractReader {
 public:
  ContractReader(const json& root, std::string file) : root_(root), file_(std::move(file)) {}

  Contract read() {
    Contract c;
    for (const auto& [key, value] : root_.items()) {
      if (key == "name") {
        c.name = text(key, value);
      } else if (key == "meaning") {
        c.meaning = text(key, value);
      } else if (key == "state") {
        c.state_dtype = type(key, value);
      } else if (key == "chunk") {
        c.chunk = chunk(value);
      } else if (key == "unit_roundoff") {
        c.unit_roundoff = error(key, value);
      } else if (key == "round") {
        c.rounding = rounding(value);
      } else if (key == "functions") {
        c.functions = functions(value);
      } else {
        fail(ErrorKind::kSchema, key,
             "name, meaning, state, chunk, round, unit_roundoff or functions", "this key");
      }
    }
    if (c.name.empty()) fail(ErrorKind::kSchema, "name", "a name", "none");
    if (c.chunk > 0 && (c.unit_roundoff > 0 || root_.contains("functions"))) {
      fail(ErrorKind::kValue, "chunk",
           "either a chunked contract (chunk, round) or a recurrent one (unit_roundoff, functions)",
           "both");
    }
    if (c.chunk == 0 && root_.contains("round")) {
      fail(ErrorKind::kValue, "round", "a chunk size beside it", "none");
    }
    return c;
  }

 private:
  [[noreturn]] void fail(ErrorKind kind, const std::string& where, const std::string& expected,
                         const std::string& actual) const {
    throw Error(kind, file_, where, expected, actual);
  }

  [[nodiscard]] std::string text(const std::string& where, const json& value) const {
    if (!value.is_string()) fail(ErrorKind::kType, where, "a string", value.type_name());
    return value.get<std::string>();
  }

  [[nodiscard]] call::DType type(const std::string& where, const json& value) const {
    const std::string name = text(where, value);
    for (const call::DType dtype : {call::DType::kF32, call::DType::kF16, call::DType::kBF16}) {
      if (call::info(dtype).name == name) return dtype;
    }
    fail(ErrorKind::kValue, where, "f32, f16 or bf16", "'" + name + "'");
  }

  [[nodiscard]] std::int64_t chunk(const json& value) const {
    if (!value.is_number_integer())
      fail(ErrorKind::kType, "chunk", "an integer", value.type_name());
    const auto tokens = value.get<std::int64_t>();
    if (tokens < 0 || tokens > 4096) {
      fail(ErrorKind::kValue, "chunk", "0 to 4096 tokens", std::to_string(tokens));
    }
    return tokens;
  }

  [[nodiscard]] double error(const std::string& where, const json& value) const {
    if (!value.is_number()) fail(ErrorKind::kType, where, "a number", value.type_name());
    const auto x = value.get<double>();
    if (!(x >= 0.0 && x < 0.5)) fail(ErrorKind::kValue, where, "0 <= x < 0.5", std::to_string(x));
    return x;
  }

  [[nodiscard]] RoundingTable rounding(const json& value) const {
    if (!value.is_object()) fail(ErrorKind::kType, "round", "an object", value.type_name());
    RoundingTable table{};
    for (const auto& [key, entry] : value.items()) {
      std::string known;
      bool found = false;
      for (std::size_t i = 0; i < kPoints; ++i) {
        const std::string name(name_of(static_cast<Point>(i)));
        known += (i == 0 ? "" : ", ") + name;
        if (name != key) continue;
        table[i] = type("round." + key, entry);
        found = true;
      }
      if (!found) fail(ErrorKind::kSchema, "round." + key, "one of " + known, "this key");
    }
    return table;
  }

  [[nodiscard]] FunctionErrors functions(const json& value) const {
    if (!value.is_object()) fail(ErrorKind::kType, "functions", "an object", value.type_name());
    FunctionErrors f;
    for (const auto& [key, entry] : value.items()) {
      bool found = false;
      for_each_function(f, [&](std::string_view name, double& field) {
        if (name != key) return;
        field = error("functions." + key, entry);
        found = true;
      });
      if (!found) {
        fail(ErrorKind::kSchema, "functions." + key,
             "exp, log_alpha, softplus, logit, sigmoid or norm", "this key");
      }
    }
    return f;
  }

  const json& root_;
  std::string file_;
};

}  // namespace

Contract parse_contract(std::string_view text, const std::string& file) {
  const json root = json::parse(text, nullptr, false);
  if (!root.is_object()) {
    throw Error(ErrorKind::kFile, file, "contract", "a JSON object",
                root.is_discarded() ? "no JSON" : root.type_name());
  }
  return ContractReader(root, file).read();
}

Contract load_contract(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) throw Error(ErrorKind::kFile, file.string(), "contract", "a readable file", "none");
  return parse_contract(text.str(), file.string());
}

}  // namespace goldenrule::bounds
