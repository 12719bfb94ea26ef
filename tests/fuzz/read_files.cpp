// SPDX-License-Identifier: Apache-2.0
//
// Reads files as the program does, without what judges them: so that the readers can be built with
// sanitizers in minutes.
//
//   read_files --make LINE FILE    a capture of the case whose outputs are zeros
//   read_files FILE...             one line for each: "taken", "refused" or "died", and why
//
// A file is read in a child, and its list of datasets too; where that ended by itself, it is read
// once more in this process, as a library's user may, and must come to the same. What a sanitizer
// has to say stands on standard error, from child and parent alike.
#include <cstdio>
#include <exception>
#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/call/widening.hpp"
#include "fixtures/cases/case.hpp"
#include "fixtures/hdf5/library.hpp"
#include "fixtures/schema/read.hpp"
#include "fixtures/schema/write.hpp"

namespace {

using namespace goldenrule;

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 28;

void make(const std::string& line, const std::string& path) {
  schema::Fixture fixture;
  fixture.record = cases::make_record(cases::parse(line));
  fixture.record.case_line.clear();
  const call::Dims d = call::validate(fixture.record);
  for (const char* name : {"o", "final_state"}) {
    fixture.record.outputs.emplace(
        name, call::Tensor(call::DType::kF32, call::output_shape(fixture.record, d, name)));
  }
  schema::write_fixture(path, fixture);
}

// Empty, or why not.
std::string refusal(const std::string& path, schema::Reader reader) {
  try {
    schema::Fixture fixture =
        schema::read_fixture(path, {.reader = reader, .max_bytes = kMaxBytes});
    call::undo_widening(fixture.record);
    (void)call::make_plan(fixture.record, true);
    (void)schema::describe(path, reader);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

bool has_died(const std::string& why) {
  return why.find("the process that reads it") != std::string::npos;
}

void read(const std::string& path) {
  const std::string child = refusal(path, schema::Reader::kChild);
  if (has_died(child)) {
    std::printf("died %s\n", child.c_str());
    return;
  }
  const std::string here = refusal(path, schema::Reader::kHere);
  if (child == here) {
    std::printf("%s %s\n", child.empty() ? "taken" : "refused", child.c_str());
  } else {
    std::printf("wrong in a child '%s', here '%s'\n", child.c_str(), here.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  hdf5::skip_cleanup_at_exit();  // it does not survive damaged files
  try {
    if (argc == 4 && std::string(argv[1]) == "--make") {
      make(argv[2], argv[3]);
      return 0;
    }
    for (int i = 1; i < argc; ++i) {
      read(argv[i]);
      std::fflush(stdout);
    }
  } catch (const std::exception& e) {
    std::printf("wrong another exception, %s\n", e.what());
    return 2;
  }
  return 0;
}
