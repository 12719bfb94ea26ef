// SPDX-License-Identifier: Apache-2.0
//
// Files that are wrong: each gives one line with the dataset, what was expected and what is there.
// Files that are dangerous: unsafe_file_test.cpp.
#include <sys/stat.h>

#include <array>
#include <cmath>

#include "tests/schema/support.hpp"

namespace goldenrule::schema {
namespace {

TEST_CASE("what is no HDF5 file") {
  const TemporaryDirectory dir;
  check_refused(dir / "none.h5", ErrorKind::kFile, "", "an HDF5 file", "No such file");
  check_refused(dir.path(), ErrorKind::kFile, "", "an HDF5 file", "not a regular file");
  REQUIRE(::mkfifo((dir / "fifo").c_str(), 0600) == 0);
  check_refused(dir / "fifo", ErrorKind::kFile, "", "an HDF5 file", "not a regular file");
  write_bytes(dir / "empty.h5", "");
  check_refused(dir / "empty.h5", ErrorKind::kFile, "", "an HDF5 file", "an empty file");
  write_bytes(dir / "text.h5", "torch.save'd by mistake\n");
  check_refused(dir / "text.h5", ErrorKind::kFile, "", "an HDF5 file",
                "without the HDF5 signature");
}

TEST_CASE("a truncated file") {
  const TemporaryDirectory dir;
  write_fixture(dir / "f.h5", small_fixture());
  const std::string whole = file_bytes(dir / "f.h5");
  write_bytes(dir / "f.h5", whole.substr(0, whole.size() / 2));
  check_refused(dir / "f.h5", ErrorKind::kFile, "", "a complete, readable HDF5 file",
                "truncated file");
  write_bytes(dir / "f.h5", whole.substr(0, whole.size() - 1));
  check_refused(dir / "f.h5", ErrorKind::kFile, "", "a complete", "truncated file");
}

TEST_CASE("a wrong schema, operation, mode or convention") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  write_edited(path, [](hid_t f) { put_attribute(f, "/", "schema", std::string("goldenrule/2")); });
  check_refused(path, ErrorKind::kSchema, "/@schema", "goldenrule/1", "'goldenrule/2'");
  write_edited(path, [](hid_t f) { H5Adelete(f, "schema"); });
  check_refused(path, ErrorKind::kSchema, "/@schema", "goldenrule/1", "no such attribute");
  write_edited(path, [](hid_t f) { put_attribute(f, "/", "op", std::string("mamba")); });
  check_refused(path, ErrorKind::kValue, "/@op", "gated_delta_rule, kda", "'mamba'");
  write_edited(path, [](hid_t f) { put_attribute(f, "/", "mode", 1.0); });
  check_refused(path, ErrorKind::kType, "/@mode", "text", "number 1");
  write_edited(path, [](hid_t f) { put_attribute(f, "/convention", "gate", std::string("exp")); });
  check_refused(path, ErrorKind::kValue, "/convention@gate", "softplus, bounded, log", "'exp'");
  write_edited(path, [](hid_t f) { put_attribute(f, "/convention", "gatte", 1.0); });
  check_refused(path, ErrorKind::kSchema, "/convention", "state_layout, gate", "'gatte'");
  write_edited(path,
               [](hid_t f) { put_attribute(f, "/convention", "l2_eps", std::string("1e-6")); });
  check_refused(path, ErrorKind::kType, "/convention@l2_eps", "a number", "text '1e-6'");
  write_edited(path, [](hid_t f) { put_attribute(f, "/convention", "scale", HUGE_VAL); });
  check_refused(path, ErrorKind::kValue, "/convention@scale", "a finite number", "inf");
  write_edited(path, [](hid_t f) { put_attribute(f, "/convention", "pad_slot", 0.5); });
  check_refused(path, ErrorKind::kType, "/convention@pad_slot", "a whole number", "0.5");
  write_edited(path, [](hid_t f) { put_attribute(f, "/convention", "disable_state_update", 2.0); });
  check_refused(path, ErrorKind::kValue, "/convention@disable_state_update", "0 or 1", "2");
}

TEST_CASE("an unknown root attribute is tolerated, an unknown group is not") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  write_edited(path, [](hid_t f) { put_attribute(f, "/", "comment", std::string("hello")); });
  CHECK_NOTHROW((void)read_fixture(path));
  write_edited(path, [](hid_t f) {
    H5Gclose(H5Gcreate2(f, "ouputs", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  });
  check_refused(path, ErrorKind::kSchema, "/ouputs", "only convention, inputs, outputs", "group");
  write_edited(path, [](hid_t f) { put_dataset(f, "/q", H5T_IEEE_F32LE, {2}); });
  check_refused(path, ErrorKind::kSchema, "/q", "only convention, inputs", "a dataset");
  write_edited(path, [](hid_t f) { put_dataset(f, "/convention/x", H5T_IEEE_F32LE, {2}); });
  check_refused(path, ErrorKind::kSchema, "/convention/x", "attributes only", "a dataset");
  write_edited(path, [](hid_t f) {
    H5Gclose(H5Gcreate2(f, "/inputs/more", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  });
  check_refused(path, ErrorKind::kSchema, "/inputs/more", "a dataset", "a group");
  write_edited(path, [](hid_t f) { H5Ldelete(f, "inputs", H5P_DEFAULT); });
  check_refused(path, ErrorKind::kSchema, "/inputs", "a group", "none");
}

TEST_CASE("a missing, mistyped or misshaped dataset") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const std::vector<double> zeros(64, 0.0);
  write_edited(path, [](hid_t f) { H5Ldelete(f, "/inputs/k", H5P_DEFAULT); });
  check_refused(path, ErrorKind::kSchema, "/inputs/k", "[2,3,1,4]", "none");
  write_edited(path, [](hid_t f) { H5Ldelete(f, "/inputs/q", H5P_DEFAULT); });
  check_refused(path, ErrorKind::kSchema, "/inputs/q", "a dataset of rank 4", "none");
  write_edited(path, [&](hid_t f) {
    put_dataset(f, "/inputs/k", H5T_IEEE_F32LE, {6, 1, 4}, H5P_DEFAULT, zeros.data());
  });
  check_refused(path, ErrorKind::kShape, "/inputs/k", "[2,3,1,4]", "[6,1,4]");
  write_edited(path, [&](hid_t f) {
    put_dataset(f, "/inputs/q", H5T_IEEE_F32LE, {6, 1, 4}, H5P_DEFAULT, zeros.data());
  });
  check_refused(path, ErrorKind::kShape, "/inputs/q", "rank 4", "rank 3 [6,1,4]");
  write_edited(path, [&](hid_t f) {
    put_dataset(f, "/inputs/b", H5T_IEEE_F32LE, {2, 3, 1}, H5P_DEFAULT, zeros.data());
  });
  check_refused(path, ErrorKind::kShape, "/inputs/b", "[2,3,2]", "[2,3,1]");
  write_edited(path, [&](hid_t f) {
    put_dataset(f, "/inputs/state_indices", H5T_IEEE_F32LE, {2}, H5P_DEFAULT, zeros.data());
  });
  check_refused(path, ErrorKind::kType, "/inputs/state_indices", "i32 or i64", "f32");
  write_edited(path, [&](hid_t f) {
    put_dataset(f, "/inputs/zz", H5T_IEEE_F32LE, {2}, H5P_DEFAULT, zeros.data());
  });
  check_refused(path, ErrorKind::kSchema, "/inputs/zz", "an input", "would be ignored");
}

TEST_CASE("datatypes that no tensor has") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const std::string types = "one of f64, f32, f16, bf16, i64, i32";
  const auto refuse = [&](hid_t type, const std::string& actual) {
    write_edited(path, [&](hid_t f) { put_dataset(f, "/inputs/b", type, {2, 3, 2}); });
    check_refused(path, ErrorKind::kType, "/inputs/b", types, actual);
  };
  refuse(H5T_STD_U32LE, "u32");
  refuse(H5T_STD_I16LE, "i16");
  refuse(H5T_C_S1, "string");
  const hid_t fp8 = H5Tcopy(H5T_IEEE_F32LE);  // e4m3
  H5Tset_fields(fp8, 7, 3, 4, 0, 3);
  H5Tset_size(fp8, 1);
  H5Tset_ebias(fp8, 7);
  refuse(fp8, "a float of 8 bits (exponent 4, mantissa 3, bias 7)");
  const hid_t odd_bias = H5Tcopy(H5T_IEEE_F32LE);  // bf16 but for its bias
  H5Tset_fields(odd_bias, 15, 7, 8, 0, 7);
  H5Tset_size(odd_bias, 2);
  H5Tset_ebias(odd_bias, 128);
  refuse(odd_bias, "bias 128");
  const hid_t pair = H5Tcreate(H5T_COMPOUND, 8);
  H5Tinsert(pair, "re", 0, H5T_IEEE_F32LE);
  H5Tinsert(pair, "im", 4, H5T_IEEE_F32LE);
  refuse(pair, "compound");
  for (const hid_t type : {fp8, odd_bias, pair}) H5Tclose(type);
}

TEST_CASE("golden values, budgets and stages are checked like the rest") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const std::vector<double> zeros(256, 0.0);
  const auto put = [&](const char* name, hid_t type, const std::vector<hsize_t>& extents) {
    write_edited(path, [&](hid_t f) {
      put_dataset(f, name, type, extents, H5P_DEFAULT, zeros.data());
      put_attribute(f, name, "radius", 1e-9);
    });
  };
  put("/golden/o", H5T_IEEE_F32LE, {2, 3, 2, 3});
  check_refused(path, ErrorKind::kType, "/golden/o", "f64", "f32");
  put("/golden/o", H5T_IEEE_F64LE, {2, 3, 2, 4});
  check_refused(path, ErrorKind::kShape, "/golden/o", "[2,3,2,3]", "[2,3,2,4]");
  put("/golden/out", H5T_IEEE_F64LE, {2});
  check_refused(path, ErrorKind::kSchema, "/golden/out", "o, final_state", "'out'");
  put("/budget/recurrent_f32/o", H5T_IEEE_F64LE, {2, 3, 2, 3});
  check_refused(path, ErrorKind::kType, "/budget/recurrent_f32/o", "f32", "f64");
  put("/stages/G", H5T_IEEE_F32LE, {2});
  check_refused(path, ErrorKind::kType, "/stages/G", "f64", "f32");
  write_edited(path, [](hid_t f) { put_attribute(f, "/stages", "chunk", -1.0); });
  check_refused(path, ErrorKind::kValue, "/stages@chunk", "a number of tokens >= 1", "-1");
  put("/outputs/o", H5T_IEEE_F64LE, {2, 3, 3});
  check_refused(path, ErrorKind::kShape, "/outputs/o", "[2,3,2,3]", "[2,3,3]");
  write_edited(path, [](hid_t f) { H5Adelete_by_name(f, "/golden/o", "radius", H5P_DEFAULT); });
  check_refused(path, ErrorKind::kSchema, "/golden/o@radius", "certified", "no such attribute");
  write_edited(path, [](hid_t f) { put_attribute(f, "/golden/o", "radius", -1.0); });
  check_refused(path, ErrorKind::kValue, "/golden/o@radius", "a finite number >= 0", "-1");
}

TEST_CASE("a changed value is found by its digest, a changed chunk by its checksum") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  write_edited(path, [](hid_t f) {
    const hid_t dataset = H5Dopen2(f, "/inputs/A_log", H5P_DEFAULT);
    const std::array<float, 2> values{1.0F, 2.0F};
    H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
    H5Dclose(dataset);
  });
  check_refused(path, ErrorKind::kValue, "/inputs/A_log", "SHA-256 ", "");
  CHECK_NOTHROW((void)read_fixture(path, {.check_digests = false}));

