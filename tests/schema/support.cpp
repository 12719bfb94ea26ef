// SPDX-License-Identifier: Apache-2.0
#include "tests/schema/support.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "fixtures/hdf5/library.hpp"

namespace goldenrule::schema {

namespace {

// Before main, since nothing may have used HDF5 before it.
[[maybe_unused]] const bool kSkipCleanup = (hdf5::skip_cleanup_at_exit(), true);

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "goldenrule-XXXXXX").string();
  REQUIRE(::mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

call::Tensor pattern(call::DType dtype, call::Shape shape) {
  call::Tensor tensor(dtype, std::move(shape));
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set(i, static_cast<double>(37 * i % 101) / 64.0 - 0.5);
  }
  return tensor;
}

Fixture small_fixture(std::int64_t V) {
  using call::DType;
  Fixture f;
  f.record.op = call::Op::kGatedDeltaRule;
  f.record.mode = call::Mode::kMtp;
  f.record.convention.scale = 0.25;
  f.record.convention.l2_eps = 1e-5;
  f.record.convention.head_map = call::HeadMap::kTiled;
  f.record.convention.pad_slot = -7;
  f.record.source =
      "a kernel, \xc3\xbc"
      "ber alles";
  f.record.contract = "recurrent_f32";
  f.record.case_line = "gdn mtp B=2 T=3";
  f.pattern = std::string("A");  // not the literal: g++ 12 warns of its own inlining
  f.seed = -3;
  f.precision_bits = 106;
  f.generator = "test";
  const call::Shape values{2, 3, 2, V};
  f.record.inputs = {
      {"q", pattern(DType::kBF16, {2, 3, 1, 4})},
      {"k", pattern(DType::kF16, {2, 3, 1, 4})},
      {"v", pattern(DType::kBF16, values)},
      {"a", pattern(DType::kF64, {2, 3, 2})},
      {"b", pattern(DType::kF32, {2, 3, 2})},
      {"A_log", pattern(DType::kF32, {2})},
      {"initial_state", pattern(DType::kF32, {3, 2, V, 4})},
      {"state_indices", call::Tensor(DType::kI32, {2}, std::array{2.0, 0.0})},
      {"accepted_tokens", call::Tensor(DType::kI64, {2}, std::array{3.0, 1.0})},
  };
  f.record.outputs = {{"o", pattern(DType::kBF16, values)},
                      {"intermediate_states", pattern(DType::kF32, {2, 3, 2, V, 4})}};
  f.golden["o"] = {pattern(DType::kF64, values), 1e-16};
  f.golden["final_state"] = {pattern(DType::kF64, {3, 2, V, 4}), 0.0};
  f.budgets["recurrent_f32"]["o"] = pattern(DType::kF32, values);
  f.stages["G"] = pattern(DType::kF64, {2, 3, 2});
  f.stages["count"] = pattern(DType::kF64, {});
  return f;
}

void check_equal(const call::TensorMap& a, const call::TensorMap& b) {
  REQUIRE(a.size() == b.size());
  for (const auto& [name, tensor] : a) {
    CAPTURE(name);
    REQUIRE(b.contains(name));
    CHECK(tensor.dtype() == b.at(name).dtype());
    CHECK(tensor.shape() == b.at(name).shape());
    CHECK(std::ranges::equal(tensor.bytes(), b.at(name).bytes()));
  }
}

void check_equal(const Fixture& a, const Fixture& b) {
  CHECK(a.record.op == b.record.op);
  CHECK(a.record.mode == b.record.mode);
  CHECK(a.record.convention == b.record.convention);
  CHECK(a.record.source == b.record.source);
  CHECK(a.record.contract == b.record.contract);
  CHECK(a.record.case_line == b.record.case_line);
  CHECK(a.pattern == b.pattern);
  CHECK(a.seed == b.seed);
  CHECK(a.precision_bits == b.precision_bits);
  CHECK(a.generator == b.generator);
  check_equal(a.record.inputs, b.record.inputs);
  check_equal(a.record.outputs, b.record.outputs);
  check_equal(a.stages, b.stages);
  REQUIRE(a.golden.size() == b.golden.size());
  for (const auto& [name, golden] : a.golden) {
    CHECK(golden.radius == b.golden.at(name).radius);
    check_equal({{name, golden.value}}, {{name, b.golden.at(name).value}});
  }
  REQUIRE(a.budgets.size() == b.budgets.size());
  for (const auto& [contract, budget] : a.budgets) check_equal(budget, b.budgets.at(contract));
}

std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in.good());
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  REQUIRE(out.good());
}

void write_edited(const std::filesystem::path& path, const std::function<void(hid_t)>& edit,
                  std::int64_t V) {
  write_fixture(path, small_fixture(V));
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  REQUIRE(file >= 0);
  REQUIRE(H5Adelete(file, "meaning_sha256") >= 0);
  edit(file);
  REQUIRE(H5Fclose(file) >= 0);
}

namespace {

void put_attribute(hid_t file, const char* object, const char* name, hid_t type, const void* data) {
  if (H5Aexists_by_name(file, object, name, H5P_DEFAULT) > 0) {
    H5Adelete_by_name(file, object, name, H5P_DEFAULT);
  }
  const hid_t space = H5Screate(H5S_SCALAR);
  const hid_t attribute =
      H5Acreate_by_name(file, object, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  REQUIRE(H5Awrite(attribute, type, data) >= 0);
  H5Aclose(attribute);
  H5Sclose(space);
}

}  // namespace

void put_attribute(hid_t file, const char* object, const char* name, const std::string& text) {
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, H5T_VARIABLE);
  const char* data = text.c_str();
  put_attribute(file, object, name, type, static_cast<const void*>(&data));
  H5Tclose(type);
}

void put_attribute(hid_t file, const char* object, const char* name, double value) {
  put_attribute(file, object, name, H5T_NATIVE_DOUBLE, &value);
}

void put_dataset(hid_t file, const char* name, hid_t type, const std::vector<hsize_t>& extents,
                 hid_t dcpl, const void* data) {
  if (H5Lexists(file, name, H5P_DEFAULT) > 0) H5Ldelete(file, name, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr);
  const hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
  REQUIRE(dataset >= 0);
  if (data != nullptr) REQUIRE(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  H5Dclose(dataset);
  H5Sclose(space);
}

void check_refused(const std::filesystem::path& path, ErrorKind kind, const std::string& where,
                   const std::string& expected, const std::string& actual,
                   const ReadOptions& options) {
  for (const Reader reader : {Reader::kHere, Reader::kChild}) {  // which say the same
    ReadOptions as = options;
    as.reader = reader;
    CAPTURE(reader == Reader::kChild);
    try {
      (void)read_fixture(path, as);
      FAIL_CHECK("read: ", path.string());
    } catch (const Error& e) {
      const std::string message = e.what();
      CAPTURE(message);
      CHECK(e.kind() == kind);
      CHECK(e.file() == path.string());
      CHECK(e.where() == where);
      CHECK(e.expected().find(expected) != std::string::npos);
      CHECK(e.actual().find(actual) != std::string::npos);
      CHECK(message.find('\n') == std::string::npos);
    }
  }
}

}  // namespace goldenrule::schema
