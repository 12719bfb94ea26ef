// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/case.hpp"

namespace goldenrule::test {

std::string Case::name() const {
  const auto number = [](const char* key, std::int64_t x) {
    return std::string(" ") + key + "=" + std::to_string(x);
  };
  const auto flag = [](const char* key, bool on) { return on ? std::string(" ") + key : ""; };
  std::string s = kda ? "kda" : "gdn";
  s += " layout=" + std::string(call::name_of(layout)) + " state=";
  s += std::string(call::info(state).name) + " io=" + std::string(call::info(io).name);
  s += " gates=" + std::string(call::info(gates).name);
  s += number("B", B) + number("T", T) + number("H", H) + number("HV", HV) + number("K", K) +
       number("V", V);
  s += " gate=" + std::string(call::name_of(gate)) + " beta=" + std::string(call::name_of(beta));
  s += " norm=" + std::string(call::name_of(norm)) +
       " heads=" + std::string(call::name_of(head_map)) +
       " gate_head=" + std::string(call::name_of(gate_head));
  s += number("pad", pad_slot) + number("slots", static_cast<int>(slots)) +
       number("values", static_cast<int>(values)) + number("gap", gap) + number("shift", shift);
  s += flag("i64", wide_indices) + flag("intermediates", intermediates) +
       number("extra_rows", extra_rows) + flag("accepted", accepted) +
       flag("disable_update", disable_update) + flag("separate_final", separate_final) +
       flag("dependent", dependent) + number("seed", static_cast<std::int64_t>(seed));
  return s;
}

}  // namespace goldenrule::test
