// SPDX-License-Identifier: Apache-2.0
//
// Real captures, recorded with h5py from public kernels: old format, gzip, chunks of h5py's choice.
#include <algorithm>
#include <vector>

#include "tests/schema/support.hpp"

namespace goldenrule::schema {
namespace {

std::vector<std::filesystem::path> captures() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(GOLDENRULE_PUBLIC_CAPTURES)) {
    if (entry.path().extension() == ".h5") paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  return paths;
}

TEST_CASE("real captures are readable and survive a rewrite") {
  const auto paths = captures();
  CHECK(paths.size() >= 8);
  const TemporaryDirectory dir;
  for (const auto& path : paths) {
    CAPTURE(path.filename().string());
    const Fixture f = read_fixture(path);
    CHECK(f.record.outputs.contains("o"));
    CHECK(f.record.outputs.contains("final_state"));
    CHECK(f.record.inputs.at("q").dtype() == call::DType::kBF16);
    CHECK_FALSE(f.record.source.empty());
    write_fixture(dir / "copy.h5", f);
    check_equal(f, read_fixture(dir / "copy.h5"));
  }
}

}  // namespace
}  // namespace goldenrule::schema
