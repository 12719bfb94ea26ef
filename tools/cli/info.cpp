// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <type_traits>

#include "fixtures/call/text.hpp"
#include "fixtures/schema/read.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/files.hpp"

namespace goldenrule::tools {
namespace {

void print_field(const char* name, const std::string& value) {
  if (!value.empty()) fmt::print("  {:<22} {}\n", name, value);
}

}  // namespace

int info(const std::string& file) {
  const schema::Description description = schema::describe(file, reading({}).reader);
  const schema::Fixture& header = description.header;
  fmt::print("{}\n", call::printable(file));
  print_field("op", std::string(call::name_of(header.record.op)));
  print_field("mode", std::string(call::name_of(header.record.mode)));
  print_field("source", header.record.source);
  print_field("contract", header.record.contract);
  print_field("case", header.record.case_line);
  print_field("pattern", header.pattern);
  print_field("chain", header.chain);
  print_field("call", header.call_index ? std::to_string(*header.call_index) : "");
  print_field("seed", header.seed ? std::to_string(*header.seed) : "");
  print_field("generator", header.generator);
  print_field("precision_bits",
              header.precision_bits > 0 ? std::to_string(header.precision_bits) : "");
  print_field("meaning_sha256", header.meaning_sha256);
  fmt::print("conventions\n");
  call::for_each_field_of(call::family_of(header.record.op), header.record.convention,
                          [](const char* name, const auto& value) {
                            using Field = std::decay_t<decltype(value)>;
                            if constexpr (std::is_enum_v<Field>) {
                              print_field(name, std::string(call::name_of(value)));
                            } else if constexpr (std::is_same_v<Field, std::optional<double>>) {
                              print_field(name, value ? fmt::format("{}", *value) : "K^-0.5");
                            } else {
                              print_field(name, fmt::format("{}", value));
                            }
                          });
  fmt::print("datasets\n");
  for (const schema::DatasetInfo& d : description.datasets) {
    fmt::print("  {:<34} {:<5} {:<22} {:>12} bytes, {:>12} stored, {} {}\n", d.path,
               call::info(d.dtype).name, call::to_string(d.shape), d.logical_bytes, d.storage_bytes,
               d.filters, d.digest.substr(0, 16));
  }
  return 0;
}

}  // namespace goldenrule::tools
