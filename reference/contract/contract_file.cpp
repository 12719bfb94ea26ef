// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include "fixtures/call/error.hpp"
#include "reference/contract/contract_json.hpp"

namespace goldenrule::contract {
namespace {

// A contract with every key written out has less than two thousand.
constexpr std::uintmax_t kMaxContractBytes = 1 << 20;

}  // namespace

Contract load_contract(const std::filesystem::path& file) {
  const auto refuse = [&](const std::string& expected, const std::string& actual) {
    throw Error(ErrorKind::kFile, file.string(), "contract", expected, actual);
  };
  // A FIFO would make us wait for ever, a device never ends.
  std::error_code code;
  const auto status = std::filesystem::status(file, code);
  if (!std::filesystem::exists(status)) refuse("a readable file", "none");
  if (!std::filesystem::is_regular_file(status)) refuse("a readable file", "not a regular file");
  const std::uintmax_t size = std::filesystem::file_size(file, code);
  if (!code && size > kMaxContractBytes) {
    refuse("at most " + std::to_string(kMaxContractBytes) + " bytes", std::to_string(size));
  }
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (code || !in) refuse("a readable file", "none");
  return parse_contract(text.str(), file.string());
}

}  // namespace goldenrule::contract
