// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a few fills, pinned: a case line that someone quoted must give the same tensors in
// every later version and on every machine. If a change of a fill is meant, the generator of
// fixtures changes with it; these digests are then the list of what changed.
#include <doctest/doctest.h>

#include <cstdio>
#include <string>

#include "fixtures/random/philox.hpp"
#include "tests/cases/measure.hpp"

using namespace goldenrule::cases;
using namespace goldenrule::cases::test;

namespace {

std::string digest(const std::string& line, const char* name) {
  const goldenrule::call::Record record = record_of(line);
  const auto& tensor = record.inputs.at(name);
  const std::string_view bytes(reinterpret_cast<const char*>(tensor.bytes().data()),
                               tensor.bytes().size());
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx",
                static_cast<unsigned long long>(goldenrule::random::fnv1a(bytes)));
  return hex;
}

}  // namespace

TEST_CASE("fills are pinned") {
  const std::string decode =
      "op=gdn mode=decode B=3 H=2 HV=4 K=64 V=32 slots=padded pattern=production";
  CHECK(digest(decode, "q") == "2f3b348c7aa144e6");
  CHECK(digest(decode, "v") == "2817f7bc1c5114d6");
  CHECK(digest(decode, "a") == "c8e819664c8d02bc");
  CHECK(digest(decode, "A_log") == "106cbebeced06bdc");
  CHECK(digest(decode, "dt_bias") == "8379f7a460fd261a");
  CHECK(digest(decode, "b") == "d4eb5b0ef98760ad");
  CHECK(digest(decode, "initial_state") == "ee762a0c236b8a9a");
  CHECK(digest(decode, "state_indices") == "6c5fece356b17ff9");
  const std::string prefill = "op=kda mode=prefill lens=37,20 H=1 HV=2 K=64 V=32";
  CHECK(digest(prefill + " pattern=B95", "k") == "1c6ae487870bb7e4");
  CHECK(digest(prefill + " gate=bounded io=f32 pattern=Dmixed", "a") == "ab1e331c70271d5e");
  CHECK(digest(prefill + " gate=linear pattern=Dprod", "g") == "f43d01b0dd617467");
  CHECK(digest(prefill + " pattern=H", "v") == "275c0fe5ce4c0020");
  const std::string exact =
      prefill + " gate=linear beta=direct qk_l2norm=none scale=1 h0=1 pattern=K";
  CHECK(digest(exact, "k") == "67b6f4493d576d25");
  CHECK(digest(exact, "g") == "3eb1fa17f4a5ab25");
}
