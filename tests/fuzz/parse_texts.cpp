// SPDX-License-Identifier: Apache-2.0
//
// Parses case lines, suites and contracts, thousands in one process: a process for each would spend
// its time on starting. Standard input is a row of records: one byte for the kind (l, s, c), four
// for the length (little endian), the text. Each is answered with one line: "taken", "refused", or
// "wrong: .." with what the parsers must not do: throw anything but goldenrule::Error, refuse what
// they print themselves, take a call that cannot be made.
//
// No data is generated for a call that is not small: a line of forty letters may describe one of
// terabytes.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <optional>
#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/cases/case.hpp"
#include "fixtures/cases/delta_case.hpp"
#include "fixtures/cases/suite.hpp"
#include "reference/contract/contract_json.hpp"

namespace {

using goldenrule::Error;
namespace contract = goldenrule::contract;
namespace call = goldenrule::call;
namespace cases = goldenrule::cases;

/// Beyond this a call is measured, not made.
constexpr std::int64_t kSmallSteps = 4096, kSmallBytes = 1 << 17;

struct Wrong {
  std::string what;
};

void demand(bool right, const std::string& what) {
  if (!right) throw Wrong{what};
}

// What is promised for every case that parse() has taken.
void use(const cases::Case& c) {
  std::optional<std::string> refused;
  try {
    const std::string line = cases::canonical(c);
    demand(cases::canonical(cases::parse(line)) == line, "another canonical line: " + line);
    demand(cases::file_stem(c).find('/') == std::string::npos, "a stem that is a path");
    const std::int64_t steps = cases::step_count(c);
    const std::int64_t bytes = cases::golden_bytes(c);
    demand(steps >= 0 && bytes >= 0, "a size below 0");
    if (steps > kSmallSteps || bytes > kSmallBytes) return;
    if (cases::pool_size(c) > kSmallSteps || cases::row_count(c) > kSmallSteps) return;
    const call::Record record = cases::make_record(c);
    const call::Plan plan = call::make_plan(record, true);
    demand(std::ssize(plan.sequences) == cases::row_count(c), "a plan without some rows");
  } catch (const Error& e) {
    throw Wrong{"a case was taken, and then: " + std::string(e.what())};
  }
}

void read_line(const std::string& text) {
  for (const std::string& line : cases::expand(text)) use(cases::parse(line));
}

void read_suite(const std::string& text) {
  const cases::Suite suite = cases::parse_suite("fuzzed", text);
  std::size_t shared = 0;
  for (const std::size_t part : {1, 2, 3}) shared += cases::shard(suite, part, 3).cases.size();
  demand(shared == suite.cases.size(), "shards that are not the suite");
  for (const cases::Case& c : suite.cases) use(c);
}

void read_contract(const std::string& text) {
  const std::string printed = contract::to_json(contract::parse_contract(text, "fuzzed.json"));
  try {
    const std::string again = contract::to_json(contract::parse_contract(printed, "printed.json"));
    demand(again == printed, "a contract that changes when it is printed and read: " + printed);
  } catch (const Error& e) {
    throw Wrong{"a contract was taken, and refused as printed: " + std::string(e.what())};
  }
}

std::string answer(char kind, const std::string& text) {
  try {
    if (kind == 'l') read_line(text);
    if (kind == 's') read_suite(text);
    if (kind == 'c') read_contract(text);
    return "taken";
  } catch (const Error&) {
    return "refused";
  } catch (const Wrong& wrong) {
    return "wrong: " + wrong.what;
  } catch (const std::exception& e) {
    return std::string("wrong: another exception, ") + e.what();
  }
}

}  // namespace

int main() {
  std::array<char, 5> head{};
  while (std::cin.read(head.data(), head.size())) {
    std::uint32_t length = 0;
    for (std::size_t i = 4; i > 0; --i) {
      length = length << 8U | static_cast<unsigned char>(head[i]);
    }
    std::string text(length, '\0');
    std::cin.read(text.data(), static_cast<std::streamsize>(length));
    std::string said = answer(head[0], text);
    std::ranges::replace(said, '\n', ' ');
    std::printf("%s\n", said.c_str());
    std::fflush(stdout);  // whoever dies at the next record has answered this one
  }
  return 0;
}
