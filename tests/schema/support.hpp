// SPDX-License-Identifier: Apache-2.0
//
// What the schema tests share: small fixtures, a temporary directory, and the surgery on files
// that makes bad ones, done with the plain HDF5 C API so that it does not depend on the code under
// test.
#pragma once

#include <doctest/doctest.h>
#include <hdf5.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/schema/read.hpp"
#include "fixtures/schema/write.hpp"

namespace goldenrule::schema {

/// A directory of this test, removed at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const {
    return path_ / name;
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Element i is ((37 i) mod 101) / 64 - 1/2: exact in every floating-point type.
[[nodiscard]] call::Tensor pattern(call::DType dtype, call::Shape shape);

/// An MTP call with B=2, T=3, H=1, HV=2, K=4 and the given V, of all six storage types, with
/// golden values, a budget and a stage. V = 3: all contiguous; V = 8000: chunked.
[[nodiscard]] Fixture small_fixture(std::int64_t V = 3);

void check_equal(const call::TensorMap& a, const call::TensorMap& b);
void check_equal(const Fixture& a, const Fixture& b);

[[nodiscard]] std::string file_bytes(const std::filesystem::path& path);
void write_bytes(const std::filesystem::path& path, const std::string& bytes);

/// Writes small_fixture(V) to `path`, without the digest of its meaning, as other writers do, and
/// lets `edit` change the open file.
void write_edited(const std::filesystem::path& path, const std::function<void(hid_t)>& edit,
                  std::int64_t V = 3);

/// Surgery: `name` is a path in the file; a dataset or attribute of that name is replaced.
void put_attribute(hid_t file, const char* object, const char* name, const std::string& text);
void put_attribute(hid_t file, const char* object, const char* name, double value);
void put_dataset(hid_t file, const char* name, hid_t type, const std::vector<hsize_t>& extents,
                 hid_t dcpl = H5P_DEFAULT, const void* data = nullptr);

/// Reading `path` must fail with this kind at this dataset, and the message must contain the texts.
void check_refused(const std::filesystem::path& path, ErrorKind kind, const std::string& where,
                   const std::string& expected, const std::string& actual,
                   const ReadOptions& options = {});

}  // namespace goldenrule::schema