  write_fixture(path, small_fixture(8000));
  haddr_t address = 0;
  {
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    const hid_t dataset = H5Dopen2(file, "/golden/o", H5P_DEFAULT);
    const std::array<hsize_t, 4> first{0, 0, 0, 0};
    unsigned mask = 0;
    hsize_t size = 0;
    REQUIRE(H5Dget_chunk_info_by_coord(dataset, first.data(), &mask, &address, &size) >= 0);
    H5Dclose(dataset);
    H5Fclose(file);
  }
  std::string bytes = file_bytes(path);
  bytes[address + 100] = static_cast<char>(bytes[address + 100] ^ 1);
  write_bytes(path, bytes);
  check_refused(path, ErrorKind::kValue, "/golden/o", "Fletcher-32", "a damaged chunk");
}

TEST_CASE("a text that cannot be printed in one line is refused by reader and writer") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  for (const char* text : {"two\nlines", "\x1b[2J", "\xff\xfe", "\xc0\x80", "\xed\xa0\x80"}) {
    write_edited(path, [&](hid_t f) { put_attribute(f, "/", "source", std::string(text)); });
    check_refused(path, ErrorKind::kValue, "/@source", "UTF-8", "other bytes");
    Fixture fixture = small_fixture();
    fixture.record.source = text;
    CHECK_THROWS_AS(write_fixture(dir / "w.h5", fixture), Error);
    CHECK_FALSE(std::filesystem::exists(dir / "w.h5"));
  }
  write_edited(path, [](hid_t f) { put_attribute(f, "/", "source", std::string(70000, 'x')); });
  check_refused(path, ErrorKind::kUnsafe, "/@source", "at most 65536 bytes", "70000 bytes");
}

TEST_CASE("the writer refuses what the reader would refuse") {
  const TemporaryDirectory dir;
  const auto refuse = [&](const std::function<void(Fixture&)>& spoil, const std::string& where) {
    Fixture f = small_fixture();
    spoil(f);
    try {
      write_fixture(dir / "f.h5", f);
      FAIL_CHECK("written: ", where);
    } catch (const Error& e) {
      CHECK(e.where() == where);
    }
    CHECK(std::filesystem::is_empty(dir.path()));
  };
  refuse([](Fixture& f) { f.record.inputs.erase("k"); }, "/inputs/k");
  refuse([](Fixture& f) { f.golden["o"].radius = -1.0; }, "/golden/o@radius");
  refuse([](Fixture& f) { f.golden["x"] = f.golden["o"]; }, "/golden/x");
  refuse([](Fixture& f) { f.budgets["a/b"] = {}; }, "/budget");
  refuse([](Fixture& f) { f.stages["G"] = pattern(call::DType::kF32, {1}); }, "/stages/G");
}

}  // namespace
}  // namespace goldenrule::schema
