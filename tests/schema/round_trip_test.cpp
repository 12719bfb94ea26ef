// SPDX-License-Identifier: Apache-2.0
//
// What is written is read: every field, and every bit of every storage type, through both storage
// layouts; and the same bytes by other people's readers (h5dump) and from their writers (h5py's
// conventions, big-endian machines).
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "fixtures/schema/digest.hpp"
#include "tests/schema/support.hpp"

namespace goldenrule::schema {
namespace {

using call::DType;

TEST_CASE("every field comes back, contiguous and chunked") {
  const TemporaryDirectory dir;
  for (const std::int64_t V : {3, 8000}) {
    CAPTURE(V);
    const Fixture written = small_fixture(V);
    write_fixture(dir / "f.h5", written);
    check_equal(written, read_fixture(dir / "f.h5"));
    const Description d = describe(dir / "f.h5");
    CHECK(d.datasets.size() == 16);
    for (const DatasetInfo& info : d.datasets) {
      CAPTURE(info.path);
      CHECK(info.chunk.empty() == (info.logical_bytes < 64 * 1024));
      CHECK(info.filters == (info.chunk.empty() ? "none" : "shuffle+deflate+fletcher32"));
      CHECK(info.digest.size() == 64);
    }
  }
}

TEST_CASE("an empty call and absent fields come back") {
  const TemporaryDirectory dir;
  Fixture f;
  f.record.mode = call::Mode::kPrefill;
  f.record.convention.gate = call::Gate::kNone;
  f.record.inputs = {{"q", call::Tensor(DType::kF32, {0, 1, 4})},
                     {"k", call::Tensor(DType::kF32, {0, 1, 4})},
                     {"v", call::Tensor(DType::kF32, {0, 1, 2})},
                     {"b", call::Tensor(DType::kF32, {0, 1})},
                     {"cu_seqlens", call::Tensor(DType::kI64, {1})}};
  write_fixture(dir / "f.h5", f);
  const Fixture read = read_fixture(dir / "f.h5");
  check_equal(f, read);
  CHECK_FALSE(read.record.convention.scale.has_value());
  CHECK_FALSE(read.seed.has_value());
}

// All 65536 patterns of the 16-bit types, and for the wide ones the patterns that a conversion
// would change: signalling and quiet NaN payloads, infinities, subnormals, both zeros.
TEST_CASE("bit patterns survive in every storage type") {
  const TemporaryDirectory dir;
  Fixture f = small_fixture();
  std::array<std::uint16_t, 65536> all16{};
  std::iota(all16.begin(), all16.end(), std::uint16_t{0});
  const std::array<std::uint32_t, 8> f32{0x7f800001U, 0xffc12345U, 0x7fbfffffU, 0x7f800000U,
                                         0xff800000U, 1U,          0x807fffffU, 0x80000000U};
  const std::array<std::uint64_t, 8> f64{0x7ff0000000000001U, 0xfff8123456789abcU,
                                         0x7ff7ffffffffffffU, 0x7ff0000000000000U,
                                         0xfff0000000000000U, 1U,
                                         0x800fffffffffffffU, 0x8000000000000000U};
  const auto fill = [](DType dtype, call::Shape shape, const auto& patterns) {
    call::Tensor t(dtype, std::move(shape));
    REQUIRE(t.bytes().size() == sizeof patterns);
    std::memcpy(t.bytes().data(), patterns.data(), sizeof patterns);
    return t;
  };
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    f.record.inputs["q"] = fill(dtype, {2, 4, 2, 4096}, all16);
    f.record.inputs["k"] = f.record.inputs["q"];
    f.record.inputs["v"] = pattern(DType::kF32, {2, 4, 2, 1});
    f.record.inputs["a"] = pattern(DType::kF32, {2, 4, 2});
    f.record.inputs["b"] = f.record.inputs["a"];
    f.record.inputs["initial_state"] = pattern(DType::kF32, {1, 2, 1, 4096});
    f.record.outputs.clear();
    f.golden.clear();
    f.budgets.clear();
    f.stages["f64"] = fill(DType::kF64, {8}, f64);
    f.record.outputs["o"] = call::Tensor(DType::kF32, {2, 4, 2, 1});
    std::memcpy(f.record.outputs["o"].bytes().data(), f32.data(), sizeof f32);
    write_fixture(dir / "f.h5", f);
    check_equal(f, read_fixture(dir / "f.h5"));
  }
}

TEST_CASE("big-endian data of every type is read as values") {
  const TemporaryDirectory dir;
  const Fixture f = small_fixture(8000);
  const auto store = [](hid_t file, const char* name, const call::Tensor& t, hid_t base,
                        bool chunked) {
    const std::size_t size = call::info(t.dtype()).bytes;
    std::string data(reinterpret_cast<const char*>(t.bytes().data()), t.bytes().size());
    for (std::size_t i = 0; i < data.size(); i += size) {
      std::reverse(data.begin() + static_cast<std::ptrdiff_t>(i),
                   data.begin() + static_cast<std::ptrdiff_t>(i + size));
    }
    const hid_t type = H5Tcopy(base);
    H5Tset_order(type, H5T_ORDER_BE);
    const std::vector<hsize_t> extents(t.shape().begin(), t.shape().end());
    const hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    if (chunked) {  // a chunk that sticks out on two axes, by the library's own filters
      const std::array<hsize_t, 4> chunk{1, 2, 2, 3000};
      H5Pset_chunk(dcpl, 4, chunk.data());
      H5Pset_fletcher32(dcpl);
      H5Pset_shuffle(dcpl);
      H5Pset_deflate(dcpl, 9);
    }
    put_dataset(file, name, type, extents, dcpl, data.data());
    H5Pclose(dcpl);
    H5Tclose(type);
  };
  const hid_t bf16 = H5Tcopy(H5T_IEEE_F32LE);
  H5Tset_fields(bf16, 15, 7, 8, 0, 7);
  H5Tset_size(bf16, 2);
  H5Tset_ebias(bf16, 127);
  write_edited(
      dir / "f.h5",
      [&](hid_t file) {
        store(file, "/inputs/v", f.record.inputs.at("v"), bf16, true);
        store(file, "/inputs/b", f.record.inputs.at("b"), H5T_IEEE_F32LE, false);
        store(file, "/inputs/a", f.record.inputs.at("a"), H5T_IEEE_F64LE, false);
        store(file, "/inputs/state_indices", f.record.inputs.at("state_indices"), H5T_STD_I32LE,
              false);
        store(file, "/inputs/accepted_tokens", f.record.inputs.at("accepted_tokens"), H5T_STD_I64LE,
              false);
      },
      8000);
  H5Tclose(bf16);
  check_equal(f, read_fixture(dir / "f.h5"));
}

TEST_CASE("attributes of other writers: fixed-length text, narrow numbers, booleans") {
  const TemporaryDirectory dir;
  write_edited(dir / "f.h5", [](hid_t file) {
    const auto put = [&](const char* object, const char* name, hid_t type, const void* data) {
      H5Adelete_by_name(file, object, name, H5P_DEFAULT);
      const hsize_t one = 1;
      const hid_t space = H5Screate_simple(1, &one, nullptr);
      const hid_t a =
          H5Acreate_by_name(file, object, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
      REQUIRE(H5Awrite(a, type, data) >= 0);
      H5Aclose(a);
      H5Sclose(space);
    };
    const hid_t padded = H5Tcopy(H5T_C_S1);
    H5Tset_size(padded, 8);
    H5Tset_strpad(padded, H5T_STR_SPACEPAD);
    put("/convention", "gate", padded, "bounded ");
    const hid_t terminated = H5Tcopy(H5T_C_S1);
    H5Tset_size(terminated, 8);
    put("/convention", "head_map", terminated, "grouped");
    const float scale = 0.5F;
    put("/convention", "scale", H5T_NATIVE_FLOAT, &scale);
    const std::int16_t slot = -5;
    const std::array<unsigned char, 2> big_endian{0xff, 0xfb};
    put("/convention", "pad_slot", H5T_STD_I16BE, big_endian.data());
    CHECK(slot == static_cast<std::int16_t>(big_endian[0] << 8 | big_endian[1]));
    const int beta = 2;
    put("/convention", "softplus_beta", H5T_NATIVE_INT, &beta);
    const hid_t boolean = H5Tenum_create(H5T_NATIVE_INT8);  // as h5py stores a bool
    const std::array<std::int8_t, 2> values{0, 1};
    H5Tenum_insert(boolean, "FALSE", &values[0]);
    H5Tenum_insert(boolean, "TRUE", &values[1]);
    put("/convention", "disable_state_update", boolean, &values[1]);
    const std::uint64_t seed = 12345678901U;
    put("/", "seed", H5T_NATIVE_UINT64, &seed);
    H5Tclose(boolean);
    H5Tclose(padded);
    H5Tclose(terminated);
  });
  const Fixture f = read_fixture(dir / "f.h5");
  CHECK(f.record.convention.gate == call::Gate::kBounded);
  CHECK(f.record.convention.head_map == call::HeadMap::kGrouped);
  CHECK(f.record.convention.scale == 0.5);
  CHECK(f.record.convention.pad_slot == -5);
  CHECK(f.record.convention.softplus_beta == 2.0);
  CHECK(f.record.convention.disable_state_update == 1);
  CHECK(f.seed == 12345678901);
}

TEST_CASE("what is not asked for is not loaded") {
  const TemporaryDirectory dir;
  write_fixture(dir / "f.h5", small_fixture());
  const Fixture f =
      read_fixture(dir / "f.h5", {.golden = false, .budgets = false, .stages = false});
  CHECK(f.golden.empty());
  CHECK(f.budgets.empty());
  CHECK(f.stages.empty());
  CHECK(f.record.inputs.size() == 9);
}

TEST_CASE("sha256 of the standard's examples (FIPS 180-2)") {
  CHECK(sha256_hex({}) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const std::array<std::byte, 3> abc{std::byte{'a'}, std::byte{'b'}, std::byte{'c'}};
  CHECK(sha256_hex(abc) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) text += buffer.data();
  ::pclose(pipe);
  return text;
}

TEST_CASE("h5dump reads bf16, f16 and chunked data") {
  if (std::system("command -v h5dump > /dev/null") != 0) {
    MESSAGE("SKIPPED: h5dump is not installed");
    return;
  }
  const TemporaryDirectory dir;
  write_fixture(dir / "f.h5", small_fixture(8000));
  const auto dump = [&](const std::string& options) {
    return output_of("h5dump -m '%.9g' -w 0 -y " + options + " " + (dir / "f.h5").string());
  };
  // pattern(): -0.5, 37/64 - .5 = .078125, 74/64 - .5 = .65625, 10/64 - .5 = -.34375
  const std::string expected = "-0.5, 0.078125, 0.65625, -0.34375";
  CHECK(dump("-d /inputs/q").find(expected) != std::string::npos);
  CHECK(dump("-d /inputs/k").find(expected) != std::string::npos);
  CHECK(dump("-d /golden/o -s 0,0,0,0 -c 1,1,1,4").find(expected) != std::string::npos);
  CHECK(dump("-d /inputs/v -s 0,0,0,0 -c 1,1,1,4").find(expected) != std::string::npos);
  CHECK(dump("-H -p -d /golden/o").find("FLETCHER32") != std::string::npos);
}

}  // namespace
}  // namespace goldenrule::schema
