// SPDX-License-Identifier: Apache-2.0
//
// Damaged files, deterministically: whatever bytes are changed, reading gives a fixture or an
// Error, and never a crash, a hang or another exception. The 1.10 format carries checksums in its
// metadata; the old format of most captures does not, so that damage gets much further there.
#include <unistd.h>

#include "tests/schema/support.hpp"

namespace goldenrule::schema {
namespace {

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t n) {  // Knuth's MMIX constants; the low bits are poor
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return (state_ >> 24) % n;
  }

 private:
  std::uint64_t state_;
};

std::string damage(std::string bytes, Generator& random) {
  for (std::uint64_t n = 1 + random.below(3); n > 0; --n) {
    char& byte = bytes[random.below(bytes.size())];
    switch (random.below(4)) {
      case 0:
        byte = static_cast<char>(byte ^ (1 << random.below(8)));
        break;
      case 1:
        byte = static_cast<char>(0xff);
        break;
      case 2:
        byte = 0;
        break;
      default:
        byte = static_cast<char>(random.below(256));
    }
  }
  if (random.below(16) == 0) bytes.resize(random.below(bytes.size()));
  return bytes;
}

struct Outcome {
  int read = 0;
  int refused = 0;
};

Outcome fuzz(const std::string& intact, const std::filesystem::path& path, int rounds) {
  Generator random(20260801);
  Outcome outcome;
  for (int round = 0; round < rounds; ++round) {
    write_bytes(path, damage(intact, random));
    CAPTURE(round);
    ::alarm(20);  // a hang ends the process; the round is in doctest's report
    try {
      const Fixture fixture = read_fixture(path, {.check_digests = round % 2 == 0});
      validate(fixture);
      ++outcome.read;
    } catch (const Error& e) {
      CHECK(e.file() == path.string());
      ++outcome.refused;
    }
    ::alarm(0);
  }
  return outcome;
}

// The same content as the library writes it when nobody asks for a newer format.
void rewrite_in_old_format(const std::filesystem::path& from, const std::filesystem::path& to) {
  const hid_t source = H5Fopen(from.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t target = H5Fcreate(to.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const Fixture f = read_fixture(from);
  put_attribute(target, "/", "schema", std::string("goldenrule/1"));
  put_attribute(target, "/", "op", std::string(call::name_of(f.record.op)));
  put_attribute(target, "/", "mode", std::string(call::name_of(f.record.mode)));
  H5Gclose(H5Gcreate2(target, "convention", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  put_attribute(target, "/convention", "gate", std::string("softplus"));
  put_attribute(target, "/convention", "scale", 0.25);
  const auto copy = [&](const std::string& group, const call::TensorMap& tensors) {
    H5Gclose(H5Gcreate2(target, group.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    for (const auto& [name, tensor] : tensors) {
      const std::string path = group + "/" + name;
      const hid_t dataset = H5Dopen2(source, path.c_str(), H5P_DEFAULT);
      const hid_t type = H5Dget_type(dataset);
      const hid_t dcpl = H5Dget_create_plist(dataset);
      put_dataset(target, path.c_str(), type, {tensor.shape().begin(), tensor.shape().end()}, dcpl,
                  tensor.bytes().data());
      H5Pclose(dcpl);
      H5Tclose(type);
      H5Dclose(dataset);
    }
  };
  copy("/inputs", f.record.inputs);
  copy("/outputs", f.record.outputs);
  H5Fclose(source);
  REQUIRE(H5Fclose(target) >= 0);
}

TEST_CASE("damaged files give a fixture or an error") {
  const TemporaryDirectory dir;
  constexpr int kRounds = 300;
  for (const std::int64_t V : {3, 1500}) {  // all contiguous; the larger half of it chunked
    for (const bool old_format : {false, true}) {
      CAPTURE(V);
      CAPTURE(old_format);
      write_fixture(dir / "intact.h5", small_fixture(V));
      if (old_format) {
        rewrite_in_old_format(dir / "intact.h5", dir / "old.h5");
        CHECK_NOTHROW((void)read_fixture(dir / "old.h5"));
      }
      const Outcome outcome = fuzz(file_bytes(dir / (old_format ? "old.h5" : "intact.h5")),
                                   dir / "damaged.h5", kRounds);
      CHECK(outcome.read + outcome.refused == kRounds);
      CHECK(outcome.refused > kRounds / 10);  // the damage is not all in unused bytes
    }
  }
}

}  // namespace
}  // namespace goldenrule::schema
